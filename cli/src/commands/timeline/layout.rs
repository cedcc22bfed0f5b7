//! Which bar of a timeline goes where.
//!
//! Promises: bars of one lane do not overlap, unless both are too short to be seen; every attempt is in a bar or among those that are
//! counted as not shown.

use std::collections::BTreeMap;

use fanfold_client::rest::{GraphTask, GraphView, RunView};
use fanfold_protocol::{ExecutorId, TaskId};

use crate::commands::entry;

/// Lanes of all executors that are drawn: a picture some screens high. Attempts in further ones are counted.
const LANES_MAX: usize = 600;
/// What cannot be told apart in a picture: attempts shorter than this share of the time are drawn as one bar where they follow each
/// other in a lane, within as much.
const FINEST: f64 = 1.0 / 2800.0;

/// Where everything goes. Times are milliseconds from the job's acceptance.
#[derive(Debug)]
pub struct Layout {
    /// How long the picture is, over 0.
    pub length_ms: u64,
    /// Names of the stages, in the order of their first task.
    pub stages: Vec<String>,
    /// By executor.
    pub executors: Vec<Lanes>,
    /// Attempts there were.
    pub attempts: usize,
    /// Attempts that are not drawn, for want of lanes.
    pub hidden: usize,
    /// The gateway did not tell of all tasks.
    pub truncated: bool,
}

/// What ran on one executor.
#[derive(Debug)]
pub struct Lanes {
    /// None: it is not known which.
    pub executor: Option<ExecutorId>,
    /// Bars of each lane, in the order of time.
    pub lanes: Vec<Vec<Bar>>,
}

/// One attempt, or several too short to be told apart.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    pub begin_ms: u64,
    pub end_ms: u64,
    /// A place in the list of stages.
    pub stage: usize,
    /// The (first) attempt's task.
    pub task: TaskId,
    /// And its number.
    pub attempt: u32,
    pub outcome: Outcome,
    /// How many attempts.
    pub count: usize,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Committed,
    Running,
    /// It failed, was lost or was stopped: what it did was for nothing.
    Wasted,
}

/// Puts a job's attempts into lanes. `begin_ms`, `end_ms`: Unix times of its acceptance and its end, or now.
pub fn lay_out(graph: &GraphView, begin_ms: u64, end_ms: u64) -> Layout {
    let mut stages = Vec::new();
    let mut by_executor: BTreeMap<(bool, Option<ExecutorId>), Vec<Bar>> = BTreeMap::new();
    let mut length_ms = end_ms.saturating_sub(begin_ms).max(1);
    let mut attempts = 0;
    for task in &graph.tasks {
        let name = entry(&task.entry);
        let stage = stages.iter().rposition(|known| known == name).unwrap_or_else(|| {
            stages.push(name.to_owned());
            stages.len() - 1
        });
        for run in runs(task) {
            let bar = bar(task, &run, stage, begin_ms, end_ms);
            length_ms = length_ms.max(bar.end_ms);
            attempts += 1;
            // Those whose executor is not known come last.
            by_executor.entry((run.executor.is_none(), run.executor)).or_default().push(bar);
        }
    }
    let finest_ms = (length_ms as f64 * FINEST) as u64;
    let mut room = LANES_MAX;
    let mut hidden = 0;
    let lay = |((_, executor), bars)| {
        let (lanes, left_out) = pack(bars, room);
        (room, hidden) = (room - lanes.len(), hidden + left_out);
        Lanes { executor, lanes: lanes.into_iter().map(|lane| joined(lane, finest_ms)).collect() }
    };
    let executors = by_executor.into_iter().map(lay).collect();
    Layout { length_ms, stages, executors, attempts, hidden, truncated: graph.truncated }
}

/// A task's attempts; of a task of which only its first beginning and its end are known, one.
fn runs(task: &GraphTask) -> Vec<RunView> {
    match task.started_at_ms {
        Some(started_at_ms) if task.runs.is_empty() => vec![RunView {
            attempt: task.attempts,
            executor: task.executor,
            started_at_ms,
            ended_at_ms: task.ended_at_ms,
            committed: task.state == "committed",
        }],
        _ => task.runs.clone(),
    }
}

fn bar(task: &GraphTask, run: &RunView, stage: usize, begin_ms: u64, end_ms: u64) -> Bar {
    let outcome = match run.ended_at_ms {
        _ if run.committed => Outcome::Committed,
        None => Outcome::Running,
        Some(_) => Outcome::Wasted,
    };
    let from = run.started_at_ms.saturating_sub(begin_ms);
    let to = run.ended_at_ms.unwrap_or(end_ms).saturating_sub(begin_ms).max(from);
    Bar { begin_ms: from, end_ms: to, stage, task: task.id, attempt: run.attempt, outcome, count: 1 }
}

/// Puts bars into as few lanes as there were attempts at once, at most `room`. Returns how many had none.
fn pack(mut bars: Vec<Bar>, room: usize) -> (Vec<Vec<Bar>>, usize) {
    bars.sort_by_key(|bar| (bar.begin_ms, bar.end_ms));
    let mut lanes: Vec<Vec<Bar>> = Vec::new();
    let mut hidden = 0;
    for bar in bars {
        let is_free = |lane: &Vec<Bar>| lane.last().is_none_or(|last| last.end_ms <= bar.begin_ms);
        match lanes.iter().position(is_free) {
            Some(free) => lanes[free].push(bar),
            None if lanes.len() < room => lanes.push(vec![bar]),
            None => hidden += 1,
        }
    }
    (lanes, hidden)
}

