//! JSON lines and the few statistics behind them.

use std::io;

use memmap2::{Advice, MmapMut};
use serde_json::{Value, json};

const PAGE_BYTES: usize = 4 << 10;

/// Prints one result: the benchmark's name, what was measured, and its figures.
pub fn line(bench: &str, what: &str, figures: Value) {
    let mut line = json!({ "bench": bench, "what": what });
    if let (Some(line), Value::Object(figures)) = (line.as_object_mut(), figures) {
        line.extend(figures);
    }
    println!("{line}");
}

/// The value below which `share` of the samples lie. The samples get sorted.
pub fn percentile(samples: &mut [u64], share: f64) -> u64 {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    samples.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
}

/// The middle of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    kernel_bytes(&format!("{pid}/status"), "VmRSS:")
}

/// The most resident memory a process has had, in bytes.
pub fn peak_bytes(pid: u32) -> u64 {
    kernel_bytes(&format!("{pid}/status"), "VmHWM:")
}

/// Memory that the machine could give to a program, in bytes.
fn memory_available() -> u64 {
    kernel_bytes("meminfo", "MemAvailable:")
}

/// Brings the machine to a state in which `bytes` of memory, of what it could give, are quickly had: the host of a virtual machine may
/// have taken back what was not in use for a while, and whoever needs it first pays for getting it again, some seconds per GB.
///
/// # Errors
/// Where the system does not give that much.
pub fn warm_memory(bytes: u64) -> io::Result<()> {
    let bytes = bytes.min(memory_available() / 4 * 3) as usize;
    let mut memory = MmapMut::map_anon(bytes.max(1))?;
    // What is free in huge pages is what a host takes back. Small ones come from it, too.
    let _ = memory.advise(Advice::HugePage);
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(memory);
    Ok(())
}

fn kernel_bytes(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Processor time of a process so far, user and system, in microseconds.
pub fn cpu_us(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Fields 14 and 15; the second field may contain spaces but ends with the last `)`.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    ticks * 10_000
}
