//! From an uploaded component to signed machine code, made in a limited child process.
//!
//! Hostile bytes are parsed and compiled only in the child: it limits its own processor time and address space before
//! it reads them, and is killed when it takes too long. What comes back is compiled code that this process signs
//! ([`seal`]) and, whenever it is loaded, verifies before the one `unsafe` call that trusts it ([`code`]).

mod child;
pub(crate) mod code;
mod frame;
pub(crate) mod seal;

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind, limit};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    sync::Semaphore,
    time::timeout,
};

use crate::admit::{self, Admitted};

pub use child::compile_child;

/// Compilations at once: each takes a core and up to [`limit::COMPILE_MEMORY_BYTES_MAX`].
const AT_ONCE: usize = 2;
/// Wall time of one compilation: its processor time again, for a machine that is busy.
const WALL: Duration = Duration::from_secs(2 * limit::COMPILE_CPU_SECONDS_MAX);
/// Threads of one compilation.
const THREADS: &str = "4";
/// Bytes of compiled code that are read from a child: no component of the allowed size compiles to more.
const OUTPUT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a child's last words that are kept.
const STDERR_BYTES_MAX: u64 = 4 << 10;

/// A component's compiled code, not yet signed, and what admission found.
pub(crate) struct Compiled {
    /// What admission found.
    pub admitted: Admitted,
    /// The engine key it was compiled for.
    pub engine: String,
    /// The code, as wasmtime serialises it.
    pub code: Bytes,
}

/// Admits and compiles `bytes` in this process, without limits.
pub(crate) fn compile_here(bytes: &[u8]) -> Result<Compiled, Error> {
    let (component, admitted) = admit::admit(bytes)?;
    let engine = crate::engine::compiling().map_err(|e| Error::internal(format!("no compiler: {e:#}")))?;
    // Admission has validated it: what is left are limits of the compiler's implementation.
    let code = engine.precompile_component(&component).map_err(|error| {
        let message = format!("the component cannot be compiled: {error:#}");
        Error::new(Kind::Invalid, Code::MalformedComponent, message)
    })?;
    Ok(Compiled { admitted, engine: crate::engine::key(&engine), code: code.into() })
}

/// Makes compiled code, a few at a time.
pub(crate) struct Compiler {
    argv: Vec<OsString>,
    wall: Duration,
    permits: Semaphore,
}

impl Compiler {
    /// A compiler that runs `argv` as its child; in this process where that is empty.
    pub(crate) fn new(argv: Vec<OsString>) -> Self {
        Self { argv, wall: WALL, permits: Semaphore::new(AT_ONCE) }
    }

    /// Admits and compiles a component. Waits while others compile; dropping the future kills the child.
    ///
    /// # Errors
    /// What admission says; [`Code::Compile`] over a limit; [`Kind::Platform`] where the child cannot be run.
    pub(crate) async fn compile(&self, component: Bytes) -> Result<Compiled, Error> {
        admit::check_size(component.len() as u64)?;
        let closed = |_| Error::internal("the compiler has stopped");
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let begun = Instant::now();
        let compiled = match self.argv.split_first() {
            Some((program, arguments)) => self.compile_in_child(program, arguments, component).await?,
            None => {
                let run = tokio::task::spawn_blocking(move || compile_here(&component)).await;
                run.map_err(|e| Error::internal(format!("the compiler failed: {e}")))??
            }
        };
        tracing::debug!(bytes = compiled.code.len(), took = ?begun.elapsed(), "compiled a component");
        Ok(compiled)
    }

    async fn compile_in_child(
        &self,
        program: &OsString,
        arguments: &[OsString],
        component: Bytes,
    ) -> Result<Compiled, Error> {
        let child = spawn(program, arguments)?;
        let answer = timeout(self.wall, converse(child, &component)).await;
        let (status, answer, last_words) = answer.map_err(|_| {
            failed(format!("compiling the component took over {} s and was stopped", self.wall.as_secs()))
        })??;
        if !status.success() {
            return Err(died(status, &last_words));
        }
        frame::decode(answer)?
    }
}

/// Starts the child in a process group of its own, so that a terminal's interrupt is ours to handle, and without our
/// environment, which may hold secrets.
fn spawn(program: &OsString, arguments: &[OsString]) -> Result<Child, Error> {
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("RAYON_NUM_THREADS", THREADS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| {
            Error::internal(format!("the compiler `{}` does not start: {e}", program.to_string_lossy()))
        })
}

/// Sends the component and reads the answer; both ends may stop early.
async fn converse(mut child: Child, component: &[u8]) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), Error> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let send = async {
        if let Some(mut stdin) = stdin {
            // A child that died does not read on: its exit status says more than the broken pipe.
            let _ = stdin.write_all(component).await;
        }
    };
    let (_, answer, last_words) =
        tokio::join!(send, read(stdout, OUTPUT_BYTES_MAX), read(stderr, STDERR_BYTES_MAX));
    let status = child.wait().await.map_err(|e| Error::internal(format!("the compiler is lost: {e}")))?;
    Ok((status, answer, last_words))
}

/// Reads to the end and keeps the first `max` bytes.
async fn read(from: Option<impl AsyncRead + Unpin>, max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // What was read before an error is what there is; its end is checked by who decodes it.
        let _ = (&mut from).take(max).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    bytes
}

fn failed(message: String) -> Error {
    Error::new(Kind::Limit, Code::Compile, message)
}

/// What a child's end without an answer means.
fn died(status: ExitStatus, last_words: &[u8]) -> Error {
    const SIGABRT: i32 = 6;
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;
    let why = match status.signal() {
        Some(SIGXCPU | SIGKILL) => {
            format!("it took over {} s of processor time, or was killed", limit::COMPILE_CPU_SECONDS_MAX)
        }
        Some(SIGABRT) => format!("it took over {} bytes of memory", limit::COMPILE_MEMORY_BYTES_MAX),
        _ => format!("the compiler ended with {status}"),
    };
    let words = String::from_utf8_lossy(last_words);
    let words = words.trim();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.replace('\n', " | ")) };
    failed(format!("the component could not be compiled: {why}{words}"))
}

#[cfg(test)]
mod tests;
