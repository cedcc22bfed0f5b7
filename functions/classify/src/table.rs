//! Labels as an Arrow file, and what is counted of them.

use std::{ops::Range, sync::Arc};

use arrow_array::{ArrayRef, Float32Array, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use fanfold::{Error, Partition, Result, objects};
use fanfold_pipeline::Rows;
use mlp_classify::CLASSES;
use serde::{Deserialize, Serialize};

use crate::picture::Labelled;

/// What is counted of labels.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// By class.
    pub labels: [u64; CLASSES.len()],
    /// Pictures whose key says what is in them.
    pub known: u64,
    /// How many of those were given that class.
    pub right: u64,
}

impl Counts {
    /// The sums.
    pub fn and(mut self, other: Self) -> Self {
        self.labels.iter_mut().zip(other.labels).for_each(|(sum, more)| *sum += more);
        Self { known: self.known + other.known, right: self.right + other.right, ..self }
    }

    fn add(&mut self, label: &Labelled) {
        self.labels[label.class] += 1;
        let name = label.key.rsplit_once('.').map_or(&*label.key, |(name, _)| name);
        if let Some(class) = CLASSES.iter().position(|class| name.ends_with(class)) {
            self.known += 1;
            self.right += u64::from(class == label.class);
        }
    }
}

/// Writes the labels of some pieces of the pipeline's output as one object, a record batch for each.
pub fn write<'a>(key: &str, pieces: impl Iterator<Item = (&'a Partition, Range<u64>)>) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut file = FileWriter::try_new(Vec::new(), &batch(&[])?.schema())?;
    for (partition, rows) in pieces {
        let mut labels = Vec::new();
        for row in Rows::open(partition, Some(rows))? {
            let label = Labelled::parse(&row?)?;
            if label.class >= CLASSES.len() {
                return Err(Error::guest(format!("class {} of {}", label.class, CLASSES.len())));
            }
            counts.add(&label);
            labels.push(label);
        }
        file.write(&batch(&labels)?)?;
    }
    objects::put(key, &file.into_inner()?)?;
    Ok(counts)
}

fn batch(labels: &[Labelled]) -> Result<RecordBatch> {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(labels.iter().map(|label| &label.key)));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values(labels.iter().map(|label| CLASSES[label.class])));
    let scores: ArrayRef = Arc::new(Float32Array::from_iter_values(labels.iter().map(|label| label.score)));
    Ok(RecordBatch::try_from_iter([("key", keys), ("label", names), ("score", scores)])?)
}
