//! The scheduler under the simulator of `fanfold_tests::sim`: thousands of seeds, and the simulator's own determinism.
//!
//! `FANFOLD_SEED=17 cargo nextest run --release -p fanfold-tests --test simulation --no-capture one_seed` replays one
//! seed and prints everything that happened.

use std::collections::BTreeMap;

use fanfold_tests::sim;

/// About five seconds of one core, in release.
const SEEDS: u64 = 5000;

/// Branches that are seldom taken. One that no seed reaches is not tested by this, and the test says so.
const SOMETIMES: &[&str] = &[
    "a committed task ran again",
    "a backup finished first",
    "a backup was started",
    "a backup was stopped",
    "a copy came back and counted again",
    "a copy came back that nobody knew any more",
    "a copy could not be read",
    "a copy rotted",
    "a gateway started from a journal",
    "a deadline passed",
    "a generator was held back",
    "a job was cancelled",
    "a job went on with what had been committed",
    "a late result was fenced",
    "a lie was found out",
    "a link broke",
    "a new owner took over a copy",
    "a message came late, for a former owner or link",
    "a message came twice",
    "a partition was lost for good",
    "a replay wanted what it had been told of and was given up",
    "a replay was told of what was given up",
    "a root was tried again",
    "a run lost nothing",
    "a short answer was given again to a replay",
    "a timed-out wait was recorded",
    "a wait timed out",
    "an attempt was handed back",
    "an attempt was started anew for what it had made",
    "an executor died",
    "an executor drained and left",
    "an executor joined with what it had",
    "an executor offered less",
    "an object was removed by the owner",
    "an orphan was cancelled",
    "memory was doubled",
    "one of two attempts was lost with its executor",
    "out of memory",
];

#[test]
fn many_seeds() {
    let first: u64 = number("FANFOLD_SEEDS_FROM").unwrap_or(0);
    let count: u64 = number("FANFOLD_SEEDS").unwrap_or(SEEDS);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut happenings = 0;
    for seed in first..first + count {
        let report = sim::run(seed, false);
        happenings += report.happenings;
        report.seen.iter().for_each(|(what, times)| *seen.entry(what).or_default() += times);
        if let Some(what) = report.violations.first() {
            failures.push(format!("seed {seed}: {what}\n    {}", command(seed)));
        }
    }
    println!("{count} seeds, {happenings} happenings: {seen:#?}");
    assert!(
        failures.is_empty(),
        "{} seeds fail:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
    let never: Vec<&&str> = SOMETIMES.iter().filter(|what| !seen.contains_key(**what)).collect();
    assert!(never.is_empty() || count < SEEDS, "no seed reached: {never:#?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in (0..SEEDS).step_by(50) {
        let (first, second) = (sim::run(seed, false), sim::run(seed, false));
        assert_eq!(first.hash, second.hash, "seed {seed} gave two different runs");
        assert_eq!(first.seen, second.seen, "seed {seed} reached different branches");
    }
    assert_ne!(sim::run(1, false).hash, sim::run(2, false).hash, "the hash says nothing");
}

#[test]
fn one_seed() {
    let Some(seed) = number("FANFOLD_SEED") else { return };
    let report = sim::run(seed, true);
    assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations);
}

fn command(seed: u64) -> String {
    format!(
        "FANFOLD_SEED={seed} cargo nextest run --release -p fanfold-tests --test simulation --no-capture one_seed"
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
