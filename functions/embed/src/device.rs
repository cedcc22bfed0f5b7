//! The encoder on a gpu. Weights go from their object into buffers without passing through this instance; what is done with a batch
//! of texts is a list of steps, whose kernels are in `encoder.wgsl`.

use std::rc::Rc;

use fanfold::{
    Result,
    gpu::{BindGroup, Buffer, Commands, Pipeline, Usage},
};

use crate::{
    kernels::{Kernels, NUMBER_BYTES, WORD, invocations},
    model::{Config, Layer, Linear, Norm, Parameters},
    weights::Weights,
};

/// Texts that are encoded at once: as many as of the longest have this many tokens, and one at least.
pub const BATCH_TOKENS: usize = 2048;
/// Tokens and words that come out, of a workgroup of `linear`.
const LINEAR_TOKENS: u32 = 32;
const LINEAR_WORDS: u32 = 32;

/// An encoder with its weights on the device, and room there for a batch.
pub struct Encoder {
    hidden: u32,
    heads: u32,
    buffers: Buffers,
    /// Only bound: a buffer that is dropped is gone, bound or not.
    _weights: Parameters<Buffer>,
    /// What is submitted together, in order: a layer at most, so that no submission takes long.
    program: Vec<Vec<Step>>,
}

/// What goes in, what one step hands to the next, and what comes out.
struct Buffers {
    batch: Buffer,
    ids: Buffer,
    lengths: Buffer,
    states: Buffer,
    added: Buffer,
    query: Buffer,
    key: Buffer,
    value: Buffer,
    attended: Buffer,
    inner: Buffer,
    scores: Buffer,
    vectors: Buffer,
}

/// One dispatch.
struct Step {
    pipeline: Rc<Pipeline>,
    group: BindGroup,
    span: Span,
}

/// What has invocations of its own, and how many.
#[derive(Clone, Copy)]
enum Span {
    Token(u32),
    /// Each head of each token.
    Head,
    /// Each of these with each token of its text.
    Pair,
    Sequence(u32),
    /// Words that come out of `linear` for each token.
    Linear(u32),
}

/// The shape of a batch.
#[derive(Clone, Copy)]
struct Batch {
    sequences: u32,
    length: u32,
}

impl Encoder {
    /// Loads the weights and compiles the kernels, for texts of at most `longest` tokens.
    ///
    /// # Errors
    /// `invalid`, naming the tensor that is missing or of another shape; what the gpu says.
    pub fn load(weights: &Weights, config: &Config, longest: usize) -> Result<Self> {
        let kernels = Kernels::new(config)?;
        let parameters = Parameters::make(config, |name, shape| kernels.load(weights, name, shape))?;
        let buffers = Buffers::new(config, longest)?;
        let words = config.hidden_size / WORD;
        let (k, b, p) = (&kernels, &buffers, &parameters);
        let embed =
            b.step(&k.embed, &[&b.ids, &p.words, &p.positions, &p.types, &b.added], Span::Token(words))?;
        let mut program = vec![vec![embed, b.normalise(k, &p.norm)?]];
        for layer in &parameters.layers {
            program.push(b.layer(k, layer, words, config.intermediate_size / WORD)?);
        }
        program.push(vec![
            b.step(&k.pool, &[&b.lengths, &b.states, &b.vectors], Span::Sequence(words))?,
            b.step(&k.unit, &[&b.vectors], Span::Sequence(1))?,
        ]);
        let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
        Ok(Self { hidden, heads, buffers, _weights: parameters, program })
    }

