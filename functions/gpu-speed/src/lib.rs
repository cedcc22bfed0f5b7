//! Measures a gpu through the platform: products of matrices against what the adapter can do at most, partitions into buffers and
//! back, once and where they are kept there, and what a submission takes that does nothing. `{"n": 1024}`.
//!
//! Needs real clocks: `deterministic = false` in the manifest. Times begin before a submission and end when it is known to have ended.

#[path = "../../matmul/src/product.rs"]
mod product;

use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use fanfold::{
    Error, Outputs, Partition, Reader, Result, Writer,
    gpu::{self, BindGroup, Buffer, Commands, Pipeline, Shader, Usage},
};
use product::{Precision, STEP};
use serde::{Deserialize, Serialize};

const PEAK: &str = include_str!("peak.wgsl");
const NOTHING: &str = "@compute @workgroup_size(1) fn nothing() {}";
/// The largest `n`: three matrices of 64 MiB.
const N_MAX: u32 = 4096;
/// Invocations of a workgroup of [`PEAK`], and operations of one of its rounds: eight multiply-adds of four numbers.
const PEAK_WORKGROUP: u32 = 64;
const PEAK_OPERATIONS: f64 = 8.0 * 4.0 * 2.0;
/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// What to measure.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Rows and columns of matrices, a multiple of 16.
    pub n: u32,
    /// Invocations that find out what the adapter can do, a multiple of 64, and their rounds.
    pub invocations: u32,
    /// As above.
    pub rounds: u32,
    /// Bytes of the partition, a multiple of 1 MiB.
    pub bytes: u64,
    /// Submissions that do nothing.
    pub submissions: u32,
    /// How often all else is done; the fastest counts.
    pub repeats: u32,
}

impl Default for Request {
    fn default() -> Self {
        Self { n: 512, invocations: 8192, rounds: 2000, bytes: 32 << 20, submissions: 500, repeats: 5 }
    }
}

/// What was measured.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// The adapter's name.
    pub adapter: String,
    /// Whether it computes on the processor.
    pub software: bool,
    /// The product of two matrices.
    pub matmul_gflops: f64,
    /// The same of numbers of 16 bits, where the adapter has them.
    pub matmul_f16_gflops: Option<f64>,
    /// Multiply-adds in registers: the bound.
    pub peak_gflops: f64,
    /// From a partition in the executor's memory to the device, in 10⁹ bytes per second.
    pub load_gbs: f64,
    /// From the device to a partition.
    pub store_gbs: f64,
    /// A task that has the partition in a kept buffer: the first one, which reads it, and the next one, which does not.
    pub kept_ms: [f64; 2],
    /// An empty dispatch, from recording to its known end: the middle one.
    pub dispatch_us: f64,
}

/// The driver.
///
/// # Errors
/// `invalid` for a request that cannot be; what the gpu says.
#[fanfold::function(tasks(data, kept, measure))]
pub fn gpu_speed(request: Request) -> Result<Report> {
    let Request { n, invocations, bytes, submissions, repeats, .. } = request;
    let fits = (STEP..=N_MAX).contains(&n) && n.is_multiple_of(STEP);
    let counts = invocations >= PEAK_WORKGROUP && request.rounds > 0 && submissions > 0 && repeats > 0;
    if !fits || !counts || bytes == 0 || !bytes.is_multiple_of(CHUNK as u64) {
        return Err(Error::invalid(format!(
            "n is a multiple of {STEP} up to {N_MAX}, bytes one of {CHUNK}, invocations at least {PEAK_WORKGROUP}, all else over 0"
        )));
    }
    let data = data::submit(bytes)?;
    let mut kept_ms = [0.0; 2];
    for millis in &mut kept_ms {
        *millis = kept::call(&data).gpu(1).submit()?.get()?;
    }
    let (report, _) = measure::call(request, &data).gpu(1).submit()?;
    Ok(Report { kept_ms, ..report.get()? })
}

/// So many bytes.
#[fanfold::task]
fn data(bytes: u64) -> Result<Partition> {
    let mut writer = Writer::new()?;
    for number in 0..bytes / CHUNK as u64 {
        writer.write_all(&vec![number as u8; CHUNK])?;
    }
    writer.finish()
}

/// Milliseconds until a partition is in a kept buffer.
#[fanfold::task]
fn kept(data: Reader) -> Result<f64> {
    gpu::adapter()?; // Waits for the process, and its driver.
    let took = seconds(|| {
        let bytes = data.size();
        let buffer = Buffer::kept("data", &data, 0, bytes, Usage::STORAGE | Usage::COPY_SRC)?;
        buffer.read(bytes - 4, 4).map(drop)
    })?;
    Ok(took * 1e3)
}

