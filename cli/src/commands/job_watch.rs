//! A job while it runs, stage by stage: redrawn in place where a person watches, lines of text or JSON elsewhere.
//!
//! A stage is all tasks of one entry. What is left of one is guessed from how fast it went until now, over the tasks
//! that were called so far.

use std::{collections::BTreeMap, time::Duration};

use fanfold_client::{
    Invocation,
    rest::{JobView, Stage, State},
};
use futures::{StreamExt as _, TryStreamExt as _};
use indicatif::{MultiProgress, ProgressBar};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    commands::{job_status::Figures, job_view},
    failure::Failure,
    output::{Output, note},
    progress,
    table::printable,
    units,
};

/// Time between two lines about one stage.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a job may stand still before a line says what it waits for.
const STILL: Duration = Duration::from_secs(5);

/// How a job is shown while it runs.
pub enum Show {
    /// Nothing.
    Nothing,
    /// Bars on stderr, which is a terminal.
    Bars,
    /// Lines of text on stderr, where stdout is for the output.
    Notes,
    /// Lines of text on stdout.
    Lines,
    /// Every view as a line of JSON on stdout.
    Json,
}

/// Shows a job until it has ended. One that did not succeed is a failure.
pub async fn watch(invocation: &Invocation, show: Show, out: Output) -> Result<JobView, Failure> {
    let mut screen = Screen::new(show, out);
    let mut views = invocation.watch().boxed();
    let mut tick = interval(LINE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<JobView> = None;
    loop {
        tokio::select! {
            view = views.try_next() => match view? {
                Some(view) => screen.show(last.insert(view))?,
                None => break,
            },
            // Times go on while nothing changes.
            _ = tick.tick() => if let Some(view) = &last {
                screen.redraw(view);
                screen.still(view)?;
            },
        }
    }
    screen.clear();
    last.ok_or_else(|| Failure::new("the gateway told nothing of the job", "try again"))
}

/// Whether a watched job succeeded.
///
/// # Errors
/// Why it did not.
pub fn ended_well(invocation: &Invocation, view: &JobView) -> Result<(), Failure> {
    if view.state == State::Succeeded {
        return Ok(());
    }
    let unknown = || {
        let what = format!("the job is {}", job_view::state(view.state));
        Failure::new(what, "look at it with `fanfold job show`")
    };
    Err(invocation.outcome(view).err().map_or_else(unknown, Failure::from))
}

struct Screen {
    show: Show,
    out: Output,
    bars: MultiProgress,
    head: Option<ProgressBar>,
    stages: BTreeMap<String, Shown>,
    /// Since when nothing of the job runs, and whether a line has said so.
    still: Option<(Instant, bool)>,
}

/// What of a stage is on the screen.
struct Shown {
    bar: ProgressBar,
    /// The last line, and when.
    line: Option<(Stage, Instant)>,
}

impl Screen {
    fn new(show: Show, out: Output) -> Self {
        Self { show, out, bars: MultiProgress::new(), head: None, stages: BTreeMap::new(), still: None }
    }

    fn show(&mut self, view: &JobView) -> Result<(), Failure> {
        match self.show {
            Show::Bars => {
                self.redraw(view);
                Ok(())
            }
            Show::Nothing => Ok(()),
            Show::Notes | Show::Lines => self.lines(view),
            Show::Json => self.out.json(view),
        }
    }

    fn redraw(&mut self, view: &JobView) {
        if !matches!(self.show, Show::Bars) {
            return;
        }
        let now_ms = units::now_ms();
        let figures = Figures::of(view);
        let bars = &self.bars;
        let head = self.head.get_or_insert_with(|| {
            let age = Duration::from_millis(now_ms.saturating_sub(view.accepted_at_ms));
            bars.add(progress::job(age))
        });
        head.set_prefix(format!("{} {}", view.function, job_view::state(view.state)));
        let summary = figures.as_ref().map(|figures| &*figures.summary).unwrap_or_default();
        let parts: Vec<&str> =
            [summary, &view.waiting_for].into_iter().filter(|part| !part.is_empty()).collect();
        head.set_message(printable(&parts.join(", ")));
        for (name, stage) in in_order(view) {
            let shown = shown(&mut self.stages, &self.bars, name);
            shown.bar.set_length(stage.tasks.max(1));
            shown.bar.set_position(stage.finished);
            shown.bar.set_message(told(name, stage, view.state, now_ms, figures.as_ref()));
        }
    }

    /// A line for each stage that has changed, once a second at most until its end.
    fn lines(&mut self, view: &JobView) -> Result<(), Failure> {
        let is_still = !view.waiting_for.is_empty();
        self.still = is_still.then(|| self.still.unwrap_or((Instant::now(), false)));
        let now_ms = units::now_ms();
        let figures = Figures::of(view);
        for (name, stage) in in_order(view) {
            let shown = shown(&mut self.stages, &self.bars, name);
            let done = stage.finished == stage.tasks || view.state.ended();
            let due = match &shown.line {
                Some((last, at)) => last != stage && (done || at.elapsed() >= LINE_INTERVAL),
                None => true,
            };
            if due {
                shown.line = Some((stage.clone(), Instant::now()));
                let name = printable(job_view::entry(name));
                let what = told(&name, stage, view.state, now_ms, figures.as_ref());
                self.write(format!("{name:<12}  {}/{}  {what}", stage.finished, stage.tasks))?;
            }
        }
        Ok(())
    }

    /// A line on what the job waits for, once, when nothing of it has run for a while. Only where lines are written is that known.
    fn still(&mut self, view: &JobView) -> Result<(), Failure> {
        match &mut self.still {
            Some((since, said @ false)) if since.elapsed() >= STILL => *said = true,
            _ => return Ok(()),
        }
        self.write(format!("{:<12}  {}", "waiting", printable(&view.waiting_for)))
    }

    fn write(&self, line: String) -> Result<(), Failure> {
        match self.show {
            Show::Notes => note(line),
            _ => self.out.text(line)?,
        }
        Ok(())
    }

    fn clear(&self) {
        for shown in self.stages.values() {
            shown.bar.finish_and_clear();
        }
        if let Some(head) = &self.head {
            head.finish_and_clear();
        }
    }
}

fn shown<'a>(stages: &'a mut BTreeMap<String, Shown>, bars: &MultiProgress, name: &str) -> &'a mut Shown {
    stages.entry(name.to_owned()).or_insert_with(|| {
        let bar = progress::stage_bar(&printable(job_view::entry(name)));
        Shown { bar: bars.add(bar), line: None }
    })
}