    /// The vectors of a batch of texts, each of one token at least.
    ///
    /// # Errors
    /// What the gpu says.
    pub fn vectors(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>> {
        let length = texts.iter().map(|tokens| tokens.len()).max().unwrap_or_default();
        let batch = Batch { sequences: texts.len() as u32, length: length as u32 };
        let padded =
            texts.iter().flat_map(|tokens| tokens.iter().copied().chain(std::iter::repeat(0)).take(length));
        let b = &self.buffers;
        b.batch.write(0, &bytes([batch.sequences, batch.length]))?;
        b.ids.write(0, &bytes(padded))?;
        b.lengths.write(0, &bytes(texts.iter().map(|tokens| tokens.len() as u32)))?;
        for (number, steps) in self.program.iter().enumerate() {
            let commands = Commands::new()?;
            if number == 0 {
                // The first step is added to what is there.
                commands.clear(&b.states, 0, b.states.size())?;
            }
            for step in steps {
                commands.dispatch(&step.pipeline, &[&step.group], self.workgroups(step.span, batch))?;
            }
            commands.submit()?;
        }
        let hidden = self.hidden as usize;
        let vectors = b.vectors.read(0, texts.len() as u64 * u64::from(self.hidden) * NUMBER_BYTES)?;
        let numbers: Vec<f32> = vectors.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        Ok(numbers.chunks(hidden).map(<[_]>::to_vec).collect())
    }

    fn workgroups(&self, span: Span, batch: Batch) -> [u32; 3] {
        let tokens = batch.sequences * batch.length;
        let each = |count: u32, of: u32| invocations(u64::from(count) * u64::from(of));
        match span {
            Span::Token(count) => each(tokens, count),
            Span::Head => each(tokens, self.heads),
            Span::Pair => each(tokens, self.heads * batch.length),
            Span::Sequence(count) => each(batch.sequences, count),
            Span::Linear(words) => [words.div_ceil(LINEAR_WORDS), tokens.div_ceil(LINEAR_TOKENS), 1],
        }
    }
}

fn bytes(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_le_bytes).collect()
}

impl Buffers {
    fn new(config: &Config, longest: usize) -> Result<Self> {
        let tokens = BATCH_TOKENS.max(longest) as u64;
        let (hidden, inner) = (u64::from(config.hidden_size), u64::from(config.intermediate_size));
        let of_token = |label: &str, numbers: u64, usage| {
            Buffer::new(label, tokens * numbers * NUMBER_BYTES, Usage::STORAGE | usage)
        };
        let (none, input) = (Usage::empty(), Usage::COPY_DST);
        Ok(Self {
            batch: Buffer::new("batch", 16, Usage::UNIFORM | input)?,
            ids: of_token("ids", 1, input)?,
            lengths: of_token("lengths", 1, input)?,
            states: of_token("states", hidden, input)?,
            added: of_token("added", hidden, none)?,
            query: of_token("query", hidden, none)?,
            key: of_token("key", hidden, none)?,
            value: of_token("value", hidden, none)?,
            attended: of_token("attended", hidden, none)?,
            inner: of_token("inner", inner, none)?,
            scores: of_token("scores", u64::from(config.num_attention_heads) * longest as u64, none)?,
            vectors: of_token("vectors", hidden, Usage::COPY_SRC)?,
        })
    }

    /// A dispatch of a kernel whose bindings are the batch and these, in order.
    fn step(&self, pipeline: &Rc<Pipeline>, buffers: &[&Buffer], span: Span) -> Result<Step> {
        let bindings: Vec<_> = (0..).zip([&[&self.batch][..], buffers].concat()).collect();
        Ok(Step { pipeline: Rc::clone(pipeline), group: pipeline.bind(0, &bindings)?, span })
    }

    fn linear(
        &self,
        kernel: &Rc<Pipeline>,
        from: &Buffer,
        by: &Linear<Buffer>,
        to: &Buffer,
        words: u32,
    ) -> Result<Step> {
        self.step(kernel, &[from, &by.weight, &by.bias, to], Span::Linear(words))
    }

    /// Adds what was added to the states, and normalises them.
    fn normalise(&self, kernels: &Kernels, norm: &Norm<Buffer>) -> Result<Step> {
        self.step(&kernels.normalise, &[&self.added, &norm.weight, &norm.bias, &self.states], Span::Token(1))
    }

    /// One layer; a state has `words`, the inside of its feed-forward part `inner`.
    fn layer(&self, kernels: &Kernels, layer: &Layer<Buffer>, words: u32, inner: u32) -> Result<Vec<Step>> {
        let Kernels { project, widen_state, narrow_state, .. } = kernels;
        Ok(vec![
            self.linear(project, &self.states, &layer.query, &self.query, words)?,
            self.linear(project, &self.states, &layer.key, &self.key, words)?,
            self.linear(project, &self.states, &layer.value, &self.value, words)?,
            self.step(&kernels.score, &[&self.query, &self.key, &self.scores], Span::Pair)?,
            self.step(&kernels.softmax, &[&self.lengths, &self.scores], Span::Head)?,
            self.step(&kernels.attend, &[&self.scores, &self.value, &self.attended], Span::Token(words))?,
            self.linear(project, &self.attended, &layer.attended, &self.added, words)?,
            self.normalise(kernels, &layer.attended_norm)?,
            self.linear(widen_state, &self.states, &layer.inner, &self.inner, inner)?,
            self.linear(narrow_state, &self.inner, &layer.outer, &self.added, words)?,
            self.normalise(kernels, &layer.norm)?,
        ])
    }
}
