//! Does a full shuffle before every epoch pay? Trains a classifier twice on data that is sorted by label, once on each
//! epoch's shuffle and once on the data as it lies, everything else equal, and says how accurate either is.
//!
//! Stochastic gradient descent assumes that successive samples are independent. Where data lies sorted (by label, day or
//! customer, as it nearly always does) the model forgets what it saw first. `fanfold_shuffle::strategy::epochs` makes the
//! shuffle of the next epoch while the present one is trained on.

pub mod model;

use std::ops::Range;

use fanfold::{Call, Error, Future, Inputs, Outputs, Partition, Result};
use fanfold_shuffle::{
    Blocks, Buffers, Column, Columns, Exchange, Layout, Output, Tally, Tasks, random::Random,
    strategy::epochs,
};
use serde::{Deserialize, Serialize};

use model::{Model, SAMPLE_BYTES, Steps};

/// Parts of the data at most.
const PARTS_MAX: u32 = 1024;
/// Tells the random numbers of shuffles from those of samples.
const SHUFFLES: u64 = 0x5fff_1e5e_ed00_0001;

/// What to train.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Samples to train on; a tenth as many are tested on.
    pub samples: u32,
    /// Partitions that they lie in, sorted.
    pub parts: u32,
    /// Times that all of them are gone through.
    pub epochs: u32,
    /// Of data and shuffles.
    pub seed: u64,
    /// Samples of one step.
    pub batch: usize,
    /// How far a step goes.
    pub rate: f32,
}

impl Default for Request {
    fn default() -> Self {
        Self { samples: 100_000, parts: 8, epochs: 5, seed: 1, batch: 16, rate: 0.4 }
    }
}

/// What came of it.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Share of the test samples that the model knows after every epoch, with a full shuffle before each.
    pub shuffled: Vec<f64>,
    /// The same for the data as it lies.
    pub unshuffled: Vec<f64>,
    /// Samples that went through a shuffle.
    pub samples_shuffled: u64,
    /// Bytes of one epoch.
    pub epoch_bytes: u64,
}

/// The driver.
///
/// # Errors
/// `invalid` for numbers that cannot be; what a task failed with.
#[fanfold::function(tasks(data, map, merge, reduce, train, test))]
pub fn sgd(request: Request) -> Result<Report> {
    check(&request)?;
    let Request { samples, parts, epochs, seed, batch, rate } = request;
    let steps = Steps { batch, rate };
    let layout = Layout::new(parts)?;
    let part = |number: u32| {
        let at = |number: u32| (u64::from(samples) * u64::from(number) / u64::from(parts)) as u32;
        data::submit(seed, 0, at(number)..at(number + 1), samples)
    };
    let sorted: Vec<Future<Vec<u8>>> = (0..parts).map(part).collect::<Result<_>>()?;
    let exam = data::submit(seed, 1, 0..samples.div_ceil(10), samples.div_ceil(10))?;
    let splits: Vec<Partition> = sorted.iter().map(Future::as_partition).collect();

    let (mut with, mut without) = (Training::new(&exam, steps)?, Training::new(&exam, steps)?);
    let mut report = Report { shuffled: vec![], unshuffled: vec![], samples_shuffled: 0, epoch_bytes: 0 };
    let shuffles = epochs::start(|epoch| Shuffle { seed: seed ^ SHUFFLES, epoch }, splits, layout, epochs)?;
    for epoch in shuffles {
        let epoch = epoch?;
        with.go_through(epoch.parts())?;
        without.go_through(&sorted)?;
        let (shuffled, unshuffled) = (with.accuracy()?, without.accuracy()?);
        fanfold::info!(
            "epoch {}: {shuffled:.4} of the test data known with a full shuffle, {unshuffled:.4} without",
            epoch.number
        );
        report.shuffled.push(shuffled);
        report.unshuffled.push(unshuffled);
        let shuffle = epoch.finish()?;
        report.samples_shuffled += shuffle.reduced.records_out;
        report.epoch_bytes = shuffle.mapped.bytes_out;
    }
    Ok(report)
}

fn check(request: &Request) -> Result<()> {
    let Request { samples, parts, epochs, batch, rate, .. } = request;
    if !(1..=PARTS_MAX).contains(parts) || samples < parts {
        return Err(Error::invalid(format!(
            "{samples} samples in {parts} parts: ask for 1 to {PARTS_MAX} parts, none empty"
        )));
    }
    if *epochs == 0 || *batch == 0 || !(rate.is_finite() && *rate > 0.0) {
        return Err(Error::invalid("epochs, batch and rate must be above 0"));
    }
    Ok(())
}

