//! Who may begin: each function runs at most as many recorded jobs at once as its manifest says; the others wait in
//! the order in which they were accepted.
//!
//! A job whose root waits for its next attempt after a failure gives its place back meanwhile, so that a few jobs that
//! fail slowly do not hold up all others; it goes on when it is due, even where that is one more than `max`.

use std::collections::{HashMap, HashSet, VecDeque};

use fanfold_protocol::{FunctionName, JobId, function::FunctionVersion, limit};

#[derive(Default)]
pub(super) struct Places {
    functions: HashMap<FunctionName, Queue>,
    /// Functions that may have both a free place and a waiting job.
    open: HashSet<FunctionName>,
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    max: usize,
    running: usize,
    waiting: VecDeque<JobId>,
}

impl Places {
    /// Whether one more job of this function may wait.
    pub fn has_room(&self, function: &FunctionVersion) -> bool {
        let bound = (function.manifest.concurrency.queue as usize).max(limit::ASYNC_WAITING_MAX);
        self.functions.get(&function.name).is_none_or(|queue| queue.waiting.len() < bound)
    }

    /// Jobs that wait, of all functions.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts a job at the end of its function's queue. The newest job's manifest says how many may run.
    pub fn wait(&mut self, function: &FunctionVersion, job: JobId) {
        let queue = self.functions.entry(function.name.clone()).or_default();
        queue.max = function.manifest.concurrency.max as usize;
        queue.waiting.push_back(job);
        self.waiting += 1;
        if queue.running < queue.max {
            self.open.insert(function.name.clone());
        }
    }

    /// A job that may begin now; it has a place from here on.
    pub fn next(&mut self) -> Option<JobId> {
        while let Some(name) = self.open.iter().next().cloned() {
            if let Some(queue) = self.functions.get_mut(&name)
                && queue.running < queue.max
                && let Some(job) = queue.waiting.pop_front()
            {
                queue.running += 1;
                self.waiting -= 1;
                return Some(job);
            }
            self.open.remove(&name);
        }
        None
    }

    /// Undoes [`Places::next`]: the job waits at the front again.
    pub fn put_back(&mut self, function: &FunctionName, job: JobId) {
        let Some(queue) = self.functions.get_mut(function) else { return };
        queue.running -= 1;
        queue.waiting.push_front(job);
        self.waiting += 1;
        self.open.insert(function.clone());
    }

    /// Takes a place whether or not one is free: the job's next attempt begins.
    pub fn take(&mut self, function: &FunctionName) {
        self.functions.entry(function.clone()).or_default().running += 1;
    }

    /// Gives a place back.
    pub fn give_back(&mut self, function: &FunctionName) {
        let Some(queue) = self.functions.get_mut(function) else { return };
        queue.running = queue.running.saturating_sub(1);
        if queue.running == 0 && queue.waiting.is_empty() {
            self.functions.remove(function);
        } else if !queue.waiting.is_empty() {
            self.open.insert(function.clone());
        }
    }

    /// Removes a waiting job.
    pub fn leave(&mut self, function: &FunctionName, job: JobId) {
        let Some(queue) = self.functions.get_mut(function) else { return };
        let before = queue.waiting.len();
        // Jobs that grew too old leave in the order in which they came.
        if queue.waiting.front() == Some(&job) {
            queue.waiting.pop_front();
        } else {
            queue.waiting.retain(|waiting| *waiting != job);
        }
        self.waiting -= before - queue.waiting.len();
    }

    /// Each function with jobs that run or wait: how many of either, and how many may run.
    pub fn queues(&self) -> impl Iterator<Item = (&FunctionName, usize, usize, usize)> {
        self.functions.iter().map(|(name, queue)| (name, queue.running, queue.waiting.len(), queue.max))
    }

    /// The job at the front of each queue: the oldest that waits.
    pub fn fronts(&self) -> Vec<JobId> {
        self.functions.values().filter_map(|queue| queue.waiting.front().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::tests::function;

    #[test]
    fn a_function_runs_as_many_as_it_may() {
        let job = |n: u128| JobId(uuid::Uuid::from_u128(n));
        let mut f = (*function("f")).clone();
        f.manifest.concurrency.max = 2;
        let mut places = Places::default();
        (1..=4).for_each(|n| places.wait(&f, job(n)));
        places.wait(&function("g"), job(9));

        let mut begun: Vec<_> = std::iter::from_fn(|| places.next()).collect();
        begun.sort();
        assert_eq!((begun, places.waiting()), (vec![job(1), job(2), job(9)], 2));
        places.leave(&f.name, job(3));
        places.give_back(&f.name);
        assert_eq!((places.next(), places.next()), (Some(job(4)), None));

        // One retries while the place it gave back is taken: `max` is exceeded until both have ended.
        places.take(&f.name);
        places.wait(&f, job(5));
        places.give_back(&f.name);
        assert_eq!(places.next(), None);
        places.give_back(&f.name);
        assert_eq!(places.next(), Some(job(5)));
    }

    #[test]
    fn a_queue_is_bounded() {
        let f = function("f");
        let mut places = Places::default();
        for n in 0..limit::ASYNC_WAITING_MAX {
            assert!(places.has_room(&f));
            places.wait(&f, JobId(uuid::Uuid::from_u128(n as u128)));
        }
        assert!(!places.has_room(&f) && places.has_room(&function("g")));
        places.next();
        assert!(places.has_room(&f));
    }
}
