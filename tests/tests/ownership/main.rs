//! Ownership of a shard, fencing and commits as an exhaustive model: every order of steps within bounds, searched for one
//! that loses or doubles something. `docs/ownership-model.md` says what is modelled and what is not.
//!
//! Each rule is also taken away once: a search that does not notice would prove nothing.

mod properties;
mod protocol;
mod state;

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model as _};

use properties::{IN_THE_LOG, NOTHING_MISSING, OWN_TOKENS};
use protocol::{ALL_RULES, Journal, Rules};

/// Two owners, three tasks, and a stale owner that wakes after a day.
const WIDE: Journal = Journal {
    rules: ALL_RULES,
    owners: 2,
    tasks: 3,
    epochs: 2,
    attempts: 1,
    segments: 4,
    checkpoints: 2,
    days: 1,
    crashes: 0,
};
/// More attempts.
const RETRIED: Journal = Journal { tasks: 2, attempts: 2, ..WIDE };
/// Three owners, so that one may sleep while it opens and another while it writes; and crashes.
const TAKEN_OVER: Journal = Journal { owners: 3, tasks: 1, epochs: 3, segments: 6, crashes: 1, ..WIDE };
/// Two takeovers and two collections.
const LONG: Journal =
    Journal { owners: 2, tasks: 1, epochs: 3, segments: 6, checkpoints: 3, days: 2, ..WIDE };
/// The least world in which each planted bug shows.
const SMALL: Journal = Journal { tasks: 1, segments: 5, ..WIDE };

fn holds(name: &str, journal: Journal) {
    let begin = Instant::now();
    let checker = journal.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, up to {depth} steps deep, in {:.1?}", begin.elapsed());
    checker.assert_properties();
}

/// With a rule taken away there is a counterexample to `property`.
fn breaks(rules: Rules, property: &'static str) {
    let journal = Journal { rules, ..SMALL };
    let checker = journal.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let path = checker.assert_any_discovery(property);
    println!("{rules:?}: {property} breaks by {:?}", path.into_actions());
}

#[test]
fn two_owners_and_three_tasks_lose_nothing() {
    holds("two owners, three tasks", WIDE);
}

#[test]
fn retries_lose_nothing() {
    holds("two owners, two tasks, two attempts each", RETRIED);
}

#[test]
fn takeovers_and_long_pauses_lose_nothing() {
    holds("three owners, three epochs, a crash", TAKEN_OVER);
    holds("two owners, three epochs, two days", LONG);
}

#[test]
fn each_rule_is_needed() {
    breaks(Rules { fence: false, ..ALL_RULES }, NOTHING_MISSING);
    breaks(Rules { ask_after_silence: false, ..ALL_RULES }, IN_THE_LOG);
    breaks(Rules { open_in_time: false, ..ALL_RULES }, IN_THE_LOG);
    breaks(Rules { tokens: false, ..ALL_RULES }, OWN_TOKENS);
}
