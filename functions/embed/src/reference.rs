//! The encoder on the processor: what the gpu's vectors are compared with.
//!
//! BERT's, as published: the rows of a token, its position and its kind are added and normalised; each layer adds attention and a
//! feed-forward part, and normalises after either; the mean of a text's tokens, brought to length 1, is its vector.

use fanfold::Result;

use crate::{
    model::{Config, Linear, Norm, Parameters},
    weights::Weights,
};

/// Sums that a product of two rows is made of: independent, so that a processor computes several at once.
const LANES: usize = 8;

/// An encoder with its weights.
pub struct Encoder {
    config: Config,
    parameters: Parameters<Vec<f32>>,
}

impl Encoder {
    /// Reads the weights.
    ///
    /// # Errors
    /// `invalid`, naming the tensor that is missing or of another shape.
    pub fn load(weights: &Weights, config: Config) -> Result<Self> {
        let parameters = Parameters::make(&config, |name, shape| weights.numbers(name, shape))?;
        Ok(Self { config, parameters })
    }

    /// The vector of a text. Of its tokens the first `length`, over 0, count; the rest is padding.
    pub fn vector(&self, tokens: &[u32], length: usize) -> Vec<f32> {
        let (hidden, parameters) = (self.config.hidden_size as usize, &self.parameters);
        let mut states = self.embedded(tokens);
        for layer in &parameters.layers {
            let [query, key, value] =
                [&layer.query, &layer.key, &layer.value].map(|linear| apply(linear, &states));
            let heads = self.config.num_attention_heads as usize;
            let attended = attention(&query, &key, &value, hidden, heads, length);
            add(&mut states, &apply(&layer.attended, &attended));
            self.normalise(&mut states, &layer.attended_norm);
            let mut inner = apply(&layer.inner, &states);
            inner.iter_mut().for_each(|number| *number = gelu(*number));
            add(&mut states, &apply(&layer.outer, &inner));
            self.normalise(&mut states, &layer.norm);
        }
        unit_mean(&states[..length * hidden], hidden)
    }

    fn embedded(&self, tokens: &[u32]) -> Vec<f32> {
        let (hidden, parameters) = (self.config.hidden_size as usize, &self.parameters);
        let row = |table: &'_ [f32], row: usize| table[row * hidden..(row + 1) * hidden].to_vec();
        let mut states = Vec::with_capacity(tokens.len() * hidden);
        for (position, token) in tokens.iter().enumerate() {
            let mut state = row(&parameters.words, *token as usize);
            add(&mut state, &row(&parameters.positions, position));
            add(&mut state, &row(&parameters.types, 0));
            states.extend(state);
        }
        self.normalise(&mut states, &parameters.norm);
        states
    }

    fn normalise(&self, states: &mut [f32], norm: &Norm<Vec<f32>>) {
        for state in states.chunks_mut(self.config.hidden_size as usize) {
            layer_norm(state, norm, self.config.layer_norm_eps);
        }
    }
}

/// Each row of inputs times each row of weights, and the bias.
fn apply(linear: &Linear<Vec<f32>>, inputs: &[f32]) -> Vec<f32> {
    let size = linear.weight.len() / linear.bias.len();
    let mut outputs = Vec::with_capacity(inputs.len() / size * linear.bias.len());
    for input in inputs.chunks(size) {
        let rows = linear.weight.chunks(size).zip(&linear.bias);
        outputs.extend(rows.map(|(row, bias)| bias + dot(input, row)));
    }
    outputs
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (mut sums, (a, rest_a), (b, rest_b)) =
        ([0f32; LANES], a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += a * b);
    }
    sums.iter().sum::<f32>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f32>()
}

fn add(to: &mut [f32], more: &[f32]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
}

/// What each token is given by the first `length` ones, head by head.
fn attention(
    query: &[f32],
    key: &[f32],
    value: &[f32],
    hidden: usize,
    heads: usize,
    length: usize,
) -> Vec<f32> {
    let size = hidden / heads;
    let mut attended = vec![0f32; query.len()];
    for (query, attended) in query.chunks(hidden).zip(attended.chunks_mut(hidden)) {
        for head in (0..hidden).step_by(size).map(|first| first..first + size) {
            let of_token = |token: usize| token * hidden + head.start..token * hidden + head.end;
            let score = |token| dot(&query[head.clone()], &key[of_token(token)]) / (size as f32).sqrt();
            let chances = softmax((0..length).map(score).collect());
            for (token, chance) in chances.iter().enumerate() {
                let given = attended[head.clone()].iter_mut().zip(&value[of_token(token)]);
                given.for_each(|(sum, value)| *sum += chance * value);
            }
        }
    }
    attended
}

/// Chances from scores.
fn softmax(mut scores: Vec<f32>) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::MIN, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let total: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= total);
    scores
}