/// Makes one bar of short ones of one stage that follow each other closely. What was for nothing stays by itself.
fn joined(lane: Vec<Bar>, finest_ms: u64) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for bar in lane {
        let is_short = |bar: &Bar| bar.end_ms - bar.begin_ms < finest_ms && bar.outcome == Outcome::Committed;
        match bars.last_mut() {
            Some(last)
                if last.stage == bar.stage
                    && is_short(last)
                    && is_short(&bar)
                    && bar.end_ms - last.begin_ms <= finest_ms =>
            {
                (last.end_ms, last.count) = (bar.end_ms, last.count + 1);
            }
            _ => bars.push(bar),
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(attempt: u32, executor: u64, from: u64, to: Option<u64>, committed: bool) -> RunView {
        let executor = Some(ExecutorId(executor));
        RunView {
            attempt,
            executor,
            started_at_ms: 1000 + from,
            ended_at_ms: to.map(|to| 1000 + to),
            committed,
        }
    }

    fn task(n: u32, entry: &str, runs: Vec<RunView>) -> GraphTask {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        GraphTask {
            id: TaskId(id),
            parent: None,
            entry: entry.into(),
            version: None,
            state: "committed".into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attempts: runs.len() as u32,
            executor: None,
            started_at_ms: None,
            ended_at_ms: None,
            output_bytes: 0,
            runs,
        }
    }

    /// Begin and end of each bar, by lane.
    type Shown = Vec<Vec<(u64, u64)>>;

    fn shown(layout: &Layout) -> Vec<(Option<u64>, Shown)> {
        let times = |lane: &Vec<Bar>| lane.iter().map(|bar| (bar.begin_ms, bar.end_ms)).collect();
        let lanes = |lanes: &Lanes| {
            (lanes.executor.map(|executor| executor.0), lanes.lanes.iter().map(times).collect())
        };
        layout.executors.iter().map(lanes).collect()
    }

    #[test]
    fn attempts_are_packed_by_executor_and_overlap_in_lanes_of_their_own() {
        let tasks = vec![
            task(1, "", vec![run(1, 7, 0, None, false)]),
            task(2, "step#map", vec![run(1, 7, 10, Some(40), true)]),
            task(3, "step#map", vec![run(1, 7, 40, Some(60), true)]),
            // Lost with its executor, and run again beside a backup that came too late.
            task(
                4,
                "reduce",
                vec![
                    run(1, 3, 20, Some(30), false),
                    run(2, 7, 50, Some(90), true),
                    run(3, 3, 70, Some(90), false),
                ],
            ),
        ];
        let layout = lay_out(&GraphView { tasks, truncated: false }, 1000, 1100);
        assert_eq!(layout.stages, ["main", "map", "reduce"]);
        assert_eq!((layout.attempts, layout.hidden, layout.length_ms), (6, 0, 100));
        let expected = vec![
            (Some(3), vec![vec![(20, 30), (70, 90)]]),
            (Some(7), vec![vec![(0, 100)], vec![(10, 40), (40, 60)], vec![(50, 90)]]),
        ];
        assert_eq!(shown(&layout), expected);
        let outcome = |executor: usize, lane: usize| layout.executors[executor].lanes[lane][0].outcome;
        assert_eq!(
            [outcome(0, 0), outcome(1, 0), outcome(1, 2)],
            [Outcome::Wasted, Outcome::Running, Outcome::Committed]
        );
    }

    /// A hundred thousand attempts of two milliseconds on ten slots, of which three failed.
    #[test]
    fn a_large_job_is_a_picture_of_bounded_size_that_shows_what_failed() {
        let runs = (0..100_000u64).map(|n| {
            let from = n / 10 * 2;
            task(n as u32, "map", vec![run(1, 1, from, Some(from + 2), n % 40_000 != 7)])
        });
        let layout = lay_out(&GraphView { tasks: runs.collect(), truncated: false }, 1000, 21_000);
        let bars: Vec<_> = layout.executors[0].lanes.iter().flatten().collect();
        assert_eq!(layout.executors[0].lanes.len(), 10);
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<usize>(), 100_000);
        assert!(bars.len() <= 10 * 2 * 2800 + 6, "{} bars", bars.len());
        assert_eq!(bars.iter().filter(|bar| bar.outcome == Outcome::Wasted).count(), 3);
    }

    #[test]
    fn what_has_no_lane_is_counted() {
        let many = (0..1000).map(|n| task(n, "map", vec![run(1, u64::from(n % 3), 0, Some(50), true)]));
        let layout = lay_out(&GraphView { tasks: many.collect(), truncated: true }, 1000, 1050);
        let drawn: usize = layout.executors.iter().map(|lanes| lanes.lanes.len()).sum();
        assert_eq!((drawn, layout.hidden, layout.attempts), (LANES_MAX, 1000 - LANES_MAX, 1000));
    }
}
