//! The samples, and the model that learns them: softmax regression in single precision, trained by plain stochastic
//! gradient descent.

use fanfold::{Error, Result};
use fanfold_shuffle::random::Random;
use serde::{Deserialize, Serialize};

/// Features of a sample.
pub const FEATURES: usize = 32;
/// Classes.
pub const CLASSES: usize = 10;
/// Bytes of a sample: its label, then its features, as little-endian `f32`.
pub const SAMPLE_BYTES: usize = 4 * (1 + FEATURES);
/// Weights of one class: one per feature, and a bias.
const WEIGHTS: usize = FEATURES + 1;

/// How steps are made.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Steps {
    /// Samples of one step.
    pub batch: usize,
    /// How far one goes.
    pub rate: f32,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    label: usize,
    features: [f32; FEATURES],
}

impl Sample {
    fn of(bytes: &[u8; SAMPLE_BYTES]) -> Self {
        let (numbers, _) = bytes.as_chunks();
        let mut numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let label = numbers.next().unwrap_or(0.0) as usize % CLASSES;
        Self { label, features: std::array::from_fn(|_| numbers.next().unwrap_or(0.0)) }
    }
}

fn samples(bytes: &[u8]) -> Result<impl Iterator<Item = Sample>> {
    let (samples, rest) = bytes.as_chunks();
    match rest.is_empty() {
        true => Ok(samples.iter().map(Sample::of)),
        false => Err(Error::guest(format!("{} bytes are no whole number of samples", bytes.len()))),
    }
}

/// Samples `numbers` of `of` of one of several sets of the same classes, encoded. Their labels rise with their number, so the data is sorted by label.
///
/// A sample of a class is the class's centre, a random corner of a cube, and noise that is about as wide as the cube.
pub fn generate(seed: u64, set: u32, numbers: std::ops::Range<u32>, of: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * SAMPLE_BYTES);
    for number in numbers {
        let label = (u64::from(number) * CLASSES as u64 / u64::from(of.max(1))) as usize;
        let mut centre = Random::new(!seed, label as u64);
        let mut noise = Random::new(seed, u64::from(set) << 32 | u64::from(number));
        bytes.extend((label as f32).to_le_bytes());
        for _ in 0..FEATURES {
            let corner = if centre.below(2) == 0 { -0.5 } else { 0.5 };
            // The sum of four uniform numbers is close to normal; this one has a deviation of about one.
            let unit = || noise.below(1 << 20) as f32 / (1 << 20) as f32 - 0.5;
            let normal: f32 = std::iter::repeat_with(unit).take(4).sum::<f32>() * 1.73;
            bytes.extend((corner + normal).to_le_bytes());
        }
    }
    bytes
}

/// What was learned: for each class its weights, the bias last.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Model {
    weights: Vec<f32>,
}

impl Default for Model {
    fn default() -> Self {
        Self { weights: vec![0.0; CLASSES * WEIGHTS] }
    }
}

impl Model {
    /// Learns from samples in the order in which they come.
    ///
    /// # Errors
    /// `guest` if the bytes are no samples.
    pub fn learn(&mut self, bytes: &[u8], steps: Steps) -> Result<()> {
        let samples: Vec<Sample> = samples(bytes)?.collect();
        for batch in samples.chunks(steps.batch.max(1)) {
            let mut gradient = vec![0.0f32; self.weights.len()];
            for sample in batch {
                let mut slope = self.likelihoods(sample);
                slope[sample.label] -= 1.0;
                for (gradient, slope) in gradient.chunks_exact_mut(WEIGHTS).zip(slope) {
                    for (gradient, feature) in gradient.iter_mut().zip(sample.features.iter().chain(&[1.0])) {
                        *gradient += slope * feature;
                    }
                }
            }
            let rate = steps.rate / batch.len() as f32;
            self.weights.iter_mut().zip(&gradient).for_each(|(weight, gradient)| *weight -= rate * gradient);
        }
        Ok(())
    }

    /// How many samples it knows the label of, and how many there are.
    ///
    /// # Errors
    /// `guest` if the bytes are no samples.
    pub fn test(&self, bytes: &[u8]) -> Result<(u32, u32)> {
        let right = |sample: &Sample| {
            let scores = self.scores(sample);
            let best = (0..CLASSES).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            best == Some(sample.label)
        };
        Ok(samples(bytes)?.fold((0, 0), |(known, all), sample| (known + u32::from(right(&sample)), all + 1)))
    }

    fn scores(&self, sample: &Sample) -> [f32; CLASSES] {
        std::array::from_fn(|class| {
            let weights = &self.weights[class * WEIGHTS..][..WEIGHTS];
            weights.iter().zip(sample.features.iter().chain(&[1.0])).map(|(weight, x)| weight * x).sum()
        })
    }

    fn likelihoods(&self, sample: &Sample) -> [f32; CLASSES] {
        let scores = self.scores(sample);
        // Taking the largest off changes nothing but that no power overflows.
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        let powers = scores.map(|score| (score - largest).exp());
        let sum: f32 = powers.iter().sum();
        powers.map(|power| power / sum)
    }
}
