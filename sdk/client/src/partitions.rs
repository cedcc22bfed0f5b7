//! Partitions: reading them and asking how they were made.

use fanfold_protocol::{PartitionId, rest::LineageView};

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

    /// How a partition was made.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn lineage(&self, id: PartitionId) -> Result<LineageView, Error> {
        self.json(&Request::get(self.at(["v1", "partitions", &id.to_string(), "lineage"]))).await
    }
}
