//! From a checked plan to a command buffer, and what a submission leaves behind for us: timestamps and the counts of its indirect
//! dispatches.
//!
//! Those counts are known only when the device comes to the dispatch. `wgpu` has the device run nothing where they are too large;
//! here they are also copied out just before, so that the submission's end can say so.

use fanfold_protocol::Error;
use wgpu::{BufferUsages, CommandEncoder};

use super::device::Device;
use crate::{check, message::Done};

/// Bytes of three counts, and of two timestamps.
pub(super) const COUNTS_BYTES: u64 = 12;
const TIMES_BYTES: u64 = 16;

/// What is to be recorded: handles have been looked up, numbers have been checked.
#[derive(Default)]
pub(super) struct Plan<'a> {
    /// In order.
    pub steps: Vec<Step<'a>>,
    /// Timed passes among them.
    pub timed: u32,
    /// Indirect dispatches among them.
    pub indirect: u64,
}

/// One command.
pub(super) enum Step<'a> {
    Pass { timed: Option<u32>, dispatches: Vec<Run<'a>> },
    Copy { from: (&'a wgpu::Buffer, u64), to: (&'a wgpu::Buffer, u64), length: u64 },
    Zero { buffer: &'a wgpu::Buffer, offset: u64, length: u64 },
}

/// One dispatch.
pub(super) struct Run<'a> {
    pub pipeline: &'a wgpu::ComputePipeline,
    pub groups: Vec<&'a wgpu::BindGroup>,
    pub counts: Counts<'a>,
}

/// How many workgroups. `number` counts the indirect ones of a submission.
pub(super) enum Counts<'a> {
    Direct([u32; 3]),
    Indirect { buffer: &'a wgpu::Buffer, offset: u64, number: u64 },
}

/// A buffer that holds what a submission leaves behind: the timestamps, then the counts.
pub(super) struct Receipt {
    pub buffer: wgpu::Buffer,
    timed: u32,
}

impl Receipt {
    /// For a plan that leaves something behind.
    fn new(device: &wgpu::Device, plan: &Plan<'_>) -> Option<Self> {
        let size = u64::from(plan.timed) * TIMES_BYTES + plan.indirect * COUNTS_BYTES;
        (size > 0).then(|| Self {
            buffer: device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage: BufferUsages::COPY_DST | BufferUsages::MAP_READ,
                mapped_at_creation: false,
            }),
            timed: plan.timed,
        })
    }

    fn counts_at(&self, number: u64) -> u64 {
        u64::from(self.timed) * TIMES_BYTES + number * COUNTS_BYTES
    }

    /// What it says, once it is filled and mapped. `bytes` are its own.
    pub fn read(&self, bytes: &[u8], device: &Device, done: &mut Done) {
        let (times, counts) = bytes.split_at(self.counts_at(0) as usize);
        let period = f64::from(device.queue.get_timestamp_period());
        let nanoseconds = |ticks: &[u8; 8]| (u64::from_le_bytes(*ticks) as f64 * period) as u64;
        let pairs = times.as_chunks::<8>().0.as_chunks::<2>().0;
        done.timestamps = pairs.iter().map(|pair| pair.each_ref().map(nanoseconds)).collect();
        let mut counts = counts.as_chunks::<4>().0.as_chunks::<3>().0.iter().enumerate();
        let checked: Result<(), Error> = counts.try_for_each(|(at, words)| {
            let counts = words.map(u32::from_le_bytes);
            let checked = check::workgroups(counts, &device.adapter.limits);
            checked.map_err(|e| e.context(format!("indirect dispatch {at} of the submission ran nothing")))
        });
        done.error = checked.err();
    }
}

/// Timestamps of the timed passes.
struct Times {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    count: u32,
}

impl Times {
    fn new(device: &wgpu::Device, passes: u32) -> Option<Self> {
        let count = 2 * passes;
        (count > 0).then(|| Self {
            set: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count,
            }),
            resolved: device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: u64::from(passes) * TIMES_BYTES,
                usage: BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            }),
            count,
        })
    }

    fn copy_to(&self, receipt: &Receipt, encoder: &mut CommandEncoder) {
        encoder.resolve_query_set(&self.set, 0..self.count, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &receipt.buffer, 0, Some(self.resolved.size()));
    }
}

/// Records a plan. To be called in a scope for errors.
pub(super) fn record(device: &wgpu::Device, plan: &Plan<'_>) -> (wgpu::CommandBuffer, Option<Receipt>) {
    let mut encoder = device.create_command_encoder(&Default::default());
    let (times, receipt) = (Times::new(device, plan.timed), Receipt::new(device, plan));
    for step in &plan.steps {
        match step {
            Step::Pass { timed, dispatches } => {
                let timed = times.as_ref().zip(*timed);
                record_pass(&mut encoder, dispatches, timed, receipt.as_ref());
            }
            Step::Copy { from, to, length } => {
                encoder.copy_buffer_to_buffer(from.0, from.1, to.0, to.1, Some(*length));
            }
            Step::Zero { buffer, offset, length } => encoder.clear_buffer(buffer, *offset, Some(*length)),
        }
    }
    if let Some((times, receipt)) = times.as_ref().zip(receipt.as_ref()) {
        times.copy_to(receipt, &mut encoder);
    }
    (encoder.finish(), receipt)
}

/// Records a pass. Nothing can be copied within one, so it is cut before each indirect dispatch; its first part has its first
/// timestamp and its last part the last.
fn record_pass(
    encoder: &mut CommandEncoder,
    dispatches: &[Run<'_>],
    timed: Option<(&Times, u32)>,
    receipt: Option<&Receipt>,
) {
    let is_indirect = |run: &Run<'_>| matches!(run.counts, Counts::Indirect { .. });
    let mut parts: Vec<_> = dispatches.chunk_by(|_, next| !is_indirect(next)).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let last = parts.len() - 1;
    for (at, part) in parts.into_iter().enumerate() {
        if let Some(Run { counts: Counts::Indirect { buffer, offset, number }, .. }) = part.first()
            && let Some(receipt) = receipt
        {
            let target = receipt.counts_at(*number);
            encoder.copy_buffer_to_buffer(buffer, *offset, &receipt.buffer, target, Some(COUNTS_BYTES));
        }
        let timestamp_writes =
            timed.filter(|_| at == 0 || at == last).map(|(times, number)| wgpu::ComputePassTimestampWrites {
                query_set: &times.set,
                beginning_of_pass_write_index: (at == 0).then_some(2 * number),
                end_of_pass_write_index: (at == last).then_some(2 * number + 1),
            });
        let mut pass =
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        for run in part {
            run.record(&mut pass);
        }
    }
}

impl Run<'_> {
    fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(self.pipeline);
        for (index, group) in (0..).zip(&self.groups) {
            pass.set_bind_group(index, *group, &[]);
        }
        match self.counts {
            Counts::Direct([x, y, z]) => pass.dispatch_workgroups(x, y, z),
            Counts::Indirect { buffer, offset, .. } => pass.dispatch_workgroups_indirect(buffer, offset),
        }
    }
}
