//! The picture: time to the right, executors from top to bottom, a bar for each attempt, a colour for each stage.
//!
//! Names come from strangers: all text goes through [`escaped`].

use std::{fmt::Write as _, time::Duration};

use super::layout::{Bar, Lanes, Layout, Outcome};
use crate::units;

/// Colours of stages; further stages have the same again.
const COLORS: [&str; 10] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#9c755f", "#ff9da7", "#86bc86",
    "#8a8a8a",
];
/// Pixels. Bars are in the middle of the picture; executors' names are left of them, stages above.
const LEFT: f64 = 130.0;
const WIDTH: f64 = 1400.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 12.0;
const GAP: f64 = 10.0;
const LINE: f64 = 16.0;
/// Letters of a stage's name in the legend, and of an executor's in the margin: ids are long numbers.
const STAGE_LETTERS: usize = 34;
const EXECUTOR_LETTERS: usize = 17;
/// Stages in one line of the legend.
const LEGEND_COLUMNS: usize = 6;
/// A bar is at least as wide, or nobody sees it.
const BAR_MIN: f64 = 0.5;
/// Of the time axis, about.
const TICKS: f64 = 10.0;

/// Draws a timeline.
pub fn draw(title: &str, layout: &Layout) -> String {
    let mut body = String::new();
    let mut y = legend(&mut body, title, layout);
    let top = y;
    for lanes in &layout.executors {
        y = executor(&mut body, lanes, layout, y);
    }
    let ticks = axis(layout.length_ms, top, y);
    let (width, height) = (LEFT + WIDTH + RIGHT, y + 2.0 * LINE);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<style>{}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{ticks}{body}</svg>\n",
        style()
    )
}

fn style() -> String {
    let color = |(n, color): (usize, &&str)| format!(".s{n}{{fill:{color}}}");
    let colors: String = COLORS.iter().enumerate().map(color).collect();
    format!("{colors}.wasted{{fill-opacity:.35;stroke:#d00000;stroke-width:1.5}}.running{{fill-opacity:.6}}")
}

/// What it is, and which colour is what. Returns where the bars begin.
fn legend(body: &mut String, title: &str, layout: &Layout) -> f64 {
    let mut said = format!("{title}: {}", units::count(layout.attempts as u64, "attempt"));
    if layout.hidden > 0 {
        said += &format!(", {} of them not drawn", layout.hidden);
    }
    if layout.truncated {
        said += "; there were more: not all tasks of this job are kept";
    }
    text(body, 10.0, LINE, &said);
    let names = layout.stages.iter().enumerate().map(|(n, name)| (format!("s{}", n % COLORS.len()), &**name));
    let wasted = [(String::from("s9 wasted"), "failed, lost or stopped")];
    let entries: Vec<_> = names.chain(wasted).collect();
    for (n, (class, name)) in entries.iter().enumerate() {
        let x = 10.0 + (n % LEGEND_COLUMNS) as f64 * (LEFT + WIDTH) / LEGEND_COLUMNS as f64;
        let y = LINE * (1.5 + (n / LEGEND_COLUMNS) as f64);
        add(
            body,
            format_args!("<rect class=\"key {class}\" x=\"{x:.1}\" y=\"{y}\" width=\"11\" height=\"11\"/>"),
        );
        text(body, x + 16.0, y + 10.0, &shortened(name, STAGE_LETTERS));
    }
    LINE * (3.0 + (entries.len().saturating_sub(1) / LEGEND_COLUMNS) as f64) + LINE
}

