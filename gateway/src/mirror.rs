//! Jobs as any gateway can show them while nobody owns their shard: what their last owner told of them.
//!
//! It may be some tenths of a second old, older where the Redis was away, and absent after a flush; then there is no
//! answer. It is never used for anything but answers.

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, JobId, Kind, PartitionId,
    direct::Body,
    rest::{GraphTask, GraphView, JobView, LineageView},
    value::Output,
};
use fanfold_store::Store;

use crate::owner::{lineage_of, open_output};

/// Field of a job: its [`JobView`] as JSON.
pub(crate) const VIEW: &str = "view";
/// Field of a job: the first output of one that succeeded, as MessagePack.
pub(crate) const OUTPUT: &str = "output";

/// What former owners told. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror {
    mirror: fanfold_store::Mirror,
    store: Store,
}

impl Mirror {
    /// Reads what is told in `mirror`, of jobs with their data in `store`.
    pub fn new(mirror: fanfold_store::Mirror, store: Store) -> Self {
        Self { mirror, store }
    }

    /// A job as its owner last told. `None`: nothing is known of it.
    ///
    /// # Errors
    /// `platform` / `storage` where the Redis cannot be asked.
    pub async fn view(&self, job: JobId) -> Result<Option<JobView>, Error> {
        let told = self.mirror.field(job, VIEW).await?;
        told.map(|json| serde_json::from_slice(&json).map_err(|e| unreadable(job, e))).transpose()
    }

    /// The output of a job that succeeded, as [`crate::owner::Owner::output`] gives it. `None`: nothing is known of it.
    ///
    /// # Errors
    /// `conflict` / `not-finished`, retryable, while it has not ended; the job's own error where it failed; `lost`; those
    /// of [`Mirror::view`].
    pub async fn output(&self, job: JobId) -> Result<Option<(&'static str, u64, Body)>, Error> {
        let Some(view) = self.view(job).await? else { return Ok(None) };
        if !view.state.ended() {
            let why = format!("job {job} had not ended when its owner went away: ask again");
            return Err(Error::new(Kind::Conflict, Code::NotFinished, why).retryable(true));
        }
        if let Some(error) = view.error {
            return Err(error);
        }
        let Some(told) = self.mirror.field(job, OUTPUT).await? else { return Ok(None) };
        let output = Output::decode(&told)?;
        open_output(&self.store, &output).await.map(Some)
    }

    /// The tasks of a job that have committed, or all of one that has ended. `None`: nothing is known of it.
    ///
    /// # Errors
    /// Those of [`Mirror::view`]; `lost` / `corrupt`.
    pub async fn graph(&self, job: JobId) -> Result<Option<GraphView>, Error> {
        if let Some(stored) = self.store.graph(job).await? {
            return GraphView::decode(&stored).map(Some);
        }
        let told = self.mirror.tasks(job).await?;
        let mut tasks = told.iter().map(|task| GraphTask::decode(task)).collect::<Result<Vec<_>, _>>()?;
        if tasks.is_empty() {
            return Ok(None);
        }
        tasks.sort_by_key(|task| (task.started_at_ms, task.id));
        Ok(Some(GraphView { tasks, truncated: true }))
    }

    /// How a partition of a job was made. `None`: nothing is known of it.
    ///
    /// # Errors
    /// Those of [`Mirror::graph`].
    pub async fn lineage(&self, partition: PartitionId, job: JobId) -> Result<Option<LineageView>, Error> {
        Ok(self.graph(job).await?.and_then(|graph| lineage_of(&graph, partition)))
    }
}

fn unreadable(job: JobId, error: serde_json::Error) -> Error {
    let why = format!("what was told of job {job} cannot be read ({error}): run the same release everywhere");
    Error::new(Kind::Platform, Code::Corrupt, why)
}

/// What is told of a job's output.
pub(crate) fn output_told(output: &Output) -> Bytes {
    output.encode().into()
}
