//! Trains the network and writes its weights, on the processor, in half a minute:
//!
//! ```text
//! cd functions
//! cargo run --release --package mlp-classify --example train --target $(rustc --print host-tuple)
//! ```
//!
//! Adam on the cross-entropy, over pictures drawn for the purpose; of another series than those that tests use. Equal
//! arithmetic gives equal weights; another processor's may differ in the last bits.

use std::{fs, path::Path};

use fanfold::Result;
use mlp_classify::{
    CLASSES, Features, HIDDEN, INPUTS, Scores, best,
    features::{decode, features},
    model::{HIDDEN_BIAS, OUTPUT, OUTPUT_BIAS, WEIGHTS, softmax},
    shapes,
};

/// Pictures of the series that is learned; a quarter as many are only looked at.
const PICTURES: u64 = 20_000;
const SEED: u64 = 1;
const SIDES: [u32; 3] = [48, 64, 96];
const EPOCHS: usize = 40;
const BATCH: usize = 64;
const RATE: f32 = 2e-3;

struct Sample {
    features: Features,
    class: usize,
}

/// Forward and backward through the network.
struct Trainer {
    weights: Vec<f32>,
    gradient: Vec<f32>,
    /// First and second moments, and steps so far.
    moments: (Vec<f32>, Vec<f32>),
    steps: i32,
}

fn main() -> Result<()> {
    let (learned, unseen) = (series(SEED, PICTURES)?, series(SEED + 1, PICTURES / 4)?);
    let mut trainer = Trainer::new();
    for epoch in 0..EPOCHS {
        // Falls to a tenth: late steps only settle.
        let rate = RATE * (1.0 - 0.9 * epoch as f32 / EPOCHS as f32);
        for batch in learned.chunks(BATCH) {
            batch.iter().for_each(|sample| trainer.learn(sample));
            trainer.step(rate, batch.len());
        }
        println!(
            "epoch {epoch}: {:.4} of the learned, {:.4} of the unseen are right",
            trainer.accuracy(&learned),
            trainer.accuracy(&unseen)
        );
    }
    let words: Vec<String> =
        trainer.weights.iter().map(|weight| format!("{:08x}", weight.to_bits())).collect();
    let lines: String = words.chunks(16).map(|line| line.join(" ") + "\n").collect();
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/weights.hex"), lines)?;
    Ok(())
}

/// Pictures as they come out of files.
fn series(seed: u64, count: u64) -> Result<Vec<Sample>> {
    let sample = |number: u64| {
        let side = SIDES[(number / CLASSES.len() as u64) as usize % SIDES.len()];
        let picture = decode(&shapes::jpeg(seed, number, side)?)?;
        Ok(Sample { features: features(&picture), class: shapes::class_of(number) })
    };
    (0..count).map(sample).collect()
}

impl Trainer {
    /// Weights of both signs, small for units with many inputs; biases of zero.
    fn new() -> Self {
        let mut state = SEED;
        let mut number = |inputs: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
            uniform * (6.0 / inputs as f32).sqrt()
        };
        let mut weights = vec![0.0; WEIGHTS];
        weights[..HIDDEN_BIAS].iter_mut().for_each(|weight| *weight = number(INPUTS));
        weights[OUTPUT..OUTPUT_BIAS].iter_mut().for_each(|weight| *weight = number(HIDDEN));
        let zeros = vec![0.0; WEIGHTS];
        Self { weights, gradient: zeros.clone(), moments: (zeros.clone(), zeros), steps: 0 }
    }

    fn forward(&self, features: &Features) -> ([f32; INPUTS], [f32; HIDDEN], Scores) {
        let inputs = features.map(|feature| f32::from(feature) / 255.0);
        let mut hidden = [0f32; HIDDEN];
        hidden.copy_from_slice(&self.weights[HIDDEN_BIAS..OUTPUT]);
        for (input, row) in inputs.iter().zip(self.weights[..HIDDEN_BIAS].chunks(HIDDEN)) {
            hidden.iter_mut().zip(row).for_each(|(sum, weight)| *sum += input * weight);
        }
        let hidden = hidden.map(|sum| sum.max(0.0));
        let mut sums = [0f32; CLASSES.len()];
        sums.copy_from_slice(&self.weights[OUTPUT_BIAS..]);
        for (unit, row) in hidden.iter().zip(self.weights[OUTPUT..OUTPUT_BIAS].chunks(CLASSES.len())) {
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += unit * weight);
        }
        (inputs, hidden, softmax(sums))
    }

    /// Adds the gradient of a sample.
    fn learn(&mut self, sample: &Sample) {
        let (inputs, hidden, mut error) = self.forward(&sample.features);
        error[sample.class] -= 1.0;
        let mut back = [0f32; HIDDEN];
        for (unit, back) in back.iter_mut().enumerate() {
            let row = OUTPUT + unit * CLASSES.len();
            for (class, error) in error.iter().enumerate() {
                self.gradient[row + class] += hidden[unit] * error;
                *back += self.weights[row + class] * error;
            }
            if hidden[unit] <= 0.0 {
                *back = 0.0;
            }
        }
        let add = |gradient: &mut [f32], by: &[f32], factor: f32| {
            gradient.iter_mut().zip(by).for_each(|(gradient, by)| *gradient += factor * by);
        };
        add(&mut self.gradient[OUTPUT_BIAS..], &error, 1.0);
        add(&mut self.gradient[HIDDEN_BIAS..OUTPUT], &back, 1.0);
        for (input, row) in inputs.iter().zip(self.gradient[..HIDDEN_BIAS].chunks_mut(HIDDEN)) {
            add(row, &back, *input);
        }
    }

    /// A step along the gradient of so many samples, which is zero afterwards. Kingma and Ba, "Adam", 2015.
    fn step(&mut self, rate: f32, samples: usize) {
        const DECAY: (f32, f32) = (0.9, 0.999);
        self.steps += 1;
        let corrections = (1.0 - DECAY.0.powi(self.steps), 1.0 - DECAY.1.powi(self.steps));
        let moments = self.moments.0.iter_mut().zip(&mut self.moments.1);
        for ((weight, gradient), (first, second)) in
            self.weights.iter_mut().zip(&mut self.gradient).zip(moments)
        {
            let mean = *gradient / samples as f32;
            *first += (1.0 - DECAY.0) * (mean - *first);
            *second += (1.0 - DECAY.1) * (mean * mean - *second);
            *weight -= rate * (*first / corrections.0) / ((*second / corrections.1).sqrt() + 1e-8);
            *gradient = 0.0;
        }
    }

    fn accuracy(&self, samples: &[Sample]) -> f64 {
        let right = |sample: &&Sample| best(&self.forward(&sample.features).2).0 == sample.class;
        samples.iter().filter(right).count() as f64 / samples.len() as f64
    }
}