/// Stages in the order in which they began.
pub fn in_order(view: &JobView) -> Vec<(&str, &Stage)> {
    let mut stages: Vec<_> =
        view.progress.stages.iter().map(|(name, stage)| (name.as_str(), stage)).collect();
    stages.sort_by_key(|(name, stage)| (stage.started_at_ms.unwrap_or(u64::MAX), !name.is_empty()));
    stages
}

/// What the platform counts of a stage, and what the job says of it.
fn told(name: &str, stage: &Stage, state: State, now_ms: u64, figures: Option<&Figures>) -> String {
    let said = figures.map(|figures| figures.describe(name, elapsed(stage, state, now_ms)));
    let counted = describe(stage, state, now_ms);
    match said.filter(|said| !said.is_empty()) {
        Some(said) => format!("{counted}; {}", printable(&said)),
        None => counted,
    }
}

/// `3 running, 5 waiting, 1 retry, 12 MiB read, 4.2 s, 6 s left`.
fn describe(stage: &Stage, state: State, now_ms: u64) -> String {
    let mut parts = Vec::new();
    let counts = [(stage.running, "running"), (stage.waiting, "waiting"), (stage.failed, "failed")];
    parts.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    if stage.reused > 0 {
        parts.push(format!("{} reused", stage.reused));
    }
    if stage.retries > 0 {
        parts.push(units::count(stage.retries, "retry"));
    }
    let moved = [(stage.bytes_read, "read"), (stage.bytes_written, "written")];
    parts
        .extend(moved.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", units::bytes(*n))));
    if let Some(time) = elapsed(stage, state, now_ms) {
        parts.push(units::duration(time));
    }
    if let Some(left) = left(stage, state, now_ms) {
        parts.push(format!("{} left", units::duration(left)));
    }
    parts.join(", ")
}

/// From the first attempt to the last task's end, or until now.
pub fn elapsed(stage: &Stage, state: State, now_ms: u64) -> Option<Duration> {
    let open = stage.finished < stage.tasks && !state.ended();
    let end_ms = if open { now_ms } else { stage.finished_at_ms? };
    Some(Duration::from_millis(end_ms.saturating_sub(stage.started_at_ms?)))
}

/// How long the rest takes if it goes on as until now.
fn left(stage: &Stage, state: State, now_ms: u64) -> Option<Duration> {
    let rest = stage.tasks.saturating_sub(stage.finished);
    if rest == 0 || stage.finished == 0 || state.ended() {
        return None;
    }
    let per_task = elapsed(stage, state, now_ms)?.as_secs_f64() / stage.finished as f64;
    // To the second: it is a guess.
    Some(Duration::from_secs((per_task * rest as f64).ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_described_with_what_is_left() {
        let stage = Stage {
            tasks: 100,
            finished: 25,
            running: 4,
            waiting: 71,
            retries: 2,
            bytes_read: 12 << 20,
            started_at_ms: Some(1_000),
            finished_at_ms: Some(5_900),
            ..Stage::default()
        };
        let text = describe(&stage, State::Running, 6_000);
        assert_eq!(text, "4 running, 71 waiting, 2 retries, 12 MiB read, 5 s, 15 s left");
        let done = Stage { finished: 100, running: 0, waiting: 0, retries: 0, bytes_read: 0, ..stage };
        assert_eq!(describe(&done, State::Running, 60_000), "4.9 s", "time stops with the last task");
    }
}
