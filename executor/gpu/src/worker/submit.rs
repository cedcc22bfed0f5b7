//! Submissions: commands checked one by one, recorded, handed to the device, and what is known when they have ended.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use fanfold_protocol::{Code, Error, Kind, limit};

use super::{
    device::Device,
    record::{COUNTS_BYTES, Counts, Plan, Receipt, Run, Step, record},
    session::Session,
};
use crate::{
    check::{self, invalid},
    message::{Command, Dispatch, Done, Limits, Workgroups},
};

/// Submissions that have not ended, oldest first.
#[derive(Default)]
pub(super) struct Submissions {
    last: u64,
    pending: VecDeque<Pending>,
    /// Those whose end the device has reported.
    ended: Arc<Mutex<Vec<u64>>>,
}

struct Pending {
    number: u64,
    index: wgpu::SubmissionIndex,
    receipt: Option<Receipt>,
}

impl Submissions {
    /// Whether all have ended.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The number of the last one that began; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// What to wait for, one after the other, until all up to number `last` have ended.
    pub fn until(&self, last: u64) -> Vec<wgpu::SubmissionIndex> {
        let pending = self.pending.iter().take_while(|pending| pending.number <= last);
        pending.map(|pending| pending.index.clone()).collect()
    }

    /// Takes out those that have ended.
    pub fn ended(&mut self, device: &Device) -> Vec<Done> {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        let mut done = Vec::new();
        for number in ended {
            if let Some(at) = self.pending.iter().position(|pending| pending.number == number)
                && let Some(pending) = self.pending.remove(at)
            {
                done.push(pending.done(device));
            }
        }
        done
    }

    /// Has the device report the end of what was just submitted.
    fn begin(&mut self, device: &Device, index: wgpu::SubmissionIndex, receipt: Option<Receipt>) -> u64 {
        self.last += 1;
        let (number, ended) = (self.last, Arc::clone(&self.ended));
        let report = move || ended.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        match &receipt {
            // Mapped when it has been filled; what cannot be mapped is found out when it is read.
            Some(receipt) => receipt.buffer.slice(..).map_async(wgpu::MapMode::Read, move |_| report()),
            None => device.queue.on_submitted_work_done(report),
        }
        self.pending.push_back(Pending { number, index, receipt });
        number
    }
}

impl Pending {
    fn done(self, device: &Device) -> Done {
        let mut done = Done { submission: self.number, timestamps: Vec::new(), error: None };
        if let Some(receipt) = self.receipt {
            match receipt.buffer.slice(..).get_mapped_range() {
                Ok(bytes) => receipt.read(&bytes, device, &mut done),
                Err(error) => done.error = Some(Error::internal(format!("a submission: {error}"))),
            }
        }
        done
    }
}

impl Session {
    /// Checks, records and submits.
    pub(super) fn submit(&mut self, commands: &[Command]) -> Result<u64, Error> {
        if self.submissions.pending.len() >= limit::GPU_SUBMISSIONS_MAX {
            let message = format!("{} submissions have not ended: wait for one", limit::GPU_SUBMISSIONS_MAX);
            return Err(Error::new(Kind::Limit, Code::GpuTime, message));
        }
        let plan = self.plan(commands)?;
        let device = &self.device;
        let (buffer, receipt) = device.guarded("recording commands", || record(&device.device, &plan))?;
        let index = device.guarded("submitting commands", || device.queue.submit([buffer]))?;
        self.staged = 0;
        Ok(self.submissions.begin(&self.device, index, receipt))
    }

