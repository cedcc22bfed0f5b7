//! `/v1/executors`: who works, what waits, and why.

use axum::{Json, extract::State};
use fanfold_protocol::rest::ClusterView;

use super::{Answer, Gateway};
use crate::owner::JOBS_MAX;

/// The executors of this gateway with what they have and use, queues, live jobs, and what runnable work waits for.
#[utoipa::path(
    get, path = "/v1/executors", tag = "operations",
    responses((status = 200, body = ClusterView)),
)]
pub(super) async fn list(State(shared): Gateway) -> Answer<Json<ClusterView>> {
    let mut all = shared.home().cluster().await?;
    for shard in shared.owners.adopted().iter() {
        add(&mut all, shard.owner.cluster().await?);
    }
    Ok(Json(all))
}

/// Adds what another owner of this gateway sees: the same executors, and other jobs.
fn add(all: &mut ClusterView, more: ClusterView) {
    for executor in more.executors {
        match all.executors.iter_mut().find(|known| known.id == executor.id) {
            Some(known) => {
                known.cpu_millis_used += executor.cpu_millis_used;
                known.memory_used += executor.memory_used;
                known.gpu_used += executor.gpu_used;
                known.attempts += executor.attempts;
                known.unsent += executor.unsent;
            }
            None => all.executors.push(executor),
        }
    }
    for queue in more.queues {
        match all.queues.iter_mut().find(|known| known.function == queue.function) {
            Some(known) => {
                (known.running, known.waiting) =
                    (known.running + queue.running, known.waiting + queue.waiting);
            }
            None => all.queues.push(queue),
        }
    }
    all.waiting.extend(more.waiting);
    (all.jobs_running, all.jobs_waiting) =
        (all.jobs_running + more.jobs_running, all.jobs_waiting + more.jobs_waiting);
    all.jobs.extend(more.jobs);
    all.jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    all.jobs.truncate(JOBS_MAX);
    all.journal_error = all.journal_error.take().or(more.journal_error);
}
