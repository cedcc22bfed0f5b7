//! The kernels of `encoder.wgsl`, compiled for one shape, and how a tensor of an object becomes a buffer of 32-bit numbers.

use std::rc::Rc;

use fanfold::{
    Result,
    gpu::{Buffer, Commands, Pipeline, Shader, Usage},
};
use safetensors::Dtype;

use crate::{model::Config, weights::Weights};

const WGSL: &str = include_str!("encoder.wgsl");
/// Numbers in a word of the shader.
pub const WORD: u32 = 4;
/// Bytes of a number.
pub const NUMBER_BYTES: u64 = 4;
/// Invocations of a workgroup, of all kernels but `linear`.
const WORKGROUP: u64 = 64;
/// Workgroups along the first dimension of a dispatch; what is more goes along the second.
const GROUPS_MAX: u64 = 1 << 15;

/// Compiled entry points, by their names; `linear` for each of its shapes.
pub struct Kernels {
    widen: Pipeline,
    pub embed: Rc<Pipeline>,
    pub normalise: Rc<Pipeline>,
    /// From a state to as many numbers.
    pub project: Rc<Pipeline>,
    /// From a state to the inside of a feed-forward part, through `gelu`.
    pub widen_state: Rc<Pipeline>,
    /// And back.
    pub narrow_state: Rc<Pipeline>,
    pub score: Rc<Pipeline>,
    pub softmax: Rc<Pipeline>,
    pub attend: Rc<Pipeline>,
    pub pool: Rc<Pipeline>,
    pub unit: Rc<Pipeline>,
}

impl Kernels {
    /// Compiles them.
    ///
    /// # Errors
    /// What the gpu says: there is none.
    pub fn new(config: &Config) -> Result<Self> {
        let shader = Shader::new("encoder", WGSL)?;
        let (hidden, inner) = (config.hidden_size / WORD, config.intermediate_size / WORD);
        let compile = |entry: &str, inputs: u32, outputs: u32, bent: bool| {
            let constants = [
                ("hidden", hidden.into()),
                ("heads", config.num_attention_heads.into()),
                ("epsilon", config.layer_norm_eps.into()),
                ("inputs", inputs.into()),
                ("outputs", outputs.into()),
                ("bent", bent.into()),
            ];
            shader.pipeline(entry, &constants)
        };
        let kernel = |entry: &str| compile(entry, hidden, hidden, false).map(Rc::new);
        Ok(Self {
            widen: compile("widen", hidden, hidden, false)?,
            embed: kernel("embed")?,
            normalise: kernel("normalise")?,
            project: kernel("linear")?,
            widen_state: compile("linear", hidden, inner, true).map(Rc::new)?,
            narrow_state: compile("linear", inner, hidden, false).map(Rc::new)?,
            score: kernel("score")?,
            softmax: kernel("softmax")?,
            attend: kernel("attend")?,
            pool: kernel("pool")?,
            unit: kernel("unit")?,
        })
    }

    /// A tensor as a buffer of 32-bit numbers. Its bytes do not pass through this instance.
    ///
    /// # Errors
    /// `invalid`, naming the tensor that is missing or of another shape; what the gpu says.
    pub fn load(&self, weights: &Weights, name: &str, shape: &[u32]) -> Result<Buffer> {
        let tensor = weights.tensor(name, shape)?;
        let numbers = shape.iter().map(|side| u64::from(*side)).product::<u64>();
        let (from, length) = (tensor.bytes.start, tensor.bytes.end - tensor.bytes.start);
        if tensor.dtype != Dtype::F16 {
            let buffer = Buffer::new(name, length, Usage::STORAGE | Usage::COPY_DST)?;
            buffer.load(0, weights.reader(), from, length)?;
            return Ok(buffer);
        }
        let wide = Buffer::new(name, numbers * NUMBER_BYTES, Usage::STORAGE)?;
        let halves =
            Buffer::new(name, length.next_multiple_of(NUMBER_BYTES), Usage::STORAGE | Usage::COPY_DST)?;
        halves.load(0, weights.reader(), from, length)?;
        let group = self.widen.bind(0, &[(1, &halves), (2, &wide)])?;
        let commands = Commands::new()?;
        commands.dispatch(&self.widen, &[&group], invocations(numbers.div_ceil(2)))?;
        // The halves are given back when the device is done with them.
        commands.submit()?;
        Ok(wide)
    }
}

/// The workgroups with so many invocations, as the shader numbers them.
pub fn invocations(count: u64) -> [u32; 3] {
    let groups = count.div_ceil(WORKGROUP);
    let along = groups.clamp(1, GROUPS_MAX);
    [along as u32, groups.div_ceil(along) as u32, 1]
}
