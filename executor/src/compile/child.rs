//! The compile child: limits itself, reads a component from stdin, answers on stdout.

use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

use fanfold_protocol::{Error, limit};
use rlimit::Resource;

use super::{compile_here, frame};

/// Open files of a child: its three pipes, and what the runtime looks up about the machine.
const FILES_MAX: u64 = 32;

/// The whole of the compile process: `main` of the `compile-component` subcommand. Its exit status is 0 also where it
/// refuses the component; the answer on stdout says so.
pub fn compile_child() -> ExitCode {
    match limit_self().and_then(|()| answer()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Before anything is read. A soft limit equal to the hard one cannot be raised again.
fn limit_self() -> io::Result<()> {
    let set = |resource: Resource, max: u64| {
        let hard = resource.get_hard().unwrap_or(max);
        resource.set(max.min(hard), max.min(hard))
    };
    set(Resource::CPU, limit::COMPILE_CPU_SECONDS_MAX)?;
    set(Resource::AS, limit::COMPILE_MEMORY_BYTES_MAX)?;
    set(Resource::NOFILE, FILES_MAX)?;
    set(Resource::FSIZE, 0)?;
    set(Resource::CORE, 0)
}

fn answer() -> io::Result<()> {
    let mut component = Vec::new();
    // One byte more than allowed shows that there is too much.
    io::stdin().lock().take(limit::COMPONENT_BYTES_MAX + 1).read_to_end(&mut component)?;
    let compiled: Result<_, Error> = compile_here(&component);
    let (head, code) = frame::encode(&compiled);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&head)?;
    stdout.write_all(code)?;
    stdout.flush()
}
