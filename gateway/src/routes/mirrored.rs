//! Answers about jobs that have no owner at the moment, out of what the last one told.

use std::sync::Arc;

use fanfold_protocol::{
    Error, JobId, PartitionId,
    direct::Body,
    rest::{GraphView, JobView, LineageView},
};

use crate::{mirror::Mirror, shared::Shared};

/// A job as its owner has it, or as the last one told.
pub(super) async fn view(shared: &Shared, id: JobId) -> Result<JobView, Error> {
    match shared.owner(id.shard()) {
        Ok(owner) => owner.view(id).await,
        Err(absent) => told(mirror(shared, &absent)?.view(id).await, absent),
    }
}

/// Its output: media type, length, bytes.
pub(super) async fn output(shared: &Shared, id: JobId) -> Result<(&'static str, u64, Body), Error> {
    match shared.owner(id.shard()) {
        Ok(owner) => owner.output(id).await,
        Err(absent) => match mirror(shared, &absent)?.output(id).await {
            Ok(found) => found.ok_or(absent),
            // Its own error, or that it has not ended: those are answers too.
            Err(error) if error.code != fanfold_protocol::Code::Storage => Err(error),
            Err(_) => Err(absent),
        },
    }
}

/// Its tasks.
pub(super) async fn graph(shared: &Shared, id: JobId) -> Result<Arc<GraphView>, Error> {
    match shared.owner(id.shard()) {
        Ok(owner) => owner.graph(id).await,
        Err(absent) => told(mirror(shared, &absent)?.graph(id).await, absent).map(Arc::new),
    }
}

/// How a partition was made; while its job has no owner, the job must be told.
pub(super) async fn lineage(
    shared: &Shared,
    id: PartitionId,
    job: Option<JobId>,
) -> Result<LineageView, Error> {
    match (shared.owner(id.task.shard()), job) {
        (Ok(owner), job) => owner.lineage(id, job).await,
        (Err(absent), Some(job)) => told(mirror(shared, &absent)?.lineage(id, job).await, absent),
        (Err(absent), None) => Err(absent),
    }
}

fn mirror<'a>(shared: &'a Shared, absent: &Error) -> Result<&'a Mirror, Error> {
    shared.mirror.as_ref().ok_or_else(|| absent.clone())
}

/// What was told, or that there is no owner to ask.
fn told<T>(found: Result<Option<T>, Error>, absent: Error) -> Result<T, Error> {
    found.ok().flatten().ok_or(absent)
}
