//! Which of a schedule's times are due, given the last one that was recorded: missed times, overlapping runs, waking up.

use std::collections::VecDeque;

use fanfold_protocol::{
    Error, limit,
    trigger::{Missed, Overlap, Source, Trigger, TriggerRecord},
};

use crate::Cron;

/// The times of a trigger.
#[derive(Clone, Debug)]
enum Times {
    Cron(Box<Cron>),
    /// Every so many milliseconds, counted from a time.
    Every(u64, u64),
}

/// A schedule with its policies.
#[derive(Clone, Debug)]
pub struct Schedule {
    times: Times,
    missed: Missed,
    overlap: Overlap,
    /// Times until then are none of its own.
    since_ms: u64,
}

/// What is to be done now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Due {
    /// Scheduled times to fire, the oldest first.
    pub fire: Vec<u64>,
    /// All times up to this one are passed over, and to be recorded so.
    pub pass: Option<u64>,
    /// When to look again; `None`: at the end of the run that goes on, or never.
    pub wake_ms: Option<u64>,
}

impl Schedule {
    /// The schedule of a trigger; `None`: it has none.
    ///
    /// # Errors
    /// As [`Cron::new`]; `invalid` / `trigger` for policies that contradict each other.
    pub fn of(definition: &Trigger, since_ms: u64) -> Result<Option<Self>, Error> {
        let times = match (definition.kind, &definition.schedule, definition.every) {
            (Source::Cron, Some(schedule), _) => {
                Times::Cron(Box::new(Cron::new(schedule, definition.timezone.as_deref())?))
            }
            (Source::Interval, _, Some(every)) => Times::Every(every.max(1), since_ms),
            _ => return Ok(None),
        };
        let missed = definition.missed.unwrap_or_default();
        let overlap = definition.overlap.unwrap_or_default();
        match (missed, overlap) {
            (Missed::All, Overlap::Skip | Overlap::Wait) => Err(fanfold_protocol::trigger::refuse(
                "missed = \"all\" makes several runs at once: give overlap = \"allow\" with it",
            )),
            (Missed::Skip, Overlap::Wait) => Err(fanfold_protocol::trigger::refuse(
                "overlap = \"wait\" makes runs late, and missed = \"skip\" drops late ones: give missed = \"one\"",
            )),
            _ => Ok(Some(Self { times, missed, overlap, since_ms })),
        }
    }

    /// The schedule of a recorded trigger, which was checked before.
    pub fn recorded(record: &TriggerRecord) -> Option<Self> {
        Self::of(&record.definition, record.since_ms).ok().flatten()
    }

    /// What is due at `now_ms`. `last_ms` is the last time that was recorded as fired or passed over, `running` whether the run
    /// before has not ended.
    pub fn due(&self, last_ms: Option<u64>, running: bool, now_ms: u64) -> Due {
        let cursor_ms = last_ms.unwrap_or(0).max(self.since_ms);
        let due = self.between(cursor_ms, now_ms);
        let Some(last) = due.back().copied() else {
            return Due { wake_ms: self.next(cursor_ms), ..Due::default() };
        };
        if running && self.overlap == Overlap::Wait {
            return Due::default();
        }
        let on_time = |at: &u64| at.saturating_add(limit::MISSED_AFTER_MS) >= now_ms;
        let mut fire: Vec<u64> = match (self.missed, self.overlap) {
            _ if running && self.overlap == Overlap::Skip => Vec::new(),
            (Missed::Skip, _) => due.into_iter().filter(on_time).collect(),
            (Missed::One, Overlap::Allow) if due.iter().all(on_time) => due.into(),
            (Missed::One, _) => vec![last],
            (Missed::All, _) => due.into(),
        };
        if self.overlap != Overlap::Allow {
            // Those before it would run beside it, or were waited for.
            fire = fire.pop().into_iter().collect();
        }
        Due { pass: fire.is_empty().then_some(last), fire, wake_ms: self.next(now_ms) }
    }

    /// The first time after `after_ms` that is its own.
    pub fn next(&self, after_ms: u64) -> Option<u64> {
        let after_ms = after_ms.max(self.since_ms);
        match &self.times {
            Times::Cron(cron) => cron.next(after_ms),
            Times::Every(every, from) => {
                from.checked_add(((after_ms - from) / every + 1).checked_mul(*every)?)
            }
        }
    }