    fn plan(&self, commands: &[Command]) -> Result<Plan<'_>, Error> {
        let count: usize = commands.iter().map(weight).sum();
        if count > limit::GPU_COMMANDS_MAX {
            return Err(invalid(format!(
                "{count} commands in one submission: at most {}",
                limit::GPU_COMMANDS_MAX
            )));
        }
        let mut plan = Plan::default();
        for (at, command) in commands.iter().enumerate() {
            self.plan_command(command, &mut plan).map_err(|e| e.context(format!("command {at}")))?;
        }
        Ok(plan)
    }

    fn plan_command<'a>(&'a self, command: &Command, plan: &mut Plan<'a>) -> Result<(), Error> {
        match command {
            Command::Pass { timed, dispatches } => {
                let number = plan.timed;
                if *timed {
                    check::timed(&self.device.adapter)?;
                    plan.timed += 1;
                }
                let mut planned = Vec::with_capacity(dispatches.len());
                for dispatch in dispatches {
                    planned.push(self.plan_dispatch(dispatch, &mut plan.indirect)?);
                }
                plan.steps.push(Step::Pass { timed: timed.then_some(number), dispatches: planned });
            }
            Command::Copy { source, source_offset, target, target_offset, length } => {
                let (from, to) = (self.buffers.get(*source)?, self.buffers.get(*target)?);
                check::usage(from.usage.copy_src, &from.label, "copy-src", "copying")?;
                check::usage(to.usage.copy_dst, &to.label, "copy-dst", "copying")?;
                check::part("copying from", *source_offset, *length, from.size)?;
                check::part("copying to", *target_offset, *length, to.size)?;
                if source == target {
                    return Err(invalid("copying within one buffer"));
                }
                let (from, to) = ((&from.buffer, *source_offset), (&to.buffer, *target_offset));
                plan.steps.push(Step::Copy { from, to, length: *length });
            }
            Command::Zero { buffer, offset, length } => {
                let target = self.buffers.get(*buffer)?;
                check::usage(target.usage.copy_dst, &target.label, "copy-dst", "zeroing")?;
                check::part("zeroing", *offset, *length, target.size)?;
                plan.steps.push(Step::Zero { buffer: &target.buffer, offset: *offset, length: *length });
            }
        }
        Ok(())
    }

    fn plan_dispatch(&self, dispatch: &Dispatch, indirect: &mut u64) -> Result<Run<'_>, Error> {
        let pipeline = self.pipelines.get(dispatch.pipeline)?;
        let (given, wanted) = (dispatch.groups.len(), pipeline.groups.len());
        if given != wanted {
            return Err(invalid(format!("{given} bind groups for a pipeline of {wanted}")));
        }
        let mut groups = Vec::with_capacity(given);
        for (index, handle) in dispatch.groups.iter().enumerate() {
            let group = self.groups.get(*handle)?;
            if group.index as usize != index {
                return Err(invalid(format!("bind group {index} was made for group {}", group.index)));
            }
            groups.push(&group.group);
        }
        let limits = &self.device.adapter.limits;
        let counts = self.plan_counts(dispatch.workgroups, limits, indirect)?;
        Ok(Run { pipeline: &pipeline.pipeline, groups, counts })
    }

    fn plan_counts(
        &self,
        workgroups: Workgroups,
        limits: &Limits,
        indirect: &mut u64,
    ) -> Result<Counts<'_>, Error> {
        match workgroups {
            Workgroups::Direct(counts) => {
                check::workgroups(counts, limits)?;
                Ok(Counts::Direct(counts))
            }
            Workgroups::Indirect { buffer, offset } => {
                let buffer = self.buffers.get(buffer)?;
                check::usage(buffer.usage.indirect, &buffer.label, "indirect", "dispatching")?;
                check::part("counts of an indirect dispatch", offset, COUNTS_BYTES, buffer.size)?;
                let number = *indirect;
                *indirect += 1;
                Ok(Counts::Indirect { buffer: &buffer.buffer, offset, number })
            }
        }
    }
}

/// What a command counts for.
fn weight(command: &Command) -> usize {
    match command {
        Command::Pass { dispatches, .. } => {
            dispatches.iter().map(|dispatch| 1 + dispatch.groups.len()).sum::<usize>() + 1
        }
        _ => 1,
    }
}
