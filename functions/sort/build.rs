//! How much memory an instance begins with: what a map of the usual size needs in all. Memory that grows, and shrinks again when
//! the next instance begins, is worth a fifth of a second of the system's time per GB.

/// Bytes: a split, 8 for each of its records, what is read and written at once, and the stack.
const MEMORY_BYTES: u64 = 40 << 20;

fn main() {
    if std::env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "wasm") {
        println!("cargo::rustc-cdylib-link-arg=--initial-memory={MEMORY_BYTES}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
