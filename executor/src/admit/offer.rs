//! The interfaces that functions can import, and what to say about any others.
//!
//! The table is compared with the linker in a test: it is the linker that decides at the end.

use fanfold_protocol::{Code, Error, Kind};

use super::survey::Import;

/// Functions of a missing interface that its message names.
const FUNCTIONS_SHOWN: usize = 8;

/// Package, version prefix that is compatible, and interfaces.
pub(crate) const OFFER: [(&str, &str, &[&str]); 9] = [
    ("wasi:io", "0.2.", &["error", "poll", "streams"]),
    ("wasi:clocks", "0.2.", &["monotonic-clock", "wall-clock"]),
    ("wasi:random", "0.2.", &["insecure", "insecure-seed", "random"]),
    (
        "wasi:cli",
        "0.2.",
        &[
            "environment",
            "exit",
            "stderr",
            "stdin",
            "stdout",
            "terminal-input",
            "terminal-output",
            "terminal-stderr",
            "terminal-stdin",
            "terminal-stdout",
        ],
    ),
    ("wasi:filesystem", "0.2.", &["preopens", "types"]),
    (
        "wasi:sockets",
        "0.2.",
        &[
            "instance-network",
            "ip-name-lookup",
            "network",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
    ),
    ("wasi:http", "0.2.", &["outgoing-handler", "types"]),
    ("fanfold:function", "0.1.", &["context", "data", "log", "objects", "tasks", "types"]),
    ("fanfold:gpu", "0.1.", &["compute"]),
];

/// Splits `package/interface@version`; the version is empty where there is none.
pub(super) fn interface(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// Refuses imports that are not offered, all of them at once.
pub(super) fn check(imports: &[Import]) -> Result<(), Error> {
    let missing: Vec<String> = imports.iter().filter(|import| !offered(&import.name)).map(describe).collect();
    if missing.is_empty() { Ok(()) } else { Err(missing_imports(&missing.join("; "))) }
}

/// The error for a component that imports `what`.
pub(crate) fn missing_imports(what: &str) -> Error {
    Error::new(
        Kind::Invalid,
        Code::MissingImports,
        format!("the component imports what Fanfold does not offer: {what}"),
    )
}

fn offered(name: &str) -> bool {
    let (path, version) = interface(name);
    let Some((package, interface)) = path.split_once('/') else { return false };
    OFFER.iter().any(|(offer, compatible, interfaces)| {
        // Pre-releases are compatible with nothing but themselves.
        *offer == package
            && version.starts_with(compatible)
            && !version.contains('-')
            && interfaces.contains(&interface)
    })
}

fn describe(import: &Import) -> String {
    let functions = &import.functions;
    if functions.is_empty() {
        return import.name.clone();
    }
    let shown = functions.iter().take(FUNCTIONS_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let more = functions.len().saturating_sub(FUNCTIONS_SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{} (function {shown}{more})", import.name)
}
