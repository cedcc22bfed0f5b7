//! Progress on stderr, where a person watches it; nothing elsewhere.

use std::time::Duration;

use fanfold_client::rest::{JobView, Stage};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{commands::entry, units};

/// Bytes on their way. `None` where the total is not known.
pub fn bytes(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}",
        ),
        None => (ProgressBar::no_length(), "{msg} {spinner} {binary_bytes} {binary_bytes_per_sec}"),
    };
    styled(bar, template).with_message(what.to_owned())
}

/// Something that takes a while and says nothing about how long.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = styled(ProgressBar::no_length(), "{spinner} {msg} {elapsed}").with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Where a job as a whole stands, for `age` already.
pub fn job(age: Duration) -> ProgressBar {
    let bar = styled(ProgressBar::no_length(), "{spinner} {prefix} {elapsed} {wide_msg}").with_elapsed(age);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// One stage of a job.
pub fn stage_bar(name: &str) -> ProgressBar {
    styled(ProgressBar::new(1), "  {prefix:12} [{bar:24}] {pos}/{len} {wide_msg}")
        .with_prefix(name.to_owned())
}

/// `map 12/40, reduce 0/8, 1.2 GiB read`, or what it waits for.
pub fn describe(view: &JobView) -> String {
    let progress = &view.progress;
    let mut parts: Vec<String> =
        progress.stages.iter().filter(|(name, _)| !name.is_empty()).map(stage).collect();
    if progress.bytes_read > 0 {
        parts.push(format!("{} read", units::bytes(progress.bytes_read)));
    }
    if progress.retries > 0 {
        parts.push(units::count(progress.retries, "retry"));
    }
    if !view.waiting_for.is_empty() && progress.running == 0 {
        parts.push(view.waiting_for.clone());
    }
    parts.join(", ")
}

fn stage((name, stage): (&String, &Stage)) -> String {
    format!("{} {}/{}", entry(name), stage.finished, stage.tasks)
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    // The templates above are constants; one that indicatif refuses would show as its default.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
