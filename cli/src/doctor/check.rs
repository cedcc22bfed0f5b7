//! One check's result.

use serde::Serialize;

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, but something will be slower or missing.
    Warn,
    /// Does not work.
    Fail,
}

/// What was looked at and found.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it went.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, found: found.into(), fix: None }
    }

    /// Usable.
    pub fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, found: found.into(), fix: Some(fix.into()) }
    }

    /// Not usable.
    pub fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, found: found.into(), fix: Some(fix.into()) }
    }
}
