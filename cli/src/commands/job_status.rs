//! What a job's root task says of how it stands, beside what the platform counts: any text, or figures of stages.

use std::{collections::BTreeMap, time::Duration};

use fanfold_client::rest::JobView;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    commands::{
        job_view::entry,
        job_watch::{elapsed, in_order},
    },
    table::{Table, left, right},
    units,
};

/// Ends the name of a column of sizes.
const SIZES: &str = " bytes";
/// The column that gets its rate beside it.
const ROWS: &str = "rows";

/// Figures of stages.
#[derive(Debug, Default, Deserialize)]
pub struct Figures {
    /// Their names.
    columns: Vec<String>,
    /// By the stage's entry, or that one's label.
    stages: BTreeMap<String, Vec<Value>>,
    /// Of the whole job.
    #[serde(default)]
    pub summary: String,
}

impl Figures {
    /// Those that a job's root task has said, if it has.
    pub fn of(view: &JobView) -> Option<Self> {
        serde_json::from_str(view.status.as_deref()?).ok()
    }

    /// A stage's figures with their columns' names. `time`: how long the stage has run, for rates.
    fn row(&self, stage: &str, time: Option<Duration>) -> Vec<(String, String)> {
        let values = self.stages.get(entry(stage)).or_else(|| self.stages.get(stage));
        let values = values.map(Vec::as_slice).unwrap_or_default();
        let (mut row, null) = (Vec::new(), Value::Null);
        for (n, column) in self.columns.iter().enumerate() {
            let value = values.get(n).unwrap_or(&null);
            let title = column.strip_suffix(SIZES).unwrap_or(column);
            row.push((title.to_owned(), shown(column, value)));
            if column == ROWS {
                let rate = value.as_f64().zip(time).map(|(rows, time)| rows / time.as_secs_f64().max(0.001));
                row.push((String::from("rows/s"), rate.map(|rate| format!("{rate:.0}")).unwrap_or_default()));
            }
        }
        row
    }

    /// `1200 rows, 300 rows/s, 12 MiB buffered, waits for input`; without what is zero or not said.
    pub fn describe(&self, stage: &str, time: Option<Duration>) -> String {
        let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let part = |(title, text): (String, String)| match is_number(&text) {
            true => format!("{text} {title}"),
            false => format!("{title} {text}"),
        };
        let row = self.row(stage, time).into_iter();
        let said = row.filter(|(_, text)| !matches!(text.as_str(), "" | "0" | "0 B"));
        said.map(part).collect::<Vec<_>>().join(", ")
    }
}

fn shown(column: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (_, Some(bytes)) if column.ends_with(SIZES) => units::bytes(bytes),
        (Value::Null, _) => String::new(),
        (Value::String(text), _) => text.clone(),
        (value, _) => value.to_string(),
    }
}

/// For `job show`: figures as a table, any other text as it is.
pub fn table(view: &JobView) -> Option<String> {
    let said = view.status.as_deref()?;
    let Some(figures) = Figures::of(view) else { return Some(crate::table::printable(said)) };
    let now_ms = units::now_ms();
    let stages: Vec<_> = in_order(view)
        .into_iter()
        .filter(|(name, _)| figures.stages.contains_key(entry(name)))
        .map(|(name, stage)| (entry(name).to_owned(), figures.row(name, elapsed(stage, view.state, now_ms))))
        .collect();
    let (_, first) = stages.first()?;
    let titles = first.iter().map(|(title, _)| right(title.to_uppercase()));
    let mut table = Table::new([left("STAGE")].into_iter().chain(titles).collect::<Vec<_>>());
    for (name, row) in stages {
        table.row([name].into_iter().chain(row.into_iter().map(|(_, text)| text)));
    }
    Some(format!("{table}{}", crate::table::printable(&figures.summary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_units_and_rates() {
        let figures: Figures = serde_json::from_str(
            r#"{"columns": ["rows", "buffered bytes", "waits for"], "stages": {"decode": [1200, 3145728, "a slot"], "b": [0]}}"#,
        )
        .unwrap();
        let time = Some(Duration::from_secs(4));
        let text = figures.describe("stage#decode", time);
        assert_eq!(text, "1200 rows, 300 rows/s, 3 MiB buffered, waits for a slot");
        assert_eq!(figures.describe("b", time), "", "nothing is known yet");
        assert_eq!(figures.describe("c", None), "");
    }
}
