//! Layers of tasks, each of which mixes partitions of the layer before it: `{"layers": 20, "width": 10}`.
//!
//! The answer is the last layer, one partition after the other. It depends on every byte of every task before, and on
//! nothing else, so two runs can be compared by their bytes.

use fanfold::{Durability, Future, Inputs, Result};
use serde::Deserialize;

/// The shape of the graph.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    layers: u32,
    width: u32,
    /// Partitions of the layer before that a task reads.
    #[serde(default = "three")]
    fan_in: u32,
    /// Bytes of each partition: more than fit into a message.
    #[serde(default = "bytes_default")]
    bytes: u32,
    /// How often a task goes over its bytes.
    #[serde(default = "three")]
    rounds: u32,
}

fn three() -> u32 {
    3
}

fn bytes_default() -> u32 {
    100_000
}

#[fanfold::function(tasks(mix))]
fn layers(request: Request) -> Result<Vec<u8>> {
    let Request { layers, width, fan_in, bytes, rounds } = request;
    // All futures are kept to the end, so that nothing is freed before: what is lost is all that has to be made again.
    let mut made: Vec<Vec<Future<Vec<u8>>>> = Vec::new();
    for layer in 0..layers {
        let tasks = (0..width).map(|column| {
            let inputs = made.last().map(|before| pick(before, column, fan_in)).unwrap_or_default();
            let seed = u64::from(layer) << 32 | u64::from(column);
            mix::call(seed, bytes, rounds, inputs).durability(Durability::Eager).submit()
        });
        let tasks = tasks.collect::<Result<_>>()?;
        made.push(tasks);
    }
    let last = made.last().map(|last| fanfold::wait_all(last)).transpose()?;
    Ok(last.unwrap_or_default().concat())
}

/// Neighbours of a column, around the edge.
fn pick(before: &[Future<Vec<u8>>], column: u32, count: u32) -> Vec<&Future<Vec<u8>>> {
    (0..count as usize).map(|n| &before[(column as usize + n * n) % before.len()]).collect()
}

/// Bytes that depend on all bytes of all inputs.
#[fanfold::task]
fn mix(seed: u64, bytes: u32, rounds: u32, inputs: Inputs<Vec<u8>>) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut output = vec![0; bytes as usize];
    for _ in 0..rounds {
        for input in inputs.iter() {
            output.iter_mut().zip(input).for_each(|(out, byte)| *out = step(&mut state, *out ^ byte));
        }
        output.iter_mut().for_each(|out| *out = step(&mut state, *out));
    }
    output
}

/// xorshift64*, with a byte stirred in.
fn step(state: &mut u64, byte: u8) -> u8 {
    *state ^= u64::from(byte) << 17;
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
}
