//! Packages of the system that tests and benchmarks need: installed where they are missing, through apt as root on Debian.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::shell::{self, has};

/// Where the library is with which tests put clocks wrong.
const FAKETIME: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
];

/// Where Vulkan's loader looks for drivers.
const VULKAN_DRIVERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// Installs an adapter in software where there is none at all: tests of the gpu run on whatever there is.
fn ensure_vulkan() -> Result<()> {
    let drivers = |folder: &&str| std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if VULKAN_DRIVERS.iter().any(drivers) {
        return Ok(());
    }
    ensure("no Vulkan driver", &["libvulkan1", "mesa-vulkan-drivers"])
}

/// Tests start Redis servers of their own: only the program has to be there. The library for clocks is wanted as well; where it
/// cannot be installed, the tests with clocks say that they were skipped.
pub fn ensure_tested() -> Result<()> {
    ensure_redis()?;
    if !FAKETIME.iter().any(|folder| Path::new(folder).exists()) && can_install() {
        install(&["libfaketime"])?;
    }
    ensure_vulkan()
}

/// Installs Redis where it is missing.
pub fn ensure_redis() -> Result<()> {
    if has("redis-server", &["--version"]) {
        return Ok(());
    }
    ensure("redis-server is missing", &["redis-server"])
}

/// Installs Java where it is missing: Spark runs in it.
pub fn ensure_java() -> Result<()> {
    if has("java", &["-version"]) {
        return Ok(());
    }
    ensure("java is missing", &["default-jre-headless"])
}

/// Installs packages because of what is `missing`, or says how to.
fn ensure(missing: &str, packages: &[&str]) -> Result<()> {
    if !can_install() {
        bail!("{missing}: install it (Debian and Ubuntu: `sudo apt-get install {}`)", packages.join(" "));
    }
    install(packages)
}

fn can_install() -> bool {
    let root = shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    root && has("apt-get", &["--version"])
}

fn install(packages: &[&str]) -> Result<()> {
    shell::run(Command::new("apt-get").args(["update", "-q"]))?;
    // The package would start a service of its own; not in run level 1.
    shell::run(
        Command::new("apt-get")
            .args(["install", "-q", "-y", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1"),
    )
}
