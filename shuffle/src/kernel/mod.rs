//! Inner loops: what a sort or an aggregation does to bytes that are in memory. They call nothing of the platform, so
//! they are measured natively as well as in WebAssembly.

pub mod aggregate;
pub mod deal;
pub mod merge;
pub mod record;
pub mod sort;
