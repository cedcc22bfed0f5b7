//! Encoders of any shape with random weights, for tests and for trying things out: equal arguments, equal objects.
//!
//! Their vectors say nothing of what texts mean. But they follow from every weight, so that whoever computes them wrong has others.

use std::collections::BTreeMap;

use fanfold::{Error, Result, objects};
use half::f16;
use safetensors::{Dtype, serialize, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::model::{Config, Parameters};

/// Bytes of an object that is written at once.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// What stands before the letters in a vocabulary.
const SPECIAL: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];

/// What to make.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What the keys of the model's objects start with.
    pub model: String,
    /// Other seeds, other weights.
    #[serde(default)]
    pub seed: u64,
    /// Layers.
    #[serde(default = "layers")]
    pub layers: u32,
    /// Numbers of a vector.
    #[serde(default = "hidden")]
    pub hidden: u32,
    /// Heads.
    #[serde(default = "heads")]
    pub heads: u32,
    /// Whether weights have 16 bits.
    #[serde(default)]
    pub half: bool,
}

fn layers() -> u32 {
    2
}

fn hidden() -> u32 {
    64
}

fn heads() -> u32 {
    4
}

impl Request {
    /// The shape: letters, digits and punctuation for tokens, 128 of them in a text.
    pub fn config(&self) -> Config {
        Config {
            vocab_size: vocabulary().lines().count() as u32,
            hidden_size: self.hidden,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            intermediate_size: self.hidden.saturating_mul(4),
            max_position_embeddings: 128,
            type_vocab_size: 2,
            layer_norm_eps: 1e-12,
            hidden_act: String::from("gelu"),
        }
    }
}

/// Writes `config.json`, `vocab.txt` and `model.safetensors`; returns the last one's size.
///
/// # Errors
/// `invalid` for a shape that cannot be or one of over 64 MiB; what storage says.
pub fn write(request: &Request) -> Result<u64> {
    let config = request.config();
    config.check()?;
    let file = file(&config, request.seed, request.half)?;
    let prefix = &request.model;
    objects::put(&format!("{prefix}config.json"), &serde_json::to_vec_pretty(&config)?)?;
    objects::put(&format!("{prefix}vocab.txt"), vocabulary().as_bytes())?;
    Ok(objects::put(&format!("{prefix}model.safetensors"), &file)?.bytes)
}

/// Special tokens, then each printable ASCII character but upper-case letters, at the beginning of a word and inside of one.
fn vocabulary() -> String {
    let chars = || ('!'..='~').filter(|char| !char.is_ascii_uppercase());
    let tokens = SPECIAL.map(String::from).into_iter();
    let tokens = tokens.chain(chars().map(String::from)).chain(chars().map(|char| format!("##{char}")));
    tokens.collect::<Vec<_>>().join("\n")
}

/// A safetensors file.
pub fn file(config: &Config, seed: u64, half: bool) -> Result<Vec<u8>> {
    let (mut tensors, mut random, mut bytes) = (BTreeMap::new(), Random(seed), 0);
    let number = if half { size_of::<f16>() } else { size_of::<f32>() };
    Parameters::make(config, |name, shape| {
        let count = shape.iter().map(|side| u64::from(*side)).product::<u64>();
        bytes += count * number as u64;
        if bytes > FILE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the weights have over {FILE_BYTES_MAX} bytes: make a smaller one"
            )));
        }
        let (middle, range) = spread(name, shape);
        let mut data = Vec::with_capacity(count as usize * number);
        for _ in 0..count {
            let weight = middle + range * random.next();
            match half {
                true => data.extend(f16::from_f32(weight).to_le_bytes()),
                false => data.extend(weight.to_le_bytes()),
            }
        }
        let shape: Vec<_> = shape.iter().map(|side| *side as usize).collect();
        tensors.insert(String::from(name), (shape, data));
        Ok(())
    })?;
    let dtype = if half { Dtype::F16 } else { Dtype::F32 };
    let mut views = BTreeMap::new();
    for (name, (shape, data)) in &tensors {
        views.insert(name, TensorView::new(dtype, shape.clone(), data)?);
    }
    Ok(serialize(views, None)?)
}

/// The middle of a tensor's weights and how far they are from it: sums keep the size of what goes into them.
fn spread(name: &str, shape: &[u32]) -> (f32, f32) {
    match shape {
        [_, inputs] if !name.starts_with("embeddings") => (0.0, (3.0 / *inputs as f32).sqrt()),
        [_] if name.ends_with("Norm.weight") => (1.0, 0.2),
        [_] => (0.0, 0.2),
        _ => (0.0, 1.0),
    }
}

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    /// Between -1 and 1.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

/// A small encoder, for tests of what has its weights.
#[cfg(test)]
pub fn small(seed: u64) -> (Config, File) {
    let request =
        Request { model: format!("sample-{seed}/"), seed, layers: 2, hidden: 32, heads: 2, half: false };
    write(&request).unwrap();
    (request.config(), File(format!("{}model.safetensors", request.model)))
}

/// Its weights' key.
#[cfg(test)]
pub struct File(String);

#[cfg(test)]
impl File {
    /// Opens them.
    pub fn open(&self) -> Result<crate::weights::Weights> {
        crate::weights::Weights::open(objects::open(&self.0)?)
    }
}
