//! `fanfold top`: executors, queues and jobs as one gateway sees them, again and again.

use std::{fmt::Write as _, time::Duration};

use console::Term;
use fanfold_client::{
    Client,
    rest::{ClusterView, ExecutorState, ExecutorView, JobView, WaitView},
};

use crate::{
    commands::job_view,
    failure::Failure,
    output::Output,
    table::{Table, left, printable, right},
    units,
};

/// Jobs shown where nobody says how high the screen is.
const JOBS_SHOWN: usize = 20;
/// Lines about jobs that are shown on the smallest screen.
const JOBS_SHOWN_MIN: usize = 3;

/// `top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show it once instead of again and again
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

/// Runs it, until it is interrupted.
pub async fn run(client: &Client, args: &Args, out: Output) -> Result<(), Failure> {
    let term = Term::stdout();
    // A program and a file get one look after the other.
    let redraws = !args.once && !out.json && term.is_term();
    let mut tick = tokio::time::interval(Duration::from_secs(args.interval));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let view = client.executors().await?;
        match (out.json, redraws) {
            (true, _) => out.json(&view)?,
            (false, false) => out.text(screen(&view, JOBS_SHOWN))?,
            (false, true) => redraw(&term, &view).map_err(Failure::stdout)?,
        }
        if args.once {
            return Ok(());
        }
    }
}

/// Draws over the last screen, line by line, so that nothing flickers.
fn redraw(term: &Term, view: &ClusterView) -> std::io::Result<()> {
    let (rows, columns) = term.size();
    let (rows, columns) = (usize::from(rows).max(2), usize::from(columns).max(20));
    let others = screen(view, 0).lines().count() + 3;
    let text = screen(view, rows.saturating_sub(others).max(JOBS_SHOWN_MIN));
    let mut frame = String::from("\x1b[H");
    for line in text.lines().take(rows - 1) {
        frame.extend(line.chars().take(columns));
        frame.push_str("\x1b[K\n");
    }
    frame.push_str("\x1b[J");
    term.write_str(&frame)?;
    term.flush()
}

fn screen(view: &ClusterView, jobs: usize) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", head(view));
    if let Some(error) = &view.journal_error {
        let _ = writeln!(text, "nothing is acknowledged: {}", printable(&error.message));
    }
    let _ = write!(text, "\n{}", executors(&view.executors));
    if !view.queues.is_empty() {
        let _ = write!(text, "\n{}", queues(view));
    }
    if !view.waiting.is_empty() {
        let _ = write!(text, "\n{}", waiting(&view.waiting));
    }
    if !view.jobs.is_empty() && jobs > 0 {
        let _ = write!(text, "\n{}", job_table(&view.jobs, jobs));
    }
    text
}

fn head(view: &ClusterView) -> String {
    let sum = |of: fn(&ExecutorView) -> u64| view.executors.iter().map(of).sum::<u64>();
    format!(
        "{}: {} of {} cpus, {} of {} in use; {} running, {} waiting",
        units::count(view.executors.len() as u64, "executor"),
        cpus(sum(|e| u64::from(e.cpu_millis_used))),
        cpus(sum(|e| u64::from(e.cpu_millis))),
        units::bytes(sum(|e| e.memory_used)),
        units::bytes(sum(|e| e.memory)),
        units::count(view.jobs_running, "job"),
        view.jobs_waiting,
    )
}

fn executors(executors: &[ExecutorView]) -> String {
    if executors.is_empty() {
        return "no executor has joined: start one with `fanfold executor`\n".to_owned();
    }
    let columns = [
        left("EXECUTOR"),
        left("NAME"),
        left("LINK"),
        right("CPUS"),
        right("MEMORY"),
        right("GPUS"),
        right("ATTEMPTS"),
        left("JOINED"),
        left("PEER"),
        left("ADAPTER"),
    ];
    let mut table = Table::new(columns);
    for executor in executors {
        table.row([
            executor.id.to_string(),
            executor.name.clone(),
            link(executor),
            format!("{}/{}", cpus(executor.cpu_millis_used.into()), cpus(executor.cpu_millis.into())),
            format!("{}/{}", units::bytes(executor.memory_used), units::bytes(executor.memory)),
            format!("{}/{}", executor.gpu_used, executor.gpu),
            executor.attempts.to_string(),
            units::ago(executor.joined_at_ms),
            executor.peer.clone().unwrap_or_default(),
            adapter(executor),
        ]);
    }
    table.to_string()
}

