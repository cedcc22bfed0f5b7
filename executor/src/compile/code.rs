//! The one place that trusts compiled code.
#![allow(unsafe_code, reason = "wasmtime cannot check machine code: loading it is the caller's promise")]

use wasmtime::{Engine, component::Component};

use super::seal::Verified;

/// Maps compiled code into this process.
///
/// # Errors
/// Where it was compiled for another engine.
pub(crate) fn load(engine: &Engine, verified: &Verified) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` asks that the bytes come unmodified from `precompile_component` or `serialize`. The only
    // way to a `Verified` is `Sealer::verify`: the bytes carry a signature, made with this platform's own key, that
    // `Loader` gives only to what its compile child or itself produced. `Bytes` are immutable, so what was verified
    // is what is copied here.
    unsafe { Component::deserialize(engine, &verified.code) }
}