    /// The last [`limit::MISSED_RUNS_MAX`] times after `after_ms` until `now_ms`.
    fn between(&self, mut after_ms: u64, now_ms: u64) -> VecDeque<u64> {
        if let Times::Every(every, _) = self.times {
            let span = every.saturating_mul(limit::MISSED_RUNS_MAX as u64);
            after_ms = after_ms.max(now_ms.saturating_sub(span));
        }
        let mut times = VecDeque::new();
        while let Some(at) = self.next(after_ms).filter(|at| *at <= now_ms) {
            if times.len() == limit::MISSED_RUNS_MAX {
                times.pop_front();
            }
            times.push_back(at);
            after_ms = at;
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;

    fn hourly(missed: &str, overlap: &str, since_ms: u64) -> Schedule {
        let definition =
            json!({ "kind": "cron", "schedule": "0 * * * *", "missed": missed, "overlap": overlap });
        Schedule::of(&serde_json::from_value(definition).unwrap(), since_ms).unwrap().unwrap()
    }

    fn due(fire: &[u64], pass: Option<u64>, wake_ms: Option<u64>) -> Due {
        Due { fire: fire.to_vec(), pass, wake_ms }
    }

    #[test]
    fn a_failover_is_no_miss_and_a_long_night_is() {
        for (missed, night) in [
            ("skip", due(&[], Some(9 * HOUR), Some(10 * HOUR))),
            ("one", due(&[9 * HOUR], None, Some(10 * HOUR))),
            ("all", due(&[7 * HOUR, 8 * HOUR, 9 * HOUR], None, Some(10 * HOUR))),
        ] {
            let schedule = hourly(missed, "allow", 0);
            assert_eq!(schedule.due(Some(6 * HOUR), false, 7 * HOUR - 1), due(&[], None, Some(7 * HOUR)));
            let failover = 7 * HOUR + 20_000;
            assert_eq!(
                schedule.due(Some(6 * HOUR), false, failover),
                due(&[7 * HOUR], None, Some(8 * HOUR)),
                "{missed}"
            );
            assert_eq!(schedule.due(Some(6 * HOUR), false, 9 * HOUR + 10 * MINUTE), night, "{missed}");
        }
        // What the former owner recorded, the next one does not fire again.
        assert_eq!(
            hourly("one", "skip", 0).due(Some(7 * HOUR), false, 7 * HOUR + 1),
            due(&[], None, Some(8 * HOUR))
        );
    }

    #[test]
    fn a_paused_hour_is_not_made_up_for() {
        // Paused before 7:00, resumed at 8:30.
        let schedule = hourly("all", "allow", 8 * HOUR + 30 * MINUTE);
        assert_eq!(
            schedule.due(Some(6 * HOUR), false, 8 * HOUR + 31 * MINUTE),
            due(&[], None, Some(9 * HOUR))
        );
        assert_eq!(schedule.due(None, false, 9 * HOUR), due(&[9 * HOUR], None, Some(10 * HOUR)));
    }

    #[test]
    fn runs_that_overlap_follow_the_policy() {
        let at = |overlap: &str, running| hourly("one", overlap, 0).due(Some(6 * HOUR), running, 7 * HOUR);
        assert_eq!(at("allow", true), due(&[7 * HOUR], None, Some(8 * HOUR)));
        assert_eq!(at("skip", true), due(&[], Some(7 * HOUR), Some(8 * HOUR)));
        assert_eq!(at("skip", false), due(&[7 * HOUR], None, Some(8 * HOUR)));
        assert_eq!(at("wait", true), Due::default());
        let late = hourly("one", "wait", 0).due(Some(6 * HOUR), false, 8 * HOUR + 5 * MINUTE);
        assert_eq!(late, due(&[8 * HOUR], None, Some(9 * HOUR)), "of those that waited, one");
    }

    #[test]
    fn intervals_count_from_their_beginning() {
        let definition = json!({ "kind": "interval", "every": 10_000, "missed": "all", "overlap": "allow" });
        let schedule = Schedule::of(&serde_json::from_value(definition).unwrap(), 3_000).unwrap().unwrap();
        assert_eq!(schedule.due(None, false, 3_000), due(&[], None, Some(13_000)));
        assert_eq!(schedule.due(None, false, 23_500), due(&[13_000, 23_000], None, Some(33_000)));
        let year = schedule.due(None, false, 365 * 24 * HOUR);
        assert_eq!(year.fire.len(), limit::MISSED_RUNS_MAX);
    }

    #[test]
    fn policies_that_contradict_are_refused() {
        for (missed, overlap) in [("all", "skip"), ("all", "wait"), ("skip", "wait")] {
            let definition =
                json!({ "kind": "interval", "every": 1000, "missed": missed, "overlap": overlap });
            assert!(Schedule::of(&serde_json::from_value(definition).unwrap(), 0).is_err());
        }
    }
}
