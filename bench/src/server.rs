//! The servers under test, as processes that end with the benchmark.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::bare;

/// A server process. Dropping it kills it.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
}

impl Server {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// `fanfold up` on `dir`.
    pub fn fanfold(dir: &Path) -> Result<Self> {
        Self::fanfold_with(dir, &[])
    }

    /// The same with further arguments.
    pub fn fanfold_with(dir: &Path, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
        Self::start(command.stdout(Stdio::piped()), |child| child.stdout.take().map(boxed))
    }

    /// The bare hyper server.
    pub fn bare_hyper() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Self::start(command.arg(bare::SUBCOMMAND).stdout(Stdio::piped()), |child| {
            child.stdout.take().map(boxed)
        })
    }

    /// `wasmtime serve` of a component, if `wasmtime` is installed (or named by `WASMTIME`).
    pub fn wasmtime_serve(component: &Path) -> Result<Self> {
        let wasmtime = std::env::var_os("WASMTIME").unwrap_or_else(|| "wasmtime".into());
        let mut command = Command::new(wasmtime);
        command.args(["serve", "-Scli", "--addr", "127.0.0.1:0"]).arg(component).stdout(Stdio::null());
        Self::start(command.stderr(Stdio::piped()), |child| child.stderr.take().map(boxed))
    }

    /// Starts a command and waits for the first line that names its address as a URL.
    pub fn start(
        command: &mut Command,
        output: impl Fn(&mut Child) -> Option<Box<dyn Read>>,
    ) -> Result<Self> {
        let mut process = command.spawn().with_context(|| format!("could not start {command:?}"))?;
        let output = output(&mut process).context("no output to read")?;
        for line in BufReader::new(output).lines() {
            if let Some(address) = url_address(&line?) {
                return Ok(Self { address, process });
            }
        }
        let status = process.wait()?;
        anyhow::bail!("{command:?} ended ({status}) before it named its address")
    }
}

impl Server {
    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The `fanfold` binary.
pub fn binary() -> Result<PathBuf> {
    let binary =
        std::env::var_os("FANFOLD_BIN").context("FANFOLD_BIN is not set: use `cargo xtask bench`")?;
    Ok(binary.into())
}

/// What [`Server::start`] reads.
pub fn boxed(read: impl Read + 'static) -> Box<dyn Read> {
    Box::new(read)
}

fn url_address(line: &str) -> Option<SocketAddr> {
    let after = |mark: &str| line.find(mark).map(|at| at + mark.len());
    // An executor serves no REST, only its peers.
    let rest = &line[after("http://").or_else(|| after("\"peer\":\""))?..];
    rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).next()?.parse().ok()
}

/// The component of one of our functions.
pub fn component(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("FANFOLD_COMPONENTS").context("FANFOLD_COMPONENTS is not set")?;
    Ok(PathBuf::from(folder).join(format!("{}.wasm", name.replace('-', "_"))))
}

/// A component's bytes made different by a custom section, so that it is compiled and loaded on its own.
pub fn variant(component: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = component.to_vec();
    // Section 0 (custom), 6 bytes: a one-character name and four bytes of number.
    bytes.extend_from_slice(&[0, 6, 1, b'n']);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}
