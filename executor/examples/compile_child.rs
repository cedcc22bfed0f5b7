//! The compile child as a program of its own, for this crate's tests and measurements. In the product it is a
//! subcommand of `fanfold`.

fn main() -> std::process::ExitCode {
    fanfold_executor::compile_child()
}
