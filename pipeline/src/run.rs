//! The driver: what the scheduler decides, as calls; what the calls return, as news for the scheduler.

use std::collections::BTreeMap;

use fanfold::{Call, Durability, Error, ErrorKind, Future, Partition, Result};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    checkpoint,
    schedule::{Engine, Input, Launch, Limits, Mode, Slice, Stuck},
    settings::{Piece, Report, Settings},
    stage::{Needs, OnError, Pipeline},
    status,
    task::{Ended, Given, Output, Work},
};

/// How to call a pipeline's task: one entry of the driver's own component, whose body is [`Pipeline::run`].
///
/// What the task needs beside these arguments to build the same pipeline, the implementation adds. It leaves resources and
/// durability alone: they are the stage's.
pub trait Tasks {
    /// A share of the input.
    type Split: Clone + Serialize + DeserializeOwned + 'static;

    /// A call of the task.
    fn stage(&self, work: Work<Self::Split>, inputs: Vec<Partition>) -> Call<Output>;
}

/// Runs a pipeline over splits to its end. What it does not write as objects is given to `take`, piece by piece, while
/// tasks go on: a slow taker holds the pipeline back. `take` should pass pieces on to tasks: what it reads itself, the driver
/// reads again if it is replayed, and by then that may have to be made again.
///
/// # Errors
/// `invalid` for settings that cannot be; `limit` where one row is larger than the memory; what a task failed with, and
/// what `take` failed with.
pub fn run<T: Tasks>(
    tasks: &T,
    pipeline: &Pipeline<T::Split>,
    splits: &[T::Split],
    settings: &Settings,
    mut take: impl FnMut(Piece) -> Result<()>,
) -> Result<Report> {
    settings.check(pipeline)?;
    let mut driver = Driver::new(tasks, pipeline, splits, settings)?;
    loop {
        while let Some(launch) = driver.engine.launch() {
            driver.start(&launch)?;
        }
        driver.say(settings);
        if let Some(stuck) = driver.engine.stuck() {
            return Err(too_large(&stuck));
        }
        if driver.running.is_empty() {
            return Ok(driver.report(settings.mode));
        }
        driver.wait()?;
        driver.give(&mut take)?;
    }
}

struct Driver<'a, T: Tasks> {
    tasks: &'a T,
    pipeline: &'a Pipeline<T::Split>,
    splits: &'a [T::Split],
    engine: Engine,
    /// The stages' names.
    names: Vec<String>,
    running: Vec<Running>,
    /// Partitions that wait or are read, by the engine's numbers.
    held: BTreeMap<u64, Future<Partition>>,
    checkpoint: Option<String>,
    resumed: u64,
    taken: u64,
    skipped: u64,
    dead: Vec<Partition>,
}

struct Running {
    launch: Launch,
    ended: Future<Ended>,
    made: Future<Partition>,
    dead: Future<Partition>,
}

impl<'a, T: Tasks> Driver<'a, T> {
    fn new(
        tasks: &'a T,
        pipeline: &'a Pipeline<T::Split>,
        splits: &'a [T::Split],
        settings: &Settings,
    ) -> Result<Self> {
        let there = &settings.capacity;
        let mut capacity = vec![there.cpu_millis, there.gpu];
        capacity.extend(there.custom.iter().map(|(_, count)| count));
        let names: Vec<&str> = there.custom.iter().map(|(name, _)| &**name).collect();
        let shapes = pipeline.shapes(&capacity, &names)?;
        let checkpoint = match &settings.checkpoint {
            Some(prefix) => {
                let sizes = (settings.target_bytes, settings.memory_bytes);
                Some(checkpoint::identified(prefix, pipeline, splits, sizes)?)
            }
            None => None,
        };
        let done = checkpoint.as_ref().map_or(Ok(Vec::new()), |prefix| done(tasks, prefix))?;
        let limits = Limits {
            mode: settings.mode,
            memory_bytes: settings.memory_bytes,
            target_bytes: settings.target_bytes,
            capacity,
            keyed: settings.ordered || checkpoint.is_some(),
            ordered: settings.ordered && pipeline.objects.is_none(),
        };
        let left = (0..splits.len() as u32).filter(|split| done.binary_search(split).is_err());
        Ok(Self {
            names: shapes.iter().map(|shape| shape.name.clone()).collect(),
            engine: Engine::new(shapes, limits, left),
            tasks,
            pipeline,
            splits,
            running: Vec::new(),
            held: BTreeMap::new(),
            checkpoint,
            resumed: done.len() as u64,
            taken: 0,
            skipped: 0,
            dead: Vec::new(),
        })
    }

    fn start(&mut self, launch: &Launch) -> Result<()> {
        let (given, skip, inputs) = match &launch.input {
            Input::Split { split, row, skip } => {
                let split = self.splits.get(*split as usize).cloned();
                let split = split.ok_or_else(|| Error::guest("a split that there is not"))?;
                (Given::Split(split, *row), *skip, Vec::new())
            }
            Input::Slices(slices) => {
                let partition = |slice: &Slice| self.held.get(&slice.hold).map(Future::as_partition);
                let inputs = slices.iter().filter_map(partition).collect();
                let skip = slices.first().map_or(0, |slice| slice.skip);
                (Given::Rows(slices.iter().map(|slice| slice.rows.clone()).collect()), skip, inputs)
            }
        };
        let Launch { stage, grant, whole, ref key, .. } = *launch;
        let work = Work { stage, given, skip, grant, whole, key: key.clone() };
        // What may be part of the job's result outlives the executor's memory; the rest is made again if it is lost.
        let dead = matches!(self.pipeline.on_error, OnError::Skip(_));
        let durable = dead || stage + 1 == self.pipeline.stages.len();
        let call = self.tasks.stage(work, inputs).label(&self.names[stage]);
        let call = with(call, &self.pipeline.stages[stage].needs, durable);
        let (ended, made, dead) = call.submit()?;
        self.running.push(Running { launch: launch.clone(), ended, made, dead });
        Ok(())
    }

