//! The task of all stages: takes rows, runs the stage's steps on them, and makes one partition of what becomes of them.
//!
//! A task stops before the batch whose rows would exceed its grant, and says where, so that another one can go on there. The
//! scheduler therefore has every partition in hand as soon as it exists, and decides about the rest; and what has to run
//! again when something is lost is one partition's worth of work.

use std::{io::Write, ops::Range};

use fanfold::{Error, Inputs, Outputs, Partition, Result, objects};
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint,
    dead::Dead,
    feed::{Batch, Feed},
    rows::{LENGTH_BYTES, Row, RowWriter, bytes_of},
    schedule::{Outcome, Stop},
    stage::{Loaded, Pipeline, Stage},
};

/// What a stage's task is to do: an argument for your task, to be passed on to [`Pipeline::run`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work<S> {
    pub(crate) stage: usize,
    pub(crate) given: Given<S>,
    /// Outputs of the first batch that were made already.
    pub(crate) skip: u64,
    /// Bytes that it may make.
    pub(crate) grant: u64,
    /// It does not stop when they are used up.
    pub(crate) whole: bool,
    /// The name of its rows.
    pub(crate) key: Vec<u64>,
}

/// A task's input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Given<S> {
    /// A split, from a row on.
    Split(S, u64),
    /// Rows of each of the partitions that come with it.
    Rows(Vec<Range<u64>>),
    /// Nothing: it tells which splits the objects under this prefix say are done.
    Checkpoint(String),
}

impl<S> Work<S> {
    pub(crate) fn checkpoint(prefix: &str) -> Self {
        let given = Given::Checkpoint(prefix.to_owned());
        Self { stage: 0, given, skip: 0, grant: 0, whole: false, key: Vec::new() }
    }
}

/// What a stage's task returns: how it ended, its rows, and the rows it gave up.
pub type Output = Outputs<(Ended, Partition, Partition)>;

/// How a stage's task ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ended {
    pub(crate) outcome: Outcome,
    /// Rows it gave up.
    pub(crate) skipped: u64,
    /// Splits that are done, if it was asked for those.
    pub(crate) done: Vec<u32>,
}

impl<S> Pipeline<S> {
    /// The body of the task.
    ///
    /// # Errors
    /// Those of reading; what a step failed with, where that is not to be skipped.
    pub fn run(&self, work: &Work<S>, inputs: &Inputs<Partition>) -> Result<Output> {
        let feed = match &work.given {
            Given::Split(split, row) => Feed::of_split((self.read)(split, *row)?, *row),
            Given::Rows(rows) => Feed::of_partitions(inputs, rows),
            Given::Checkpoint(prefix) => return ended(checkpoint::done(prefix)?),
        };
        let stage = self.stages.get(work.stage).ok_or_else(|| {
            Error::invalid(format!(
                "no stage {} among {}: was the pipeline built differently?",
                work.stage,
                self.stages.len()
            ))
        })?;
        let sink = self.objects.as_ref().filter(|_| work.stage + 1 == self.stages.len());
        let made = match sink {
            Some(prefix) => Made::Object(prefix, None),
            None => Made::Partition,
        };
        let steps = stage.steps.iter().map(|step| (step.load)()).collect::<Result<_>>()?;
        let out = RowWriter::for_output(1)?;
        let dead = Dead::new(self.on_error, self.name(work.stage), work.key.clone())?;
        let mut task = Task { stage, work, feed, steps, made, out, dead, rows: 0, total: 0, largest: 0 };
        let end = task.process()?;
        task.finish(end)
    }
}

/// Nothing but splits that are done.
fn ended(done: Vec<u32>) -> Result<Output> {
    let ended = Ended { done, ..Ended::default() };
    Ok(Outputs((ended, RowWriter::for_output(1)?.finish()?, RowWriter::for_output(2)?.finish()?)))
}

/// Where rows go.
enum Made<'a> {
    Partition,
    /// Before the object's name, and the object once there is a row.
    Object(&'a str, Option<objects::ObjectWriter>),
}

struct Task<'a, S> {
    stage: &'a Stage,
    work: &'a Work<S>,
    feed: Feed,
    steps: Vec<Loaded>,
    made: Made<'a>,
    out: RowWriter,
    dead: Dead,
    /// Rows and bytes made.
    rows: u64,
    total: u64,
    /// Bytes of the largest batch that was made: the next one is expected to be as large.
    largest: u64,
}

/// Why a task ends: its input does, it stops there, or what it made needs so many bytes.
enum End {
    Input,
    At(Stop),
    Wants(u64),
}