fn adapter(executor: &ExecutorView) -> String {
    match &executor.adapter {
        Some(name) => name.clone(),
        None if executor.gpu > 0 => "none found".to_owned(),
        None => String::new(),
    }
}

fn link(executor: &ExecutorView) -> String {
    match (executor.state, executor.unsent) {
        (ExecutorState::Leaving, _) => "leaving".to_owned(),
        (ExecutorState::Up, 0) => "up".to_owned(),
        (ExecutorState::Up, unsent) => format!("up, {unsent} unsent"),
    }
}

fn queues(view: &ClusterView) -> Table {
    let mut table = Table::new([left("FUNCTION"), right("RUNNING"), right("MAX"), right("WAITING")]);
    for queue in &view.queues {
        let counts = [queue.running, queue.max, queue.waiting].map(|n| n.to_string());
        table.row([queue.function.to_string()].into_iter().chain(counts));
    }
    table
}

fn waiting(classes: &[WaitView]) -> Table {
    let columns = [
        right("RUNNABLE TASKS"),
        right("OF JOBS"),
        right("CPUS"),
        right("MEMORY"),
        right("GPUS"),
        left("EACH"),
    ];
    let mut table = Table::new(columns);
    for class in classes {
        table.row([
            class.tasks.to_string(),
            class.jobs.to_string(),
            cpus(class.cpu_millis.into()),
            units::bytes(class.memory),
            class.gpu.to_string(),
            class.reason.clone(),
        ]);
    }
    table
}

fn job_table(jobs: &[JobView], most: usize) -> String {
    let columns = [
        left("JOB"),
        left("FUNCTION"),
        left("STATE"),
        right("TASKS"),
        right("RUNNING"),
        right("RETRIES"),
        right("AGE"),
        left(""),
    ];
    let mut table = Table::new(columns);
    for job in jobs.iter().take(most) {
        let progress = &job.progress;
        table.row([
            job.id.to_string(),
            job.function.to_string(),
            job_view::state(job.state).to_owned(),
            format!("{}/{}", progress.finished, progress.tasks),
            progress.running.to_string(),
            progress.retries.to_string(),
            units::duration(job_view::age(job)),
            job.waiting_for.clone(),
        ]);
    }
    let rest = jobs.len().saturating_sub(most);
    let more = if rest > 0 { format!("and {rest} more\n") } else { String::new() };
    format!("{table}{more}")
}

fn cpus(millis: u64) -> String {
    (millis as f64 / 1000.0).to_string()
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::ExecutorId;

    use super::*;

    #[test]
    fn a_screen_says_who_works_and_what_waits() {
        let executor = ExecutorView {
            id: ExecutorId(3),
            name: "box".into(),
            state: ExecutorState::Up,
            peer: Some("10.0.0.1:7071".into()),
            joined_at_ms: units::now_ms(),
            cpu_millis: 2000,
            cpu_millis_used: 1500,
            memory: 4 << 30,
            memory_used: 1 << 30,
            gpu: 1,
            gpu_used: 0,
            adapter: Some("llvmpipe".into()),
            attempts: 2,
            unsent: 7,
        };
        let wait = WaitView {
            tasks: 40,
            jobs: 1,
            cpu_millis: 1000,
            memory: 128 << 20,
            gpu: 0,
            reason: "waits for 1 cpu to be free".into(),
        };
        let view = ClusterView {
            executors: vec![executor],
            waiting: vec![wait],
            jobs_running: 1,
            ..ClusterView::default()
        };
        let wanted = "\
1 executor: 1.5 of 2 cpus, 1 GiB of 4 GiB in use; 1 job running, 0 waiting

EXECUTOR  NAME  LINK           CPUS       MEMORY  GPUS  ATTEMPTS  JOINED    PEER           ADAPTER
e3        box   up, 7 unsent  1.5/2  1 GiB/4 GiB   0/1         2  just now  10.0.0.1:7071  llvmpipe

RUNNABLE TASKS  OF JOBS  CPUS   MEMORY  GPUS  EACH
            40        1     1  128 MiB     0  waits for 1 cpu to be free
";
        assert_eq!(screen(&view, 5), wanted);
    }
}
