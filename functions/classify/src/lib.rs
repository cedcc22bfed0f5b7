//! Names what is in pictures, and makes thumbnails: `fanfold job run classify --input photos/ --output labels/`.
//!
//! A pipeline: JPEG objects are decoded and made small on the processor, and a network on a gpu names the shape in them. The labels
//! go into Arrow files, `OUTPUT` + `part-` + *n* + `.arrow`, with the columns `key`, `label` and `score`, in the order of the
//! keys; thumbnails into objects named as the pictures are.
//!
//! Half of it is a job, too: `--part decode` writes what the network looks at into objects instead of labels, and `--part label`
//! names what is in those. Together they are slower than the pipeline; each alone is what a processor, or a gpu, does at most.

mod picture;
mod table;

use std::{collections::BTreeMap, ops::Range};

use fanfold::{Call, Error, Future, Inputs, ObjectRange, Partition, Result, objects};
use fanfold_pipeline::{
    self as pipeline, Mode, Needs, OnError, Output, Piece, Pipeline, RowIter, Settings, Tasks, Work,
};
use mlp_classify::{CLASSES, best, device, model};
use serde::{Deserialize, Serialize};

use picture::Looked;
use table::Counts;

/// Pictures in one split.
const SPLIT_PICTURES: usize = 64;
/// Objects of part `decode` in one split; each has what a split of pictures became.
const SPLIT_OBJECTS: usize = 16;
/// Pictures that are classified at once.
const BATCH_PICTURES: u64 = 256;
/// Bytes of a partition: some batches of what the network looks at.
const TARGET_BYTES: u64 = 512 << 10;
/// Bytes of partitions at any time.
const LIMIT_BYTES: u64 = 64 << 20;
/// Slots of a task that decodes: less than one, so that the driver and what feeds gpus fit beside them.
const DECODING_MILLIS: u32 = 980;
/// Slots of a task that a gpu works for.
const FEEDING_MILLIS: u32 = 10;
/// Memory of a task that decodes: a picture of 160 MB and its file.
const DECODING_BYTES: u64 = 256 << 20;
/// Pieces of the output that become one file.
const PIECES: usize = 64;

/// What to classify.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// JPEG objects whose keys start with this; of part `label`: objects that part `decode` made.
    pub input: String,
    /// What the keys of the labels' objects start with; of part `decode`: of the objects that part `label` reads.
    pub output: String,
    /// What the keys of thumbnails start with; without it there are none.
    #[serde(default)]
    pub thumbnails: Option<String>,
    /// What the network runs on.
    #[serde(default)]
    pub on: On,
    /// How much of the work.
    #[serde(default)]
    pub part: Part,
    /// How the pipeline's tasks are chosen.
    #[serde(default)]
    pub mode: Mode,
    /// Pictures that may be damaged; one more, and the job fails.
    #[serde(default)]
    pub skip: u64,
    /// Slots of all executors.
    #[serde(default = "slots")]
    pub slots: u32,
    /// Gpus of all executors.
    #[serde(default = "gpus")]
    pub gpus: u32,
}

fn slots() -> u32 {
    4
}

fn gpus() -> u32 {
    1
}

/// What the network runs on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// A gpu.
    #[default]
    Gpu,
    /// The processor, in the reference implementation.
    Cpu,
}

/// How much of the work is done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// From pictures to labels.
    #[default]
    All,
    /// From pictures to what the network looks at.
    Decode,
    /// From there to labels.
    Label,
}

/// How it went.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Pictures that were classified, or decoded.
    pub pictures: u64,
    /// Pictures that were damaged.
    pub skipped: u64,
    /// Objects with labels.
    pub files: u64,
    /// Pictures of each class.
    pub labels: BTreeMap<String, u64>,
    /// Pictures whose key ends with a class, as `genimages` names them.
    pub known: u64,
    /// How many of those were given that class.
    pub right: u64,
    /// What the pipeline says.
    pub pipeline: pipeline::Report,
}

/// The driver.
///
/// # Errors
/// `invalid` for a request that cannot be; what a task failed with, naming stage and picture.
#[fanfold::function(tasks(stage, write))]
pub fn classify(request: Request) -> Result<Report> {
    let needs_gpu = request.on == On::Gpu && request.part != Part::Decode;
    if request.slots == 0 || (needs_gpu && request.gpus == 0) {
        return Err(Error::invalid("needs slots, and gpus unless it runs on the processor"));
    }
    let splits = request.splits()?;
    let (mut pieces, mut files) = (Vec::new(), Vec::<Future<Counts>>::new());
    let mut file = |pieces: &mut Vec<Piece>| -> Result<()> {
        let key = format!("{}part-{:05}.arrow", request.output, files.len());
        let (partitions, rows): (Vec<_>, Vec<_>) =
            pieces.drain(..).map(|piece| (piece.partition, piece.rows)).unzip();
        files.push(write::call(key, rows, partitions).cpu_millis(FEEDING_MILLIS).submit()?);
        Ok(())
    };
    let stages = request.pipeline();
    let report = pipeline::run(&Calls(&request), &stages, &splits, &request.settings(), |piece| {
        pieces.push(piece);
        if pieces.len() == PIECES { file(&mut pieces) } else { Ok(()) }
    })?;
    if !pieces.is_empty() {
        file(&mut pieces)?;
    }
    let counts = fanfold::wait_all(&files)?.into_iter().fold(Counts::default(), Counts::and);
    let labels = CLASSES.iter().zip(counts.labels).map(|(class, count)| (String::from(*class), count));
    Ok(Report {
        pictures: report.rows,
        skipped: report.skipped,
        files: files.len() as u64,
        labels: labels.collect(),
        known: counts.known,
        right: counts.right,
        pipeline: report,
    })
}

