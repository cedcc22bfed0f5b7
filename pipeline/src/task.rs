//! The task of all stages: takes rows, runs the stage's steps on them, and makes one partition of what becomes of them.
//!
//! A task stops before the batch whose rows would exceed its grant, and says where: the next one goes on there. So it is
//! nothing that a running task holds back, but what it returns, that the scheduler has to reckon with; and what has to run
//! again when something is lost is one partition's worth of work.

use std::{collections::VecDeque, io::Write, ops::Range};

use fanfold::{Error, Inputs, Outputs, Partition, Result, objects};
use serde::{Deserialize, Serialize};

use crate::{
    dead::Dead,
    rows::{LENGTH_BYTES, Row, RowWriter, Rows, bytes_of},
    schedule::{Outcome, Stop},
    stage::{Loaded, Pipeline, RowIter, Stage},
};

/// What a stage's task is to do: an argument for your task, to be passed on to [`Pipeline::run`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work<S> {
    pub(crate) stage: usize,
    /// For the first stage.
    pub(crate) split: Option<S>,
    /// Where it begins in the split, or in each of its partitions.
    pub(crate) rows: Vec<Range<u64>>,
    /// Outputs of the first batch that were made already.
    pub(crate) skip: u64,
    pub(crate) grant: u64,
    pub(crate) whole: bool,
    /// The name of its rows.
    pub(crate) key: Vec<u64>,
    /// Instead of all that: which splits the objects under this prefix say are done.
    pub(crate) checkpoint: Option<String>,
}

impl<S> Work<S> {
    /// To tell which splits are done.
    pub(crate) fn checkpoint(prefix: &str) -> Self {
        let checkpoint = Some(prefix.to_owned());
        let (split, rows, key) = (None, Vec::new(), Vec::new());
        Self { stage: 0, split, rows, skip: 0, grant: 0, whole: false, key, checkpoint }
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
        if let Some(prefix) = &work.checkpoint {
            let ended = Ended { done: crate::checkpoint::done(prefix)?, ..Ended::default() };
            return Ok(Outputs((ended, RowWriter::for_output(1)?.finish()?, RowWriter::for_output(2)?.finish()?)));
        }
        let stage = self.stages.get(work.stage).ok_or_else(|| {
            Error::invalid(format!("no stage {} among {}: was the pipeline built differently?", work.stage, self.stages.len()))
        })?;
        let sink = self.objects.as_ref().filter(|_| work.stage + 1 == self.stages.len());
        let made = match sink {
            Some(prefix) => Made::Object(prefix, None),
            None => Made::Partition,
        };
        let feed = match &work.split {
            Some(split) => Feed::of_split((self.read)(split, work.rows.first().map_or(0, |rows| rows.start))?, work),
            None => Feed::of_partitions(inputs, work),
        };
        let steps = stage.steps.iter().map(|step| (step.load)()).collect::<Result<_>>()?;
        let out = RowWriter::for_output(1)?;
        let dead = Dead::new(self.on_error, self.name(work.stage), work.key.clone())?;
        let mut task = Task { stage, work, feed, steps, made, out, dead, rows: 0, total: 0, largest: 0 };
        let end = task.process()?;
        task.finish(end)
    }
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

    /// The task's first batch does not fit: as much of it is made as does. The rest is found again only where the batch has
    /// all its rows from one place.
    fn part(&mut self, batch: &Batch, made: &[Row], skip: usize) -> Result<End> {
        if !batch.of_one {
            return Ok(End::Wants(bytes_of(made)));
        }
        let mut done = skip;
        for row in made {
            let bytes = bytes_of([row]);
            if self.total + bytes > self.work.grant {
                return Ok(if done == skip { End::Wants(bytes) } else { End::At(batch.start(done)) });
            }
            self.write(row)?;
            done += 1;
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
                            Err(error) => self.dead.take(&step.name, batch.first, std::slice::from_ref(row), error)?,
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

/// Rows that are processed together.
struct Batch {
    rows: Vec<Row>,
    /// Where it begins: slice and row.
    first: (u32, u64),
    /// All of it is from one slice.
    of_one: bool,
}

impl Batch {
    fn start(&self, skip: usize) -> Stop {
        Stop { slice: self.first.0, row: self.first.1, skip: skip as u64 }
    }
}

/// The rows of a task's input, and where it is in them.
struct Feed {
    current: Option<RowIter>,
    /// Partitions after the current one, and their rows.
    left: VecDeque<(Partition, Range<u64>)>,
    slice: u32,
    row: u64,
}

impl Feed {
    fn of_split<S>(rows: RowIter, work: &Work<S>) -> Self {
        let row = work.rows.first().map_or(0, |rows| rows.start);
        Self { current: Some(rows), left: VecDeque::new(), slice: 0, row }
    }

    fn of_partitions<S>(inputs: &Inputs<Partition>, work: &Work<S>) -> Self {
        let left = inputs.iter().cloned().zip(work.rows.iter().cloned()).collect();
        // The first partition is number 0: it is reached by wrapping around.
        Self { current: None, left, slice: u32::MAX, row: 0 }
    }

    /// Whether it is known that there are no more rows, without making one.
    fn is_at_end(&self) -> bool {
        let ended = |rows: &RowIter| rows.size_hint().1 == Some(0);
        self.left.is_empty() && self.current.as_ref().is_none_or(ended)
    }

    /// Before the next row.
    fn stop(&self, skip: u64) -> Stop {
        match (&self.current, self.left.front()) {
            (Some(rows), Some((_, next))) if rows.size_hint().1 == Some(0) => {
                Stop { slice: self.slice + 1, row: next.start, skip }
            }
            _ => Stop { slice: self.slice, row: self.row, skip },
        }
    }

    /// The next rows, as many if there are; `None` at the end.
    fn next(&mut self, count: u64) -> Result<Option<Batch>> {
        let mut batch = Batch { rows: Vec::new(), first: (0, 0), of_one: true };
        while (batch.rows.len() as u64) < count {
            match self.current.as_mut().and_then(Iterator::next) {
                Some(row) => {
                    if batch.rows.is_empty() {
                        batch.first = (self.slice, self.row);
                    }
                    batch.of_one &= batch.first.0 == self.slice;
                    batch.rows.push(row?);
                    self.row += 1;
                }
                None => {
                    let Some((partition, rows)) = self.left.pop_front() else { break };
                    (self.slice, self.row) = (self.slice.wrapping_add(1), rows.start);
                    self.current = Some(Box::new(Rows::open(&partition, Some(rows))?));
                }
            }
        }
        Ok((!batch.rows.is_empty()).then_some(batch))
    }
}
