//! Core `wasip1` command modules, made into components with the adapter that wasmtime publishes.

use fanfold_protocol::{Code, Error, Kind};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasmparser::{ExternalKind, Parser, Payload};
use wit_component::ComponentEncoder;

use super::malformed;

/// Wraps a module that has been surveyed.
///
/// # Errors
/// [`Code::NoExport`] where it is no command; [`Code::MissingImports`] where it imports more than `wasip1`.
pub(super) fn command(module: &[u8]) -> Result<Vec<u8>, Error> {
    check(module)?;
    let encode = || {
        ComponentEncoder::default()
            .module(module)?
            .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)?
            .encode()
    };
    encode().map_err(|error| {
        let why = format!("{error:#}");
        malformed(format_args!("the module cannot be made into a component: {why}"))
    })
}

/// What the encoder would refuse in words about itself.
fn check(module: &[u8]) -> Result<(), Error> {
    let mut foreign = Vec::new();
    let mut exports = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(malformed)? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(malformed)?;
                    // Modules made for the component model carry their interfaces' names and metadata.
                    if import.module != WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME && !import.module.contains(':') {
                        foreign.push(format!("{} (function {})", import.module, import.name));
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(malformed)?;
                    if export.kind == ExternalKind::Func {
                        exports.push(export.name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    if !foreign.is_empty() {
        return Err(super::missing_imports(&foreign.join("; ")));
    }
    if exports.iter().any(|name| name == "_start") {
        return Ok(());
    }
    let exported = if exports.is_empty() { "no function".to_owned() } else { exports.join(", ") };
    let message = format!(
        "this core module exports {exported} and not `_start`: only wasip1 commands are taken as modules; \
         build a component otherwise"
    );
    Err(Error::new(Kind::Invalid, Code::NoExport, message))
}
