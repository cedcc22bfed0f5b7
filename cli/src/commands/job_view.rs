//! How jobs look: lists, details, graphs and bills.

use std::{collections::BTreeMap, time::Duration};

use fanfold_client::rest::{Charge, CostView, GraphTask, GraphView, JobView, State};
use serde::Serialize;

use crate::{
    commands::{job_status, job_watch},
    progress,
    table::{Table, left, printable, right},
    units,
};

/// A state's name.
pub fn state(state: State) -> &'static str {
    match state {
        State::Queued => "queued",
        State::Running => "running",
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::Cancelled => "cancelled",
    }
}

/// `job ls`.
pub fn listing(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs".to_owned();
    }
    let columns = [
        left("ID"),
        left("FUNCTION"),
        left("STATE"),
        right("TASKS"),
        left("ACCEPTED"),
        right("TIME"),
        left(""),
    ];
    let mut table = Table::new(columns);
    for job in jobs {
        table.row([
            job.id.to_string(),
            job.function.to_string(),
            state(job.state).to_owned(),
            format!("{}/{}", job.progress.finished, job.progress.tasks),
            units::ago(job.accepted_at_ms),
            units::duration(age(job)),
            job.error.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// From its acceptance to its end, or until now.
pub fn age(job: &JobView) -> Duration {
    let end = job.ended_at_ms.unwrap_or_else(units::now_ms);
    Duration::from_millis(end.saturating_sub(job.accepted_at_ms))
}

/// One line at the end of a job.
pub fn summary(job: &JobView) -> String {
    let what = progress::describe(job);
    let what = if what.is_empty() { what } else { format!(" ({what})") };
    let time = age(job);
    let rate = match job.progress.bytes_read {
        0 => String::new(),
        bytes => format!(", {}", units::rate(bytes, time)),
    };
    format!(
        "{} after {}: {}{what}{rate}",
        state(job.state),
        units::duration(time),
        units::count(job.progress.tasks, "task")
    )
}

/// `job show`.
pub fn details(job: &JobView) -> String {
    let usage = &job.usage;
    let mut rows = vec![
        ("id", job.id.to_string()),
        ("function", format!("{}:{}", job.function, job.version.short())),
        ("state", state(job.state).to_owned()),
        ("accepted", units::ago(job.accepted_at_ms)),
        ("time", units::duration(age(job))),
        ("attempts", job.attempts.to_string()),
        (
            "tasks",
            format!(
                "{} of {} finished, {} running",
                job.progress.finished, job.progress.tasks, job.progress.running
            ),
        ),
        ("retries", job.progress.retries.to_string()),
        ("computing", units::duration_us(usage.cpu_us)),
        ("peak memory", units::bytes(usage.memory_peak)),
        ("read", units::bytes(job.progress.bytes_read)),
        ("written", units::bytes(job.progress.bytes_written)),
    ];
    if let Some(bytes) = job.output_bytes {
        rows.push(("output", units::bytes(bytes)));
    }
    if let Some(error) = &job.error {
        rows.push(("error", format!("{} ({})", printable(&error.message), error.kind.name())));
    }
    if !job.waiting_for.is_empty() {
        rows.push(("waiting", job.waiting_for.clone()));
    }
    let head = rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect::<String>();
    let named = job.progress.stages.iter().any(|(name, _)| !name.is_empty());
    let stages = if named { format!("{head}\n{}", stages_of(job)) } else { head };
    match job_status::table(job) {
        Some(said) => format!("{stages}\n{said}"),
        None => stages,
    }
}

fn stages_of(job: &JobView) -> Table {
    let columns = [
        left("STAGE"),
        right("TASKS"),
        right("FINISHED"),
        right("RUNNING"),
        right("WAITING"),
        right("FAILED"),
        right("RETRIES"),
        right("READ"),
        right("WRITTEN"),
        right("TIME"),
    ];
    let mut table = Table::new(columns);
    for (name, stage) in job_watch::in_order(job) {
        let counts = [stage.tasks, stage.finished, stage.running, stage.waiting, stage.failed, stage.retries];
        let time = job_watch::elapsed(stage, job.state, units::now_ms()).map(units::duration);
        let moved = [stage.bytes_read, stage.bytes_written].map(units::bytes);
        let cells = counts.map(|n| n.to_string()).into_iter().chain(moved).chain([time.unwrap_or_default()]);
        table.row([entry(name).to_owned()].into_iter().chain(cells));
    }
    table
}

/// A stage's name: its entry's label, or its entry.
pub fn entry(name: &str) -> &str {
    match name.split_once('#') {
        Some((_, label)) => label,
        None if name.is_empty() => "main",
        None => name,
    }
}

/// `job show --cost`.
pub fn bill(cost: &CostView) -> String {
    let mut table = Table::new([left("WHAT"), right("QUANTITY"), right("PRICE"), right("AMOUNT")]);
    let requests = &cost.requests;
    let lines: [(&str, &Charge); 12] = [
        ("cpu seconds", &cost.cpu_seconds),
        ("GB hours", &cost.gb_hours),
        ("requests", &requests.all),
        ("  get", &requests.get),
        ("  head", &requests.head),
        ("  put", &requests.put),
        ("  part", &requests.part),
        ("  list", &requests.list),
        ("  delete", &requests.delete),
        ("GB in", &cost.gb_in),
        ("GB out", &cost.gb_out),
        ("GB months", &cost.stored_gb_months),
    ];
    for (what, Charge { quantity, price, amount }) in lines {
        let quantity = if quantity.fract() == 0.0 { quantity.to_string() } else { format!("{quantity:.6}") };
        table.row([what.to_owned(), quantity, format!("{price:.3e}"), format!("{amount:.6}")]);
    }
    let until = if cost.complete { "" } else { " so far" };
    format!("{table}\ntotal {:.6} {}{until}", cost.total, cost.currency)
}

/// A stage of a graph: all tasks of one entry.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct StageSum {
    /// The entry.
    entry: String,
    /// Its tasks.
    tasks: u64,
    /// References from its tasks to those they take outputs of.
    edges: u64,
    /// Attempts of its tasks.
    attempts: u64,
    /// Bytes its tasks made.
    output_bytes: u64,
    /// State to number of tasks.
    states: BTreeMap<String, u64>,
}

/// `job graph --summary`: stages in the order of their first task.
pub fn stages(graph: &GraphView) -> Vec<StageSum> {
    let mut stages: Vec<StageSum> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for task in &graph.tasks {
        let place = *places.entry(&task.entry).or_insert_with(|| {
            stages.push(StageSum { entry: entry(&task.entry).to_owned(), ..StageSum::default() });
            stages.len() - 1
        });
        add(&mut stages[place], task);
    }
    stages
}

fn add(stage: &mut StageSum, task: &GraphTask) {
    stage.tasks += 1;
    stage.edges += task.inputs.len() as u64;
    stage.attempts += u64::from(task.attempts);
    stage.output_bytes += task.output_bytes;
    *stage.states.entry(task.state.clone()).or_default() += 1;
}

/// The same as a table.
pub fn stages_table(graph: &GraphView) -> String {
    let columns =
        [left("STAGE"), right("TASKS"), right("INPUTS"), right("ATTEMPTS"), right("OUTPUT"), left("STATES")];
    let mut table = Table::new(columns);
    let stages = stages(graph);
    for stage in &stages {
        let states = stage.states.iter().map(|(state, n)| format!("{n} {state}"));
        table.row([
            stage.entry.clone(),
            stage.tasks.to_string(),
            stage.edges.to_string(),
            stage.attempts.to_string(),
            units::bytes(stage.output_bytes),
            states.collect::<Vec<_>>().join(", "),
        ]);
    }
    let edges: u64 = stages.iter().map(|stage| stage.edges).sum();
    let more = if graph.truncated { " of more" } else { "" };
    format!(
        "{table}\n{}{more}, {} between them\n",
        units::count(graph.tasks.len() as u64, "task"),
        units::count(edges, "reference")
    )
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{PartitionId, TaskId};

    use super::*;

    #[test]
    fn a_graph_is_summed_by_stage() {
        let task = |n: u8, entry: &str, inputs: &[u8]| GraphTask {
            id: TaskId([n; 16]),
            parent: None,
            entry: entry.into(),
            state: "committed".into(),
            inputs: inputs.iter().map(|n| PartitionId { task: TaskId([*n; 16]), output: 0 }).collect(),
            version: None,
            outputs: Vec::new(),
            attempts: 1,
            executor: None,
            started_at_ms: None,
            ended_at_ms: None,
            output_bytes: 512,
            runs: Vec::new(),
        };
        let tasks =
            vec![task(1, "", &[]), task(2, "map", &[]), task(3, "map", &[]), task(4, "merge", &[2, 3])];
        let text = stages_table(&GraphView { tasks, truncated: false });
        let wanted = "\
STAGE  TASKS  INPUTS  ATTEMPTS  OUTPUT  STATES
main       1       0         1   512 B  1 committed
map        2       0         2   1 KiB  2 committed
merge      1       2         1   512 B  1 committed

4 tasks, 2 references between them
";
        assert_eq!(text, wanted);
    }
}