#[fanfold::task]
fn measure(request: Request, data: Reader) -> Result<Outputs<(Report, Partition)>> {
    let adapter = gpu::adapter()?;
    let gflops = |precision| {
        let seconds = matmul(precision, request.n, request.repeats)?;
        Ok::<_, Error>(2.0 * f64::from(request.n).powi(3) / seconds / 1e9)
    };
    let peak_seconds = peak(&request)?;
    let mut writer = Writer::for_output(1)?;
    let (load_seconds, store_seconds) = transfers(&data, &mut writer, &request)?;
    let peak_operations = f64::from(request.invocations / PEAK_WORKGROUP * PEAK_WORKGROUP)
        * f64::from(request.rounds)
        * PEAK_OPERATIONS;
    let report = Report {
        adapter: adapter.name,
        software: adapter.software,
        matmul_gflops: gflops(Precision::F32)?,
        matmul_f16_gflops: adapter.f16.then(|| gflops(Precision::F16)).transpose()?,
        peak_gflops: peak_operations / peak_seconds / 1e9,
        load_gbs: request.bytes as f64 / load_seconds / 1e9,
        store_gbs: request.bytes as f64 / store_seconds / 1e9,
        kept_ms: [0.0; 2],
        dispatch_us: dispatches(request.submissions)? * 1e6,
    };
    Ok(Outputs((report, writer.finish()?)))
}

fn matmul(precision: Precision, n: u32, repeats: u32) -> Result<f64> {
    let bytes = u64::from(n) * u64::from(n) * precision.bytes();
    let matrix = |label| Buffer::new(label, bytes, Usage::STORAGE);
    let (a, b, c) = (matrix("a")?, matrix("b")?, matrix("c")?);
    let size = Buffer::new("size", 16, Usage::UNIFORM | Usage::COPY_DST)?;
    size.write(0, &n.to_le_bytes())?;
    let pipeline = precision.pipeline()?;
    let group = pipeline.bind(0, &[(0, &size), (1, &a), (2, &b), (3, &c)])?;
    fastest(repeats, || run(&pipeline, &[&group], product::workgroups(n)))
}

fn peak(request: &Request) -> Result<f64> {
    let sums = Buffer::new("sums", u64::from(request.invocations) * 4, Usage::STORAGE)?;
    let pipeline = Shader::new("peak", PEAK)?.pipeline("peak", &[("rounds", request.rounds.into())])?;
    let group = pipeline.bind(0, &[(0, &sums)])?;
    let workgroups = [request.invocations / PEAK_WORKGROUP, 1, 1];
    fastest(request.repeats, || run(&pipeline, &[&group], workgroups))
}

/// Seconds into the device, and out of it.
fn transfers(data: &Reader, writer: &mut Writer, request: &Request) -> Result<(f64, f64)> {
    let usage = Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC;
    let buffer = Buffer::new("data", request.bytes, usage)?;
    let load = fastest(request.repeats, || {
        buffer.load(0, data, 0, request.bytes)?;
        // Waits until the last bytes have arrived.
        buffer.read(request.bytes - 4, 4).map(drop)
    })?;
    let store = fastest(request.repeats, || buffer.store(0, request.bytes, writer))?;
    Ok((load, store))
}

/// Seconds of the middle one of some submissions.
fn dispatches(submissions: u32) -> Result<f64> {
    let pipeline = Shader::new("nothing", NOTHING)?.pipeline("nothing", &[])?;
    let times = (0..submissions).map(|_| seconds(|| run(&pipeline, &[], [1, 1, 1])));
    let mut times = times.collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn run(pipeline: &Pipeline, groups: &[&BindGroup], workgroups: [u32; 3]) -> Result<()> {
    let commands = Commands::new()?;
    commands.dispatch(pipeline, groups, workgroups)?;
    commands.submit()?.wait().map(drop)
}

/// Seconds of the fastest of some, after one that does not count.
fn fastest(repeats: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    (0..repeats).try_fold(f64::INFINITY, |best, _| Ok(best.min(seconds(&mut call)?)))
}

fn seconds(call: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = now();
    call()?;
    Ok(now() - begin)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_cannot_be_are_refused() {
        for bad in [
            Request { n: 17, ..Request::default() },
            Request { bytes: 5, ..Request::default() },
            Request { repeats: 0, ..Request::default() },
        ] {
            assert_eq!(gpu_speed(bad).unwrap_err().kind, fanfold::ErrorKind::Invalid);
        }
    }
}
