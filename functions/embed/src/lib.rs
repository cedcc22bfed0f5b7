//! Vectors of texts, by a transformer encoder of BERT's shape (all-MiniLM-L6-v2 has it): near each other where the texts mean
//! something similar. `{"model": "models/minilm/", "texts": ["a cat", "a kitten"]}`.
//!
//! A model is three objects, as model hubs have them: `config.json`, `model.safetensors` and, to cut texts into tokens, `vocab.txt`.
//! Weights go straight into a gpu's buffers ([`device`]); `"on": "cpu"` computes the same in WebAssembly ([`reference`]).

mod device;
mod kernels;
pub mod model;
pub mod reference;
pub mod samples;
mod table;
pub mod tokens;
pub mod weights;

use fanfold::{Error, Future, Result, gpu, objects};
use serde::{Deserialize, Serialize};

use device::BATCH_TOKENS;
use model::Config;
use tokens::Vocabulary;
use weights::Weights;

/// Texts of one task; each loads the weights.
const TASK_TEXTS: usize = 4096;
/// Numbers that may be in an answer; more go into an object.
const NUMBERS_MAX: usize = 100_000;
/// Memory of a task that has the gpu compute, and of one that computes: that has all weights, 32 bits each, and a batch.
const GPU_BYTES: u64 = 96 << 20;
const CPU_BYTES: u64 = 128 << 20;

/// What to encode: texts, or the tokens of texts.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What the keys of the model's objects start with.
    pub model: String,
    /// Texts; `vocab.txt` cuts them into tokens. What is beyond the model's length is left out.
    #[serde(default)]
    pub texts: Vec<String>,
    /// The tokens of texts, with all the special ones that the model wants. Instead of `texts`.
    #[serde(default)]
    pub tokens: Vec<Vec<u32>>,
    /// The key of an Arrow file for the vectors; without it they are in the answer.
    #[serde(default)]
    pub output: Option<String>,
    /// What computes.
    #[serde(default)]
    pub on: On,
}

/// What computes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// A gpu.
    #[default]
    Gpu,
    /// The processor, in the reference implementation.
    Cpu,
}

/// How it went.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Vectors, each of length 1, in the order of the texts; none where they are in an object.
    pub vectors: Vec<Vec<f32>>,
    /// How many.
    pub count: usize,
    /// Numbers of each.
    pub dimension: u32,
    /// Tokens of all texts.
    pub tokens: usize,
}

/// The driver.
///
/// # Errors
/// `invalid` for a request or a model that cannot be, naming the token or the tensor; what the gpu says.
#[fanfold::function(tasks(encode, sample))]
pub fn embed(request: Request) -> Result<Report> {
    let config = config(&request.model)?;
    let sequences = sequences(&request, &config)?;
    let (count, dimension) = (sequences.len(), config.hidden_size);
    if request.output.is_none() && count * dimension as usize > NUMBERS_MAX {
        let message =
            format!("{count} vectors of {dimension} numbers are too many for an answer: name an `output`");
        return Err(Error::invalid(message));
    }
    let parts = sequences.chunks(TASK_TEXTS).map(|part| submit(&request, &config, part.to_vec()));
    let mut vectors = Vec::with_capacity(count);
    for part in parts.collect::<Result<Vec<_>>>()? {
        let numbers = part.get()?;
        let numbers: Vec<f32> = numbers.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        vectors.extend(numbers.chunks(dimension as usize).map(<[_]>::to_vec));
    }
    if let Some(key) = &request.output {
        table::write(key, dimension, &std::mem::take(&mut vectors))?;
    }
    Ok(Report { vectors, count, dimension, tokens: sequences.iter().map(Vec::len).sum() })
}

fn submit(request: &Request, config: &Config, sequences: Vec<Vec<u32>>) -> Result<Future<Vec<u8>>> {
    let weights = format!("{}model.safetensors", request.model);
    match request.on {
        On::Gpu => encode::call(weights, config, On::Gpu, sequences).gpu(1).memory(GPU_BYTES).submit(),
        On::Cpu => {
            // A file of numbers of 16 bits takes twice its size here.
            let memory = 2 * objects::head(&weights)?.bytes + CPU_BYTES;
            encode::call(weights, config, On::Cpu, sequences).memory(memory).submit()
        }
    }
}