/// To mean 0 and variance 1, then times the weight and plus the bias.
fn layer_norm(state: &mut [f32], norm: &Norm<Vec<f32>>, epsilon: f32) {
    let count = state.len() as f32;
    let mean = state.iter().sum::<f32>() / count;
    let variance = state.iter().map(|number| (number - mean).powi(2)).sum::<f32>() / count;
    let factor = 1.0 / (variance + epsilon).sqrt();
    for ((number, weight), bias) in state.iter_mut().zip(&norm.weight).zip(&norm.bias) {
        *number = (*number - mean) * factor * weight + bias;
    }
}

/// A number times the chance that a normal one is less.
fn gelu(number: f32) -> f32 {
    0.5 * number * (1.0 + libm::erff(number * std::f32::consts::FRAC_1_SQRT_2))
}

/// The mean of rows, brought to length 1.
fn unit_mean(rows: &[f32], size: usize) -> Vec<f32> {
    let mut mean = vec![0f32; size];
    rows.chunks(size).for_each(|row| add(&mut mean, row));
    // What the sum would be divided by goes out of a vector of length 1.
    let length = mean.iter().map(|number| number * number).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    mean.iter_mut().for_each(|number| *number /= length);
    mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn near(found: &[f32], wanted: &[f32]) {
        let far = found.iter().zip(wanted).any(|(found, wanted)| (found - wanted).abs() > 1e-5);
        assert!(found.len() == wanted.len() && !far, "{found:?}, not {wanted:?}");
    }

    #[test]
    fn parts_are_as_worked_out_by_hand() {
        let norm = Norm { weight: vec![1.0, 1.0, 2.0, 1.0], bias: vec![0.0, 0.0, 0.0, 10.0] };
        // Mean 3, variance 5.
        let mut state = [0.0, 2.0, 4.0, 6.0];
        layer_norm(&mut state, &norm, 0.0);
        let root = 5f32.sqrt();
        near(&state, &[-3.0 / root, -1.0 / root, 2.0 / root, 3.0 / root + 10.0]);
        // A variance of 0 is no division by it.
        let mut flat = [7.0; 4];
        layer_norm(&mut flat, &norm, 1e-12);
        near(&flat, &norm.bias);

        near(&softmax(vec![0.0, 2f32.ln(), 1000f32.ln()]), &[1.0 / 1003.0, 2.0 / 1003.0, 1000.0 / 1003.0]);
        near(&softmax(vec![1e4, 1e4]), &[0.5, 0.5]);
        near(&[gelu(0.0), gelu(1.0), gelu(-1.0), gelu(10.0)], &[0.0, 0.841_345, -0.158_655, 10.0]);
        near(&unit_mean(&[1.0, 5.0, 5.0, 3.0], 2), &[0.6, 0.8]);
        let linear = Linear { weight: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], bias: vec![0.5, 0.0, -1.0] };
        near(&apply(&linear, &[1.0, 10.0, 0.0, 1.0]), &[21.5, 43.0, 64.0, 2.5, 4.0, 5.0]);
    }

    /// Two heads of two numbers. The first head's query fits the first key as well as the second; the other fits nobody's.
    #[test]
    fn attention_gives_what_was_looked_for_and_skips_padding() {
        let query = [1.0, 1.0, 0.0, 0.0];
        let key = [1.0, 0.0, 5.0, 5.0, 0.0, 1.0, -5.0, 5.0, 90.0, 90.0, 90.0, 90.0];
        let value = [1.0, 0.0, 4.0, 8.0, 3.0, 2.0, 6.0, 0.0, 100.0, 100.0, 100.0, 100.0];
        near(&attention(&query, &key, &value, 4, 2, 2), &[2.0, 1.0, 5.0, 4.0]);
        // With the third token, which was padding, all is different.
        near(&attention(&query, &key, &value, 4, 2, 3)[..2], &[100.0, 100.0]);
        near(&attention(&query, &key, &value, 4, 2, 1), &value[..4]);
    }

    #[test]
    fn vectors_have_length_1_and_padding_does_not_count() {
        let (config, file) = samples::small(7);
        let encoder = Encoder::load(&file.open().unwrap(), config).unwrap();
        let alone = encoder.vector(&[2, 9, 11, 3], 4);
        assert!((dot(&alone, &alone) - 1.0).abs() < 1e-5);
        near(&encoder.vector(&[2, 9, 11, 3, 0, 17, 4], 4), &alone);
        // But order does, and so does each token.
        for other in [[2, 11, 9, 3], [2, 9, 12, 3]] {
            let other = encoder.vector(&other, 4);
            assert!(dot(&alone, &other) < 0.9999, "{}", dot(&alone, &other));
        }
    }
}
