//! Runs of triggers that have not ended: how many there are, how old they are, and which of them wait for others.
//!
//! Runs take turns where their trigger has a bound of its own, and where they have an ordering key in common. They wait for that
//! in the order in which they were accepted, before they line up for a place, and give their turns back when their end is durable: a
//! run that is to be tried again keeps them meanwhile.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use fanfold_protocol::{Digest, FunctionName, JobId, limit, record::Fired};

#[derive(Default)]
pub(super) struct Runs {
    unfinished: HashMap<FunctionName, BTreeSet<JobId>>,
    turns: HashMap<Turn, Queue>,
}

/// What runs take turns at.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Turn {
    /// One ordering key of the trigger.
    Ordering(FunctionName, Digest),
    /// The trigger as a whole.
    Trigger(FunctionName),
}

/// Those that have their turn and those that wait.
#[derive(Default)]
struct Queue {
    under_way: HashSet<JobId>,
    waiting: VecDeque<JobId>,
}

impl Turn {
    /// The turns that a run needs and how many may have each at once, in the order in which it gets them: always the same one, so
    /// that no two wait for each other.
    fn of(fired: &Fired) -> impl Iterator<Item = (Self, usize)> {
        let trigger = || fired.trigger.clone();
        let ordering = fired.ordering.map(|key| (Self::Ordering(trigger(), key), 1));
        let bound = fired.says.concurrency.map(|max| (Self::Trigger(trigger()), max as usize));
        ordering.into_iter().chain(bound)
    }
}

impl Runs {
    /// Whether one more run of this kind may wait.
    pub fn has_room(&self, fired: &Fired) -> bool {
        let unfinished = self.unfinished.get(&fired.trigger).map_or(0, BTreeSet::len);
        Turn::of(fired).next().is_none() || unfinished < limit::ASYNC_WAITING_MAX
    }

    /// Unfinished runs by trigger: how many, and the oldest.
    pub fn unfinished(&self) -> impl Iterator<Item = (&FunctionName, usize, JobId)> {
        self.unfinished.iter().filter_map(|(trigger, runs)| Some((trigger, runs.len(), *runs.first()?)))
    }

    /// Takes up a run, or asks again for one that waited. Whether it may line up now: it has all its turns.
    pub fn ask(&mut self, job: JobId, fired: &Fired) -> bool {
        self.unfinished.entry(fired.trigger.clone()).or_default().insert(job);
        for (turn, max) in Turn::of(fired) {
            let queue = self.turns.entry(turn).or_default();
            if queue.under_way.contains(&job) {
                continue;
            }
            if queue.under_way.len() >= max || !queue.waiting.is_empty() {
                queue.waiting.push_back(job);
                return false;
            }
            queue.under_way.insert(job);
        }
        true
    }

    /// A run has ended, wherever it stood. Those whose turn it is then have to ask again.
    pub fn end(&mut self, job: JobId, fired: &Fired) -> Vec<JobId> {
        if let Some(runs) = self.unfinished.get_mut(&fired.trigger) {
            runs.remove(&job);
            if runs.is_empty() {
                self.unfinished.remove(&fired.trigger);
            }
        }
        let mut next = Vec::new();
        for (turn, max) in Turn::of(fired) {
            let Some(queue) = self.turns.get_mut(&turn) else { continue };
            if !queue.under_way.remove(&job) {
                queue.waiting.retain(|waiting| *waiting != job);
            }
            while queue.under_way.len() < max
                && let Some(job) = queue.waiting.pop_front()
            {
                queue.under_way.insert(job);
                next.push(job);
            }
            if queue.under_way.is_empty() && queue.waiting.is_empty() {
                self.turns.remove(&turn);
            }
        }
        next
    }

    /// The runs that wait for a turn.
    pub fn waiting(&self) -> impl Iterator<Item = JobId> {
        self.turns.values().flat_map(|queue| queue.waiting.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::record::Says;

    use super::*;

    fn job(n: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(n))
    }

    fn fired(ordering: Option<u8>, concurrency: Option<u32>) -> Fired {
        Fired {
            trigger: "t".parse().unwrap(),
            scheduled_ms: None,
            events: Vec::new(),
            hops: 0,
            ordering: ordering.map(|key| Digest([key; 32])),
            says: Says { concurrency, ..Says::default() },
        }
    }

    #[test]
    fn runs_of_one_ordering_key_take_turns() {
        let (a, b) = (fired(Some(1), None), fired(Some(2), None));
        let mut runs = Runs::default();
        assert!(runs.ask(job(1), &a) && !runs.ask(job(2), &a) && !runs.ask(job(3), &a));
        assert!(runs.ask(job(4), &b), "another key waits for nobody");
        assert!(runs.ask(job(5), &fired(None, None)), "neither does a run without one");
        assert_eq!(runs.unfinished().map(|(_, count, oldest)| (count, oldest)).next(), Some((5, job(1))));
        assert_eq!(runs.waiting().collect::<Vec<_>>(), [job(2), job(3)]);
        assert_eq!(runs.end(job(2), &a), [], "one that is cancelled while it waits");
        assert_eq!(runs.end(job(1), &a), [job(3)]);
        assert!(runs.ask(job(3), &a), "it has its turn already");
        runs.end(job(3), &a);
        assert!(runs.ask(job(6), &a));
    }

    #[test]
    fn a_run_may_need_two_turns() {
        let (first, second) = (fired(Some(1), Some(2)), fired(Some(2), Some(2)));
        let mut runs = Runs::default();
        assert!(runs.ask(job(1), &first) && runs.ask(job(2), &second));
        assert!(!runs.ask(job(3), &first), "its key is taken");
        let third = fired(Some(3), Some(2));
        assert!(!runs.ask(job(4), &third), "two are under way");
        assert_eq!(runs.end(job(2), &second), [job(4)]);
        assert!(runs.ask(job(4), &third));
        assert_eq!(runs.end(job(1), &first), [job(3)], "it has one turn now, and gets the other");
        assert!(runs.ask(job(3), &first));
        for (n, fired) in [(3, &first), (4, &third)] {
            assert_eq!(runs.end(job(n), fired), []);
        }
        assert!(runs.unfinished.is_empty() && runs.turns.is_empty());
    }
}
