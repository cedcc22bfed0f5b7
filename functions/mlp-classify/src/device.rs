//! The network on a gpu.

use fanfold::{
    Result,
    gpu::{BindGroup, Buffer, Commands, Pipeline, Shader, Usage},
};

use crate::{CLASSES, Features, HIDDEN, INPUTS, Scores, model::TRAINED};

const WGSL: &str = include_str!("classify.wgsl");
/// Invocations of a workgroup.
const WORKGROUP: usize = 64;

/// The network with its weights on the device, and room there for so many pictures at once.
pub struct Network {
    pictures: Buffer,
    scores: Buffer,
    /// Only bound: a buffer that is dropped is gone, bound or not.
    _bound: [Buffer; 2],
    hide: (Pipeline, BindGroup),
    score: (Pipeline, BindGroup),
    room: usize,
}

impl Network {
    /// Uploads the trained weights and compiles the shader. `room` pictures, over 0, may be classified at once.
    ///
    /// # Errors
    /// What the gpu says: there is none, its memory is used up.
    pub fn trained(room: usize) -> Result<Self> {
        let floats = |label: &str, count: usize, usage| Buffer::new(label, count as u64 * 4, usage);
        let weights = floats("weights", TRAINED.len() / 4, Usage::STORAGE | Usage::COPY_DST)?;
        weights.write(0, TRAINED)?;
        let pictures = floats("pictures", room * INPUTS / 4, Usage::STORAGE | Usage::COPY_DST)?;
        let hidden = floats("hidden", room * HIDDEN, Usage::STORAGE)?;
        let scores = floats("scores", room * CLASSES.len(), Usage::STORAGE | Usage::COPY_SRC)?;
        let shader = Shader::new("classify", WGSL)?;
        let sizes = [("inputs", INPUTS as f64), ("units", HIDDEN as f64), ("classes", CLASSES.len() as f64)];
        let hide = shader.pipeline("hide", &sizes)?;
        let to_hide = hide.bind(0, &[(0, &weights), (1, &pictures), (2, &hidden)])?;
        let score = shader.pipeline("score", &sizes)?;
        let to_score = score.bind(0, &[(0, &weights), (2, &hidden), (3, &scores)])?;
        Ok(Self {
            pictures,
            scores,
            _bound: [weights, hidden],
            hide: (hide, to_hide),
            score: (score, to_score),
            room,
        })
    }

    /// Chances of the classes, for each picture.
    ///
    /// # Errors
    /// What the gpu says.
    pub fn scores(&self, pictures: &[Features]) -> Result<Vec<Scores>> {
        let mut all = Vec::with_capacity(pictures.len());
        for part in pictures.chunks(self.room) {
            self.pictures.write(0, part.as_flattened())?;
            let commands = Commands::new()?;
            dispatch(&commands, &self.hide, part.len() * HIDDEN)?;
            dispatch(&commands, &self.score, part.len())?;
            commands.submit()?;
            let bytes = self.scores.read(0, size_of::<Scores>() as u64 * part.len() as u64)?;
            let numbers = bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word));
            all.extend(numbers.collect::<Vec<_>>().as_chunks::<{ CLASSES.len() }>().0);
        }
        Ok(all)
    }
}

fn dispatch(
    commands: &Commands,
    (pipeline, group): &(Pipeline, BindGroup),
    invocations: usize,
) -> Result<()> {
    commands.dispatch(pipeline, &[group], [invocations.div_ceil(WORKGROUP) as u32, 1, 1])
}
