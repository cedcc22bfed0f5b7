//! The WIT contract as Rust items, generated; the only module of this crate with `unsafe` code in it.
//!
//! Its plain data is used on every target, its functions on WebAssembly only.

#![allow(
    missing_docs,
    unsafe_code,
    dead_code,
    clippy::all,
    reason = "generated; sdk/wit has the documentation"
)]
#![allow(unexpected_cfgs, reason = "the generator gates its `std::error::Error` impls on a feature `std`")]

wit_bindgen::generate!({
    world: "fanfold:gpu/gpu-task",
    path: ["../wit", "../wit/gpu"],
    // Keeps `std::error::Error` off the generated error: see `crate::Error`.
    std_feature,
    generate_all,
    pub_export_macro: true,
    export_macro_name: "__export_handler",
    default_bindings_module: "::fanfold::rt::bindings",
    additional_derives: [PartialEq, Eq, Hash],
});
