//! Admission: whether uploaded bytes are a component that this executor runs, found out before compiling anything.
//!
//! One pass over the bytes checks validity, the proposals in use and the counts of [`fanfold_protocol::limit`]; then
//! the kind is found from the exports, and imports that nothing here satisfies are refused by name. It parses hostile
//! bytes, and therefore runs in the compile child.

mod offer;
mod survey;
mod wrap;

use std::borrow::Cow;

use fanfold_protocol::{Code, Error, Kind, function::ComponentKind, limit};
use serde::{Deserialize, Serialize};
use wasmparser::Parser;

#[cfg(test)]
pub(crate) use offer::OFFER;
pub(crate) use offer::missing_imports;
use survey::Survey;

/// What admission found out about a component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Admitted {
    /// Its kind.
    pub kind: ComponentKind,
    /// Whether it imports `fanfold:function/tasks`.
    pub submits: bool,
    /// Names of its imports.
    pub imports: Vec<String>,
}

/// Checks `bytes` and returns the component to compile: the same bytes, or a `wasip1` module wrapped into one.
///
/// # Errors
/// [`Kind::Invalid`] with what is wrong and where.
pub fn admit(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Admitted), Error> {
    check_size(bytes.len() as u64)?;
    let component = if Parser::is_core_wasm(bytes) {
        Survey::of(bytes)?;
        Cow::Owned(wrap::command(bytes)?)
    } else if Parser::is_component(bytes) {
        Cow::Borrowed(bytes)
    } else {
        return Err(not_wasm(bytes));
    };
    let survey = Survey::of(&component)?;
    let kind = kind(&survey.exports)?;
    offer::check(&survey.imports)?;
    let imports: Vec<String> = survey.imports.into_iter().map(|import| import.name).collect();
    let submits = imports.iter().any(|name| offer::interface(name).0 == "fanfold:function/tasks");
    Ok((component, Admitted { kind, submits, imports }))
}

/// Refuses a component that is too large, before anybody reads it.
///
/// # Errors
/// [`Code::ComponentTooLarge`].
pub fn check_size(bytes: u64) -> Result<(), Error> {
    if bytes <= limit::COMPONENT_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("the component has {bytes} bytes: at most {} are taken", limit::COMPONENT_BYTES_MAX);
    Err(Error::new(Kind::Invalid, Code::ComponentTooLarge, message))
}

fn kind(exports: &[String]) -> Result<ComponentKind, Error> {
    const KINDS: [(&str, &str, ComponentKind); 3] = [
        ("fanfold:function/handler", "0.1.", ComponentKind::Task),
        ("wasi:http/incoming-handler", "0.2.", ComponentKind::Http),
        ("wasi:cli/run", "0.2.", ComponentKind::Cli),
    ];
    let found = KINDS.iter().find(|(interface, version, _)| {
        exports
            .iter()
            .map(|name| offer::interface(name))
            .any(|(i, v)| i == *interface && v.starts_with(version))
    });
    if let Some((_, _, kind)) = found {
        return Ok(*kind);
    }
    let exported = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
    let message = format!(
        "the component exports {exported}; a function exports one of wasi:http/incoming-handler@0.2, \
         wasi:cli/run@0.2 and fanfold:function/handler@0.1"
    );
    Err(Error::new(Kind::Invalid, Code::NoExport, message))
}

fn not_wasm(bytes: &[u8]) -> Error {
    if bytes.starts_with(b"\0asm") {
        return malformed("it has a version of the binary format that is not known here");
    }
    let what = if bytes.is_empty() {
        "the upload is empty".to_owned()
    } else {
        let head = &bytes[..bytes.len().min(8)];
        format!("the upload starts with `{}` and is not WebAssembly", head.escape_ascii())
    };
    Error::new(Kind::Invalid, Code::NotWasm, format!("{what}: send a component (.wasm)"))
}

fn malformed(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, Code::MalformedComponent, format!("the component is not valid: {why}"))
}

#[cfg(test)]
mod tests;
