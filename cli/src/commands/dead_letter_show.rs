//! `fanfold dead-letters show`: one invocation that was given up, with its attempts, its input and the end of its log.

use std::path::Path;

use fanfold_client::{Client, LogLine, rest::DeadLetterDetail};
use fanfold_protocol::JobId;
use futures::TryStreamExt as _;
use serde_json::json;

use crate::{failure::Failure, output::Output, table::printable, units};

/// Bytes of input that are shown.
const SHOWN_BYTES: usize = 2_000;
/// Lines of the log that are shown.
const SHOWN_LINES: usize = 20;

/// Runs it. `file`: where to write the whole input.
pub async fn run(client: &Client, id: JobId, file: Option<&Path>, out: Output) -> Result<(), Failure> {
    let letter = client.dead_letter(id).await?;
    let input = client.dead_letter_input(id).await?;
    if let Some(file) = file {
        std::fs::write(file, &input).map_err(|e| Failure::file(file, &e))?;
    }
    let log: Vec<LogLine> = client.invocation(id).log_lines(false).await?.try_collect().await?;
    let last = &log[log.len().saturating_sub(SHOWN_LINES)..];
    if out.json {
        return out.json(&json!({ "letter": letter, "log": last }));
    }
    out.text(text(&letter, &input, last))
}

fn text(letter: &DeadLetterDetail, input: &[u8], log: &[LogLine]) -> String {
    let DeadLetterDetail { letter, entry, failed_attempts, .. } = letter;
    let mut lines = vec![letter.id.to_string(), String::new()];
    let entry = if entry.is_empty() { String::new() } else { format!(" ({entry})") };
    lines.push(format!("function     {}:{}{}", letter.function, letter.version.short(), printable(&entry)));
    lines.extend(letter.trigger.as_ref().map(|trigger| format!("trigger      {trigger}")));
    lines.push(format!("accepted     {}", units::ago(letter.accepted_at_ms)));
    lines.push(format!(
        "given up     {}: {}",
        units::ago(letter.failed_at_ms),
        printable(&letter.error.to_string())
    ));
    lines.extend(letter.retried_as.map(|again| format!("retried as   {again}")));
    lines.push(format!("tasks        fanfold job graph {}", letter.id));
    lines.extend([String::new(), format!("{} made", units::count(u64::from(letter.attempts), "attempt"))]);
    lines.extend(
        failed_attempts.iter().map(|failed| {
            format!("  {}  {}", units::ago(failed.at_ms), printable(&failed.error.to_string()))
        }),
    );
    lines.extend([String::new(), format!("input, {}", units::bytes(input.len() as u64)), shown(input)]);
    if !log.is_empty() {
        lines.extend([String::new(), "log".to_owned()]);
        lines.extend(log.iter().map(|line| format!("  {}", printable(&line.line))));
    }
    lines.join("\n")
}

/// The beginning of the input where it is text.
fn shown(input: &[u8]) -> String {
    let begin = &input[..input.len().min(SHOWN_BYTES)];
    let text = match std::str::from_utf8(begin) {
        Ok(text) => text,
        // A letter may be cut in two.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&begin[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return "  no text: write it to a file with --input FILE".to_owned(),
    };
    let text = text.lines().map(|line| format!("  {}", printable(line))).collect::<Vec<_>>().join("\n");
    if input.len() > SHOWN_BYTES { format!("{text} … (all of it: --input FILE)") } else { text }
}
