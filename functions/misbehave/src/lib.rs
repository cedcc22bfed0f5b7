//! Does on demand what a function must not do, to show that only its caller notices: `{"do": "loop"}`.

mod gpu;

use std::{hint::black_box, time::Duration};

use fanfold::{
    Error, ErrorKind, IntoOutputs, Result,
    raw::{PartitionId, Payload, Value},
    rt::bindings::fanfold::function::data,
};
use serde::Deserialize;

/// What to do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    r#do: Act,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Act {
    /// Nothing wrong: answers `ok`.
    Nothing,
    /// Computes for ever.
    Loop,
    /// Sleeps for an hour.
    Sleep,
    /// Says so and sleeps for an hour.
    Mumble,
    /// Executes an instruction that traps.
    Trap,
    /// Panics with a message.
    Panic,
    /// Takes memory until there is none.
    Allocate,
    /// Calls itself for ever.
    Recurse,
    /// Returns two outputs where one was asked for.
    Lie,
    /// Returns a partition that nobody made.
    Invent,
    /// Returns 100 MB inline, where 64 KiB may be.
    Oversize,
    /// Writes 8 MiB in one host call, where 1 MiB may be.
    Overwrite,
    /// Logs for ever.
    Flood,
    /// Prints for ever.
    Print,
    /// Fails with an error that is final.
    Error,
    /// Fails with an error that may be retried.
    Retry,
    /// Ends the process as failed.
    Exit,
    /// Says what computes on its gpu.
    GpuAdapter,
    /// Has a gpu compute for ever.
    GpuLoop,
    /// Takes more memory of a gpu than there is for a job.
    GpuAllocate,
    /// Has a shader compiled that nests too deep.
    GpuShader,
    /// Reads beyond a buffer.
    GpuOverrun,
    /// Records commands and submits none.
    GpuEncoders,
}

/// The misdeed.
#[fanfold::function]
fn misbehave(request: Request) -> Result<Answer> {
    match request.r#do {
        Act::Nothing => Ok(Answer(vec![inline(b"ok".to_vec())])),
        Act::Loop => compute(),
        Act::Sleep => sleep(),
        Act::Mumble => {
            println!("good night");
            fanfold::info!("sleeping");
            sleep()
        }
        Act::Trap => std::process::abort(),
        Act::Panic => panic!("asked to panic"),
        Act::Allocate => allocate(),
        Act::Recurse => Ok(Answer(vec![inline(vec![recurse(1) as u8])])),
        Act::Lie => Ok(Answer(vec![inline(b"one".to_vec()), inline(b"two".to_vec())])),
        Act::Invent => Ok(Answer(vec![Value::Partition(PartitionId { task: (0xbad, 0xbad), output: 7 })])),
        Act::Oversize => Ok(Answer(vec![inline(vec![0; 100_000_000])])),
        Act::Overwrite => overwrite(),
        Act::Flood => loop {
            fanfold::info!("{}", "flood ".repeat(100));
        },
        Act::Print => loop {
            println!("{}", "print ".repeat(100));
        },
        Act::Error => Err(Error::guest("asked to fail")),
        Act::Retry => Err(Error::new(ErrorKind::Guest, "asked to fail for now").retryable(true)),
        Act::Exit => std::process::exit(1),
        Act::GpuAdapter => gpu::adapter(),
        Act::GpuLoop => gpu::compute(),
        Act::GpuAllocate => gpu::allocate(),
        Act::GpuShader => gpu::nest(),
        Act::GpuOverrun => gpu::overrun(),
        Act::GpuEncoders => gpu::record(),
    }
}

/// Outputs as they are, right or wrong.
struct Answer(Vec<Value>);

impl IntoOutputs for Answer {
    fn into_outputs(self) -> Result<Vec<Value>> {
        Ok(self.0)
    }
}

fn inline(bytes: Vec<u8>) -> Value {
    Value::Inline(Payload { bytes, refs: Vec::new() })
}

fn compute() -> ! {
    let mut n = 0u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

fn sleep() -> Result<Answer> {
    #[allow(clippy::disallowed_methods, reason = "blocking is the point")]
    std::thread::sleep(Duration::from_secs(3600));
    Ok(Answer(vec![inline(b"awake".to_vec())]))
}

fn allocate() -> ! {
    let mut taken = Vec::new();
    loop {
        taken.push(black_box(vec![1u8; 1 << 20]));
    }
}

#[allow(unconditional_recursion, reason = "it is the point")]
fn recurse(depth: u64) -> u64 {
    // The sum is made after the call, so that it cannot become a loop; a small frame meets the engine's limit on its
    // stack before the end of the one in memory.
    black_box(depth) + recurse(depth + 1)
}

fn overwrite() -> Result<Answer> {
    let writer = data::create(0)?;
    writer.write(&vec![0; 8 << 20])?;
    Ok(Answer(vec![data::finish(writer)?]))
}
