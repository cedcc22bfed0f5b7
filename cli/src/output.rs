//! What commands print: data on stdout, as text for people or as JSON for programs.
//!
//! A reader that went away (`fanfold job ls | head`) ends the command quietly.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use fanfold_client::ByteStream;
use futures::TryStreamExt as _;
use serde::Serialize;

use crate::failure::Failure;

/// How to print.
#[derive(Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

impl Output {
    /// Prints `value` as JSON, or what `text` makes of it.
    pub fn print<T: Serialize, D: Display>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> D,
    ) -> Result<(), Failure> {
        if self.json { self.json(value) } else { self.text(text(value)) }
    }

    /// Prints JSON: indented for a person at a terminal, one line for a program.
    pub fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = match io::stdout().is_terminal() {
            true => serde_json::to_string_pretty(value),
            false => serde_json::to_string(value),
        };
        let text =
            text.map_err(|e| Failure::new(format!("cannot print the answer: {e}"), "report this bug"))?;
        self.text(text)
    }

    /// Prints text and ends its line.
    pub fn text(self, text: impl Display) -> Result<(), Failure> {
        let text = text.to_string();
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let mut stdout = io::stdout().lock();
        write!(stdout, "{text}{end}").and_then(|()| stdout.flush()).map_err(Failure::stdout)
    }

    /// Writes bytes as they come; ends the last line where a person reads it.
    pub async fn stream(self, mut body: ByteStream) -> Result<u64, Failure> {
        let (mut total, mut last) = (0, b'\n');
        while let Some(chunk) = body.try_next().await? {
            write_chunk(&chunk).map_err(Failure::stdout)?;
            total += chunk.len() as u64;
            last = chunk.last().copied().unwrap_or(last);
        }
        if last != b'\n' && io::stdout().is_terminal() {
            write_chunk(b"\n").map_err(Failure::stdout)?;
        }
        Ok(total)
    }
}

fn write_chunk(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Says something to the person at the terminal that is not part of the data.
pub fn note(text: impl Display) {
    // Nobody is left to tell if stderr is gone.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