/// A name of at most so many letters.
fn shortened(name: &str, max: usize) -> String {
    match name.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// One executor's lanes, from `y` on. Returns where they end.
fn executor(body: &mut String, lanes: &Lanes, layout: &Layout, y: f64) -> f64 {
    let height = lanes.lanes.len() as f64 * LANE;
    add(
        body,
        format_args!(
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#888\" fill-opacity=\".1\"/>"
        ),
    );
    let name =
        lanes.executor.map_or_else(|| "executor not known".into(), |executor| format!("executor {executor}"));
    text(body, 10.0, y + LANE - 2.0, &shortened(&name, EXECUTOR_LETTERS));
    for (n, lane) in lanes.lanes.iter().enumerate() {
        for bar in lane {
            draw_bar(body, bar, layout, y + n as f64 * LANE);
        }
    }
    y + height + GAP
}

fn draw_bar(body: &mut String, bar: &Bar, layout: &Layout, y: f64) {
    let at = |ms: u64| LEFT + ms as f64 / layout.length_ms as f64 * WIDTH;
    let (x, end) = (at(bar.begin_ms), at(bar.end_ms));
    let (class, how) = match bar.outcome {
        Outcome::Committed => ("", ""),
        Outcome::Running => (" running", ", runs"),
        Outcome::Wasted => (" wasted", ", failed, lost or stopped"),
    };
    let stage = layout.stages.get(bar.stage).map(|name| escaped(name)).unwrap_or_default();
    let time = units::duration(Duration::from_millis(bar.end_ms - bar.begin_ms));
    let what = match bar.count {
        1 => format!("{stage}: {time}{how}; attempt {} of {}", bar.attempt, bar.task),
        count => format!("{stage}: {count} attempts within {time}, from {}", bar.task),
    };
    add(
        body,
        format_args!(
            "<rect class=\"bar s{}{class}\" x=\"{x:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{}\"><title>{what}</title></rect>",
            bar.stage % COLORS.len(),
            y + 1.0,
            (end - x).max(BAR_MIN),
            LANE - 2.0
        ),
    );
}

/// Lines at round times, and what they are.
fn axis(length_ms: u64, top: f64, bottom: f64) -> String {
    let mut ticks = String::new();
    let step = step_ms(length_ms);
    for ms in (0..=length_ms).step_by(step as usize) {
        let x = LEFT + ms as f64 / length_ms as f64 * WIDTH;
        add(
            &mut ticks,
            format_args!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#ccc\"/>",
                top - 4.0
            ),
        );
        let said = if ms == 0 { "0".into() } else { units::duration(Duration::from_millis(ms)) };
        text(&mut ticks, x + 2.0, top - 6.0, &said);
        text(&mut ticks, x + 2.0, bottom + LINE, &said);
    }
    ticks
}

/// 1, 2 or 5 times a power of ten, for about ten lines.
fn step_ms(length_ms: u64) -> u64 {
    let least = (length_ms as f64 / TICKS).max(1.0);
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= least);
    step.unwrap_or(least) as u64
}

fn text(svg: &mut String, x: f64, y: f64, what: &str) {
    add(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(what)));
}

fn add(svg: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{what}");
}

/// Text for XML, which has no control characters even as references.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{ExecutorId, TaskId};

    use super::*;

    #[test]
    fn names_of_strangers_stay_text() {
        let bar = Bar {
            begin_ms: 0,
            end_ms: 5,
            stage: 0,
            task: TaskId([1; 16]),
            attempt: 1,
            outcome: Outcome::Wasted,
            count: 1,
        };
        let layout = Layout {
            length_ms: 10,
            stages: vec!["</title><script>\u{1b}&".into()],
            executors: vec![Lanes { executor: Some(ExecutorId(5)), lanes: vec![vec![bar]] }],
            attempts: 1,
            hidden: 0,
            truncated: true,
        };
        let svg = draw("a \"job\"", &layout);
        assert!(svg.contains("&lt;/title&gt;&lt;script&gt;\u{fffd}&amp;"), "{svg}");
        assert!(!svg.contains("<script") && svg.contains("a &quot;job&quot;"), "{svg}");
        assert_eq!(svg.matches("class=\"bar s0 wasted\"").count(), 1, "{svg}");
    }

    #[test]
    fn ticks_are_round() {
        let steps = [1, 95, 1000, 12_345, 7_200_000].map(step_ms);
        assert_eq!(steps, [1, 10, 100, 2000, 1_000_000]);
    }
}
