//! Partitions: reading them and asking how they were made.

use fanfold_protocol::{JobId, PartitionId, rest::LineageView};

use crate::{ByteStream, Client, Error, request::Request};

impl Client {
    /// The bytes of a partition.
    ///
    /// # Errors
    /// `not-found`: never made, or nothing refers to it any more.
    pub async fn partition(&self, id: PartitionId) -> Result<ByteStream, Error> {
        let url = self.at(["v1", "partitions", &id.to_string()]);
        self.stream(&Request::get(url).timeout(None)).await
    }

    /// How a partition was made. `job`: its job, which has to be told once it has ended and is not among the last to do so.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn lineage(&self, id: PartitionId, job: Option<JobId>) -> Result<LineageView, Error> {
        let mut request = Request::get(self.at(["v1", "partitions", &id.to_string(), "lineage"]));
        if let Some(job) = job {
            request = request.query("job", &job.to_string());
        }
        self.json(&request).await
    }
}
