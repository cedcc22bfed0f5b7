//! `fanfold job graph`: a job's tasks as a table or as a graph for Graphviz.

use std::{fmt::Write as _, time::Duration};

use fanfold_client::rest::{GraphTask, GraphView};
use fanfold_protocol::TaskId;

use crate::{
    commands::job_view::entry,
    table::{Table, left, right},
    units,
};

/// How a graph is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// A table of tasks
    #[default]
    Text,
    /// For Graphviz: `fanfold job graph ID --format dot | dot -Tsvg`
    Dot,
    /// As the gateway gives it
    Json,
}

/// A table of tasks.
pub fn text(graph: &GraphView) -> String {
    let columns = [
        left("TASK"),
        left("ENTRY"),
        left("STATE"),
        right("ATTEMPTS"),
        left("EXECUTOR"),
        right("TIME"),
        right("INPUTS"),
        right("OUTPUTS"),
        right("BYTES"),
    ];
    let mut table = Table::new(columns);
    for task in &graph.tasks {
        table.row([
            task.id.to_string(),
            entry(&task.entry).to_owned(),
            task.state.clone(),
            task.attempts.to_string(),
            task.executor.map(|executor| executor.to_string()).unwrap_or_default(),
            time(task).map(units::duration).unwrap_or_default(),
            task.inputs.len().to_string(),
            task.outputs.len().to_string(),
            units::bytes(task.output_bytes),
        ]);
    }
    let rest = if graph.truncated { "there is more: not all tasks of this job are kept\n" } else { "" };
    format!("{table}{rest}")
}

/// From its first attempt to its end.
pub fn time(task: &GraphTask) -> Option<Duration> {
    Some(Duration::from_millis(task.ended_at_ms?.saturating_sub(task.started_at_ms?)))
}

/// A graph in the DOT language: solid arrows for data, dashed ones from a task to those it called.
pub fn dot(graph: &GraphView) -> String {
    let mut text = String::from("digraph job {\n  rankdir=LR;\n  node [shape=box, style=filled];\n");
    for task in &graph.tasks {
        let label =
            format!("{}\n{}\n{}", entry(&task.entry), short(task.id), units::bytes(task.output_bytes));
        line(
            &mut text,
            format_args!("\"{}\" [label={}, fillcolor={}]", task.id, quoted(&label), color(task)),
        );
    }
    for task in &graph.tasks {
        if let Some(parent) = task.parent {
            line(&mut text, format_args!("\"{parent}\" -> \"{}\" [style=dashed, color=gray]", task.id));
        }
        let mut from: Vec<TaskId> = task.inputs.iter().map(|input| input.task).collect();
        from.dedup();
        for maker in from {
            line(&mut text, format_args!("\"{maker}\" -> \"{}\"", task.id));
        }
    }
    if graph.truncated {
        text.push_str("  // there is more: not all tasks of this job are kept\n");
    }
    text.push_str("}\n");
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {what};");
}

fn short(task: TaskId) -> String {
    task.to_string().chars().take(12).collect()
}

fn color(task: &GraphTask) -> &'static str {
    match task.state.as_str() {
        "committed" => "palegreen",
        "failed" => "salmon",
        "running" => "lightskyblue",
        "blocked" => "lightyellow",
        _ => "white",
    }
}

/// A DOT string: entries are chosen by strangers.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push('\u{fffd}'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::PartitionId;

    use super::*;

    #[test]
    fn a_graph_for_graphviz_has_both_kinds_of_arrows_and_no_open_quotes() {
        let task = |n: u8, entry: &str, parent: Option<u8>, inputs: &[u8]| GraphTask {
            id: TaskId([n; 16]),
            parent: parent.map(|n| TaskId([n; 16])),
            entry: entry.into(),
            version: None,
            state: "committed".into(),
            inputs: inputs.iter().map(|n| PartitionId { task: TaskId([*n; 16]), output: 0 }).collect(),
            outputs: Vec::new(),
            attempts: 1,
            executor: None,
            started_at_ms: None,
            ended_at_ms: None,
            output_bytes: 512,
            runs: Vec::new(),
        };
        let tasks =
            vec![task(1, "", None, &[]), task(2, "a\"b\\", Some(1), &[]), task(3, "c", Some(1), &[2])];
        let text = dot(&GraphView { tasks, truncated: false });
        let id = |n: u8| TaskId([n; 16]).to_string();
        assert!(text.contains(&format!("\"{}\" -> \"{}\";", id(2), id(3))), "{text}");
        assert!(text.contains(&format!("\"{}\" -> \"{}\" [style=dashed", id(1), id(3))), "{text}");
        assert!(text.contains(r#"label="a\"b\\\n020202020202\n512 B""#), "{text}");
    }
}
