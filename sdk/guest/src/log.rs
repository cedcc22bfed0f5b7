//! Log lines, kept with the invocation; and how the job stands, for those who watch it.

use std::fmt;

/// How important a line is.
pub use crate::raw::Level;

/// Writes one line. The macros [`crate::debug!`], [`crate::info!`], [`crate::warn!`] and [`crate::error!`] format it.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    match message.as_str() {
        Some(text) => crate::host::log(level, text),
        None => crate::host::log(level, &message.to_string()),
    }
}

/// Says how the job stands, in place of what was said before: at most 8 KiB. What a job's root task says is shown while it runs.
///
/// Any text will do. JSON of this shape is shown as columns of the table of stages; `docs/cli.md` says how.
///
/// ```
/// fanfold::status(r#"{"columns": ["rows"], "stages": {"map": [1200]}, "summary": "3 of 8 files are read"}"#);
/// ```
pub fn status(text: &str) {
    crate::host::status(text);
}

macro_rules! levels {
    ($dollar:tt $($name:ident $level:ident $what:literal;)+) => {$(
        #[doc = $what]
        #[macro_export]
        macro_rules! $name {
            ($dollar($dollar arg:tt)+) => {
                $crate::log($crate::Level::$level, ::core::format_args!($dollar($dollar arg)+))
            };
        }
    )+};
}

levels! { $
    debug Debug "Logs a line that helps to find mistakes; takes what `format!` takes.";
    info Info "Logs a line worth knowing; takes what `format!` takes.";
    warn Warn "Logs a line about something that may be wrong; takes what `format!` takes.";
    error Error "Logs a line about something that is wrong; takes what `format!` takes.";
}
