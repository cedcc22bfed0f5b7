//! The owner with its real parts (store, journal, scheduler, registry) and a scripted executor in the same process.

#![allow(clippy::disallowed_methods, reason = "tests end with their runtime, and so do their tasks")]

mod accepting;
mod bed;
mod ending;
mod failing;
mod restarting;
mod script;
mod speed;

use std::sync::Arc;

use fanfold_protocol::{
    Digest, Manifest,
    function::{ComponentInfo, ComponentKind, FunctionVersion},
};

/// A task function that calls no others.
pub(crate) fn function(name: &str) -> Arc<FunctionVersion> {
    version(name, false, |_| {})
}

/// A task function that calls others.
pub(crate) fn driver(name: &str) -> Arc<FunctionVersion> {
    version(name, true, |_| {})
}

/// A task function with a manifest of its own.
pub(crate) fn version(name: &str, submits: bool, change: impl FnOnce(&mut Manifest)) -> Arc<FunctionVersion> {
    let mut manifest = Manifest::named(name.parse().unwrap());
    manifest.retry.backoff = 50;
    change(&mut manifest);
    let component = Digest::of(name.as_bytes());
    let info = ComponentInfo {
        kind: ComponentKind::Task,
        submits,
        imports: Vec::new(),
        component_bytes: 1,
        compiled_bytes: 1,
        compile_us: 1,
    };
    Arc::new(FunctionVersion {
        name: manifest.name.clone(),
        version: FunctionVersion::digest(component, &manifest),
        component,
        manifest,
        info,
        deployed_at_ms: 1,
    })
}
