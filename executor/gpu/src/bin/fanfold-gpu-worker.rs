//! A worker process by itself, for the tests of this crate. The product's is a subcommand of `fanfold`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fanfold_gpu::gpu_worker()
}
