//! A platform started for one command: `fanfold up` on a free port and a temporary directory, stopped at the end.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// A running platform. Dropping it stops the process.
pub struct Platform {
    binary: PathBuf,
    url: String,
    process: Child,
}

impl Platform {
    /// Starts `fanfold up` and waits for its line of readiness.
    pub fn start(binary: &Path, dir: &Path) -> Result<Self> {
        let mut process = Command::new(binary)
            .args(["up", "--json", "--listen", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {}", binary.display()))?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let ready: Value = serde_json::from_str(&line).context("`fanfold up` ended before it was ready")?;
        let url = ready["url"].as_str().context("`fanfold up` named no url")?.to_owned();
        Ok(Self { binary: binary.to_path_buf(), url, process })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The `fanfold` command against this platform.
    pub fn fanfold(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .env("FANFOLD_URL", &self.url)
            .env_remove("FANFOLD_TOKEN")
            // `invoke` would read a pipe that somebody left open on ours.
            .stdin(Stdio::null())
            .current_dir(shell::root());
        command
    }

    /// Runs a `fanfold` command and reads the JSON it prints.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = shell::output(&mut self.fanfold(args))?;
        serde_json::from_str(&text).with_context(|| format!("`fanfold {}` printed no JSON", args.join(" ")))
    }

    /// Asks it to drain and end, as an operator would.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.process.id().to_string();
        shell::output(Command::new("kill").args(["-TERM", &pid]))?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the platform did not end cleanly ({status})");
        }
        Ok(())
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        // Only where `stop` was not reached: an error is on its way up already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
