//! The whole at a glance: executors, queues, what waits and why.

use fanfold_protocol::{
    Error, JobId,
    rest::{ClusterView, ExecutorState, ExecutorView, JobView, QueueView},
};

use super::{Owner, link::Link, live::Stage, messages::Request, run::Loop};

/// Jobs in one answer: what fits on a screen and then some.
pub(crate) const JOBS_MAX: usize = 100;

impl Owner {
    /// Executors, queues and live jobs as they are now.
    ///
    /// # Errors
    /// None of its own.
    pub async fn cluster(&self) -> Result<ClusterView, Error> {
        self.ask(|reply| Request::Cluster { reply }).await
    }
}

impl Loop {
    /// See [`Owner::cluster`].
    pub fn cluster(&self) -> ClusterView {
        let waits = |stage: &Stage| matches!(stage, Stage::Waiting | Stage::Fetching);
        let waiting = self.live.values().filter(|live| waits(&live.stage)).count();
        let mut queues: Vec<QueueView> = self.places.queues().map(queue).collect();
        queues.sort_by(|a, b| a.function.cmp(&b.function));
        ClusterView {
            at_ms: self.now_ms,
            executors: self.links.iter().map(|link| self.executor_view(link)).collect(),
            queues,
            waiting: self.scheduler.waiting(),
            jobs_running: (self.live.len() - waiting) as u64,
            jobs_waiting: waiting as u64,
            jobs: self.newest_live(),
            journal_error: self.lane.refusal().cloned(),
        }
    }

    fn newest_live(&self) -> Vec<JobView> {
        let mut ids: Vec<JobId> = self.live.keys().copied().collect();
        if ids.len() > JOBS_MAX {
            // Ids sort by time; only the last ones have to be in order.
            let border = ids.len() - JOBS_MAX;
            ids.select_nth_unstable(border);
            ids.drain(..border);
        }
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.iter().filter_map(|id| Some(self.live_view(*id, self.live.get(id)?))).collect()
    }

    fn executor_view(&self, link: &Link) -> ExecutorView {
        let offer = &link.offer;
        let seen = self.scheduler.executors().find(|view| view.id == link.id());
        let used = seen.as_ref().map(|view| view.used).unwrap_or_default();
        let leaving = seen.as_ref().is_none_or(|view| view.leaving);
        ExecutorView {
            id: link.id(),
            name: link.name.clone(),
            state: if leaving { ExecutorState::Leaving } else { ExecutorState::Up },
            peer: link.peer.clone(),
            joined_at_ms: link.joined_at_ms,
            cpu_millis: offer.cpu_millis,
            cpu_millis_used: used.cpu_millis,
            memory: offer.memory,
            memory_used: used.memory,
            gpu: offer.gpu,
            gpu_used: used.gpu,
            adapter: offer.adapter.clone(),
            attempts: seen.map_or(0, |view| view.attempts as u64),
            unsent: link.unsent() as u64,
        }
    }
}

fn queue(
    (function, running, waiting, max): (&fanfold_protocol::FunctionName, usize, usize, usize),
) -> QueueView {
    QueueView {
        function: function.clone(),
        running: running as u64,
        waiting: waiting as u64,
        max: max as u64,
    }
}