impl<S> Task<'_, S> {
    fn process(&mut self) -> Result<End> {
        let mut skip = self.work.skip as usize;
        loop {
            if self.feed.is_at_end() {
                return Ok(End::Input);
            }
            if self.splits() && self.rows > 0 && self.total + self.largest > self.work.grant {
                return Ok(End::At(self.feed.stop(0)));
            }
            let Some(batch) = self.feed.next(self.stage.batch)? else { return Ok(End::Input) };
            let mut made = self.steps(&batch)?;
            made.drain(..skip.min(made.len()));
            let bytes = bytes_of(&made);
            self.largest = self.largest.max(bytes);
            if self.splits() && self.rows > 0 && self.total + bytes > self.work.grant {
                return Ok(End::At(batch.start(skip)));
            }
            if skip > 0 {
                self.dead.forget();
            }
            self.dead.keep()?;
            if self.splits() && bytes > self.work.grant {
                return self.part(&batch, &made, skip);
            }
            for row in made {
                self.write(&row)?;
            }
            skip = 0;
        }
    }

    /// Whether it stops when its grant is used up.
    fn splits(&self) -> bool {
        matches!(self.made, Made::Partition) && !self.work.whole
    }

    /// The task's first batch does not fit. What becomes of one row can be split, what becomes of several cannot: the next
    /// task could not tell which rows they were.
    fn part(&mut self, batch: &Batch, made: &[Row], skip: usize) -> Result<End> {
        if batch.rows.len() > 1 {
            return Ok(End::Wants(bytes_of(made)));
        }
        for (done, row) in (skip..).zip(made) {
            let bytes = bytes_of([row]);
            if self.total + bytes > self.work.grant {
                return Ok(if done == skip { End::Wants(bytes) } else { End::At(batch.start(done)) });
            }
            self.write(row)?;
        }
        Ok(End::Input)
    }

    fn write(&mut self, row: &[u8]) -> Result<()> {
        self.rows += 1;
        self.total += row.len() as u64 + LENGTH_BYTES;
        match &mut self.made {
            Made::Object(prefix, object) => {
                let object = match object {
                    Some(object) => object,
                    None => object.insert(objects::create(&name(prefix, &self.work.key))?),
                };
                Ok(object.write_all(row)?)
            }
            // What is too much is only counted.
            Made::Partition if self.total > self.work.grant => Ok(()),
            Made::Partition => self.out.push(row),
        }
    }

    /// What becomes of a batch.
    fn steps(&mut self, batch: &Batch) -> Result<Vec<Row>> {
        let mut rows: Option<Vec<Row>> = None;
        for (step, loaded) in self.stage.steps.iter().zip(&mut self.steps) {
            let given = rows.as_deref().unwrap_or(&batch.rows);
            let mut made = Vec::with_capacity(given.len());
            match loaded {
                Loaded::Each(each) => {
                    for row in given {
                        match each(row) {
                            Ok(rows) => made.extend(rows),
                            Err(error) => {
                                self.dead.take(&step.name, batch.first, std::slice::from_ref(row), error)?
                            }
                        }
                    }
                }
                Loaded::Batch(map) => match map(given) {
                    Ok(rows) => made.extend(rows),
                    Err(error) => self.dead.take(&step.name, batch.first, given, error)?,
                },
            }
            rows = Some(made);
        }
        Ok(rows.unwrap_or_else(|| batch.rows.clone()))
    }

    fn finish(self, end: End) -> Result<Output> {
        let bytes = match self.made {
            Made::Object(_, Some(object)) => {
                object.finish()?;
                0
            }
            Made::Object(_, None) => 0,
            Made::Partition => self.total,
        };
        let wants = match end {
            End::Wants(wants) => wants,
            _ if self.work.whole && bytes > self.work.grant => bytes,
            _ => 0,
        };
        let stop = match end {
            End::At(stop) => Some(stop),
            End::Input | End::Wants(_) => None,
        };
        let outcome = match wants {
            0 => Outcome { stop, rows: self.rows, bytes, wants },
            _ => Outcome { wants, ..Outcome::default() },
        };
        let (skipped, dead) = self.dead.finish(wants == 0)?;
        let ended = Ended { outcome, skipped, done: Vec::new() };
        Ok(Outputs((ended, self.out.finish()?, dead)))
    }
}

/// The name of the object for a key: fixed width, so that names sort as keys do.
fn name(prefix: &str, key: &[u64]) -> String {
    let parts: Vec<String> = key.iter().map(|part| format!("{part:010}")).collect();
    format!("{prefix}{}", parts.join("-"))
}