/// A model that is being trained.
struct Training<'a> {
    model: Future<Model>,
    exam: &'a Future<Vec<u8>>,
    steps: Steps,
}

impl<'a> Training<'a> {
    fn new(exam: &'a Future<Vec<u8>>, steps: Steps) -> Result<Self> {
        let untrained = train::submit(Model::default(), steps, [] as [Partition; 0])?;
        Ok(Self { model: untrained, exam, steps })
    }

    /// Learns from all parts, in order.
    fn go_through(&mut self, parts: &[Future<Vec<u8>>]) -> Result<()> {
        self.model = train::submit(&self.model, self.steps, parts.iter().map(Future::as_partition))?;
        Ok(())
    }

    fn accuracy(&self) -> Result<f64> {
        let (known, all) = test::submit(&self.model, self.exam)?.get()?;
        Ok(f64::from(known) / f64::from(all.max(1)))
    }
}

/// Makes samples `numbers` of `of` of a set, sorted by label.
#[fanfold::task]
fn data(seed: u64, set: u32, numbers: Range<u32>, of: u32) -> Vec<u8> {
    model::generate(seed, set, numbers, of)
}

/// Goes through parts of the data, one after the other.
#[fanfold::task]
fn train(model: Model, steps: Steps, parts: Inputs<Partition>) -> Result<Model> {
    let mut model = model;
    for part in parts {
        model.learn(&part.open()?.bytes()?, steps)?;
    }
    Ok(model)
}

/// How many samples a model knows, and how many there are.
#[fanfold::task]
fn test(model: Model, samples: Vec<u8>) -> Result<(u32, u32)> {
    model.test(&samples)
}

/// Deals the samples of one part.
#[fanfold::task]
fn map(shuffle: Shuffle, mapper: u32, part: Partition, columns: u32) -> Result<Output> {
    fanfold_shuffle::map(&shuffle, (mapper, part), columns)
}

/// Puts columns of several parts together.
#[fanfold::task]
fn merge(shuffle: Shuffle, columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    fanfold_shuffle::merge(&shuffle, columns, &inputs)
}

/// Puts one column in random order.
#[fanfold::task]
fn reduce(
    shuffle: Shuffle,
    reducer: u32,
    columns: Range<u32>,
    inputs: Inputs<Partition>,
) -> Result<Outputs<(Vec<u8>, Tally)>> {
    fanfold_shuffle::reduce(&shuffle, reducer, columns, &inputs)
}

/// A random shuffle: every order of all samples is as likely, given the seed and the epoch.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct Shuffle {
    seed: u64,
    epoch: u32,
}

impl Shuffle {
    /// The random numbers of one task of this epoch.
    fn random(&self, place: u32) -> Random {
        Random::new(self.seed, u64::from(self.epoch) << 32 | u64::from(place))
    }
}

impl Tasks for Shuffle {
    type Split = Partition;
    type Reduced = Vec<u8>;

    fn map(&self, mapper: u32, part: Partition, columns: u32) -> Call<Output> {
        map::call(self, mapper, part, columns)
    }

    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
        merge::call(self, columns, inputs)
    }

    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Vec<u8>, Tally)>> {
        reduce::call(self, reducer, columns, inputs)
    }
}

/// A record is a sample; a block is a bag of them.
impl Exchange for Shuffle {
    type Split = (u32, Partition);
    type Reduced = Vec<u8>;
    const WHOLE: bool = true;

    fn map(&self, (mapper, part): (u32, Partition), out: &mut Blocks) -> Result<()> {
        let bytes = part.open()?.bytes()?;
        let (samples, rest) = bytes.as_chunks::<SAMPLE_BYTES>();
        if !rest.is_empty() {
            return Err(Error::guest("a part is no whole number of samples"));
        }
        let mut random = self.random(mapper);
        let mut buffers = Buffers::of(out);
        for sample in samples {
            buffers.column(random.below(out.columns().end))?.extend_from_slice(sample);
        }
        out.read(bytes.len() as u64);
        out.took(samples.len() as u64);
        out.gave(samples.len() as u64);
        buffers.write(out)
    }

    fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()> {
        column.concatenate(SAMPLE_BYTES as u64, out)
    }

    fn reduce(&self, reducer: u32, columns: &mut Columns) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(columns.bytes() as usize);
        while let Some(column) = columns.next() {
            for mut stream in column.streams {
                bytes.extend(stream.rest()?);
            }
        }
        let (samples, _) = bytes.as_chunks_mut::<SAMPLE_BYTES>();
        // A place that no mapper has.
        self.random(!reducer).permute(samples);
        let count = samples.len() as u64;
        columns.took(count);
        columns.gave(count);
        Ok(bytes)
    }
}