/// Writes one file of labels.
#[fanfold::task]
fn write(key: String, rows: Vec<Range<u64>>, partitions: Inputs<Partition>) -> Result<Counts> {
    table::write(&key, partitions.iter().zip(rows))
}

/// One task of any stage.
#[fanfold::task]
fn stage(request: Request, work: Work<Vec<ObjectRange>>, inputs: Inputs<Partition>) -> Result<Output> {
    request.pipeline().run(&work, &inputs)
}

struct Calls<'a>(&'a Request);

impl Tasks for Calls<'_> {
    type Split = Vec<ObjectRange>;

    fn stage(&self, work: Work<Self::Split>, inputs: Vec<Partition>) -> Call<Output> {
        stage::call(self.0, work, inputs)
    }
}

impl Request {
    /// The input's objects, some at a time; each as it is now, so that a task that runs again reads the same.
    fn splits(&self) -> Result<Vec<Vec<ObjectRange>>> {
        let (wanted, together): (fn(&str) -> bool, _) = match self.part {
            Part::All | Part::Decode => (picture::is_picture, SPLIT_PICTURES),
            Part::Label => (|_| true, SPLIT_OBJECTS),
        };
        let mut ranges = Vec::new();
        for object in objects::list(&self.input) {
            let object = object?;
            if wanted(&object.key) {
                let (key, etag) = (object.key, Some(object.etag));
                ranges.push(ObjectRange { key, etag, offset: 0, length: None });
            }
        }
        Ok(ranges.chunks(together).map(<[_]>::to_vec).collect())
    }

    fn pipeline(&self) -> Pipeline<Vec<ObjectRange>> {
        let on_error = if self.skip > 0 { OnError::Skip(self.skip) } else { OnError::Fail };
        match self.part {
            Part::All => self.labelled(self.decoded()),
            Part::Decode => self.decoded().map("frame", picture::frame).write(&self.output),
            Part::Label => self.labelled(read(picture::read_frames)),
        }
        .on_error(on_error)
    }

    /// What the network looks at, and the key, of each picture.
    fn decoded(&self) -> Pipeline<Vec<ObjectRange>> {
        let (input, thumbnails) = (self.input.clone(), self.thumbnails.clone());
        read(picture::read).map("decode", move |row| picture::decode(row, &input, thumbnails.as_deref()))
    }

    fn labelled(&self, decoded: Pipeline<Vec<ObjectRange>>) -> Pipeline<Vec<ObjectRange>> {
        match self.on {
            On::Gpu => decoded.needs(Needs::cpu(FEEDING_MILLIS).gpu(1)).map_batches(
                "classify",
                BATCH_PICTURES,
                || device::Network::trained(BATCH_PICTURES as usize),
                |network, rows| {
                    let looked = rows.iter().map(|row| Looked::parse(row)).collect::<Result<Vec<_>>>()?;
                    let features: Vec<_> = looked.iter().map(|picture| picture.features).collect();
                    let scores = network.scores(&features)?;
                    Ok(looked
                        .iter()
                        .zip(scores)
                        .map(|(picture, scores)| picture.label(best(&scores)))
                        .collect())
                },
            ),
            On::Cpu => decoded.map_batches(
                "classify",
                BATCH_PICTURES,
                || Ok(model::Network::trained()),
                |network, rows| {
                    let label = |row: &Vec<u8>| {
                        let picture = Looked::parse(row)?;
                        Ok(picture.label(best(&network.scores(&picture.features))))
                    };
                    rows.iter().map(label).collect()
                },
            ),
        }
    }

    fn settings(&self) -> Settings {
        let capacity = Needs::cpu(self.slots.saturating_mul(1000)).gpu(self.gpus);
        let settings = Settings::new(LIMIT_BYTES, capacity);
        Settings { mode: self.mode, target_bytes: TARGET_BYTES, ordered: true, ..settings }
    }
}

fn read(rows: fn(&[ObjectRange], u64) -> Result<RowIter>) -> Pipeline<Vec<ObjectRange>> {
    let needs = Needs::cpu(DECODING_MILLIS).memory(DECODING_BYTES);
    Pipeline::read(needs, move |split: &Vec<_>, row| rows(split, row))
}

#[cfg(test)]
mod tests;