fn config(prefix: &str) -> Result<Config> {
    let key = format!("{prefix}config.json");
    Config::parse(&objects::open(&key)?.bytes()?).map_err(|error| error.context(key))
}

/// The tokens of each text.
fn sequences(request: &Request, config: &Config) -> Result<Vec<Vec<u32>>> {
    let most = config.max_position_embeddings as usize;
    let sequences = match (request.texts.is_empty(), request.tokens.is_empty()) {
        (true, false) => request.tokens.clone(),
        (false, true) => {
            let key = format!("{}vocab.txt", request.model);
            let lines = String::from_utf8(objects::open(&key)?.bytes()?)?;
            let vocabulary = Vocabulary::parse(&lines).map_err(|error| error.context(key))?;
            request.texts.iter().map(|text| vocabulary.tokens(text, most)).collect()
        }
        _ => return Err(Error::invalid("give `texts` or `tokens`, one of them")),
    };
    for (number, tokens) in sequences.iter().enumerate() {
        if tokens.is_empty() || tokens.len() > most {
            let length = tokens.len();
            return Err(Error::invalid(format!(
                "text {number} has {length} tokens: this model takes 1 to {most}"
            )));
        }
        if let Some(token) = tokens.iter().find(|token| **token >= config.vocab_size) {
            let has = config.vocab_size;
            return Err(Error::invalid(format!(
                "text {number} has the token {token}: this model has {has} of them"
            )));
        }
    }
    Ok(sequences)
}

/// Vectors of texts, one after the other: 32-bit numbers, little-endian.
#[fanfold::task]
fn encode(weights: String, config: Config, on: On, sequences: Vec<Vec<u32>>) -> Result<Vec<u8>> {
    let open = |key: &String| -> Result<Weights> { Weights::open(objects::open(key)?) };
    let file = open(&weights).map_err(|error| error.context(&weights))?;
    let longest = sequences.iter().map(Vec::len).max().unwrap_or_default();
    let vectors = match on {
        On::Gpu => {
            fanfold::info!("{} texts on {}", sequences.len(), gpu::adapter()?.name);
            let encoder =
                device::Encoder::load(&file, &config, longest).map_err(|error| error.context(&weights))?;
            batched(&sequences, |batch| encoder.vectors(batch))?
        }
        On::Cpu => {
            let encoder = reference::Encoder::load(&file, config).map_err(|error| error.context(&weights))?;
            sequences.iter().map(|tokens| encoder.vector(tokens, tokens.len())).collect()
        }
    };
    Ok(vectors.iter().flatten().flat_map(|number| number.to_le_bytes()).collect())
}

/// Has texts encoded in batches: those of similar length together, so that there is little padding.
fn batched(
    sequences: &[Vec<u32>],
    mut encode: impl FnMut(&[&[u32]]) -> Result<Vec<Vec<f32>>>,
) -> Result<Vec<Vec<f32>>> {
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(sequences[*at].len()));
    let mut vectors = vec![Vec::new(); sequences.len()];
    let mut rest = &order[..];
    while let Some(longest) = rest.first() {
        let (batch, after) = rest.split_at((BATCH_TOKENS / sequences[*longest].len()).clamp(1, rest.len()));
        let texts: Vec<_> = batch.iter().map(|at| &*sequences[*at]).collect();
        for (at, vector) in batch.iter().zip(encode(&texts)?) {
            vectors[*at] = vector;
        }
        rest = after;
    }
    Ok(vectors)
}

/// Makes a small model with random weights: `fanfold invoke embed --entry sample`.
#[fanfold::task]
pub fn sample(request: samples::Request) -> Result<u64> {
    samples::write(&request)
}

#[cfg(test)]
mod tests;