    /// Says how the stages stand, to those who watch.
    fn say(&self, settings: &Settings) {
        let custom = settings.capacity.custom.iter().map(|(name, _)| &**name);
        let resources: Vec<&str> = ["a slot", "a gpu"].into_iter().chain(custom).collect();
        fanfold::status(&status::text(&self.engine, &self.names, &resources, settings.memory_bytes));
    }

    /// Waits until a task has ended, and tells the engine of all that have.
    fn wait(&mut self) -> Result<()> {
        let futures: Vec<_> = self.running.iter().map(|running| &running.ended).collect();
        let ready = fanfold::wait(&futures, 1, None)?;
        for position in ready.into_iter().rev() {
            let Running { launch, ended, made, dead } = self.running.swap_remove(position);
            let ended = ended.get().map_err(|error| error.context(self.describe(&launch)))?;
            if let Some(hold) = self.engine.done(launch.id, &ended.outcome) {
                self.held.insert(hold, made);
            }
            self.give_up(ended.skipped, &dead)?;
        }
        for hold in self.engine.take_freed() {
            self.held.remove(&hold);
        }
        Ok(())
    }

    fn give_up(&mut self, skipped: u64, dead: &Future<Partition>) -> Result<()> {
        if skipped == 0 {
            return Ok(());
        }
        self.skipped += skipped;
        self.dead.push(dead.as_partition());
        match self.pipeline.on_error {
            OnError::Skip(most) if self.skipped > most => {
                Err(Error::guest(format!("{} rows failed: at most {most} may be skipped", self.skipped)))
            }
            _ => Ok(()),
        }
    }

    /// Gives away what has left the last stage, and notes which splits are done.
    fn give(&mut self, take: &mut impl FnMut(Piece) -> Result<()>) -> Result<()> {
        while let Some(slice) = self.engine.take_out() {
            if let Some(future) = self.held.get(&slice.hold) {
                take(Piece { partition: future.as_partition(), rows: slice.rows.clone() })?;
            }
            self.taken += slice.rows.end - slice.rows.start;
            self.engine.release(&slice);
        }
        for hold in self.engine.take_freed() {
            self.held.remove(&hold);
        }
        let done = self.engine.take_done_splits();
        match &self.checkpoint {
            Some(prefix) => done.into_iter().try_for_each(|split| checkpoint::note(prefix, split)),
            None => Ok(()),
        }
    }

    /// For errors: what a task was about.
    fn describe(&self, launch: &Launch) -> String {
        let what = match &launch.input {
            Input::Split { split, row, .. } => format!("split {split} from row {row}"),
            Input::Slices(slices) => {
                let of = |slice: &Slice| format!("rows {:?} of {:?}", slice.rows, slice.key);
                slices.iter().map(of).collect::<Vec<_>>().join(", ")
            }
        };
        format!("stage `{}`, {what}", self.names[launch.stage])
    }

    fn report(self, mode: Mode) -> Report {
        let totals = self.engine.totals();
        let written = totals.last().filter(|_| self.pipeline.objects.is_some()).map(|last| last.rows);
        let names = self.names.into_iter();
        Report {
            mode,
            splits: self.splits.len() as u64 - self.resumed,
            resumed: self.resumed,
            rows: written.unwrap_or(self.taken),
            skipped: self.skipped,
            dead: self.dead,
            peak_bytes: self.engine.peak_bytes(),
            stages: names.zip(totals).collect(),
        }
    }
}

/// The call with what its stage needs.
fn with(call: Call<Output>, needs: &Needs, durable: bool) -> Call<Output> {
    let durability = if durable { Durability::Lazy } else { Durability::None };
    let call = call.cpu_millis(needs.cpu_millis).durability(durability);
    let call = match needs.memory {
        Some(bytes) => call.memory(bytes),
        None => call,
    };
    let call = if needs.gpu > 0 { call.gpu(needs.gpu) } else { call };
    needs.custom.iter().fold(call, |call, (name, count)| call.resource(name, *count))
}

/// Asks a task which splits are done. Its answer is kept: later there will be more.
fn done<T: Tasks>(tasks: &T, prefix: &str) -> Result<Vec<u32>> {
    let call = tasks.stage(Work::checkpoint(prefix), Vec::new()).label("checkpoint");
    let call = call.durability(Durability::Eager);
    let (ended, ..) = call.submit()?;
    let mut done = ended.get()?.done;
    done.sort_unstable();
    Ok(done)
}

fn too_large(stuck: &Stuck) -> Error {
    let Stuck { stage, wants_bytes, memory_bytes } = stuck;
    Error::new(
        ErrorKind::Limit,
        format!(
            "stage `{stage}` needs {wants_bytes} bytes at once: raise the memory limit of {memory_bytes} to more"
        ),
    )
}
