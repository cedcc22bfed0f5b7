//! The network on the processor: what the gpu's results are compared with.
//!
//! `scores = softmax(relu(features / 255 · hidden + hidden_bias) · output + output_bias)`. The weights' file has these four
//! matrices in that order, as the hexadecimal digits of 32-bit numbers; a matrix has a row for each number that goes in.

use crate::{CLASSES, Features, HIDDEN, INPUTS, Scores};

/// Numbers in a network.
pub const WEIGHTS: usize = OUTPUT_BIAS + CLASSES.len();
/// Where the parts begin.
pub const HIDDEN_BIAS: usize = INPUTS * HIDDEN;
/// As above.
pub const OUTPUT: usize = HIDDEN_BIAS + HIDDEN;
/// As above.
pub const OUTPUT_BIAS: usize = OUTPUT + HIDDEN * CLASSES.len();

/// The weights as trained, little-endian.
pub const TRAINED: &[u8; WEIGHTS * 4] = &trained(include_bytes!("weights.hex"));

/// Reads words of eight digits, each followed by one character.
const fn trained<const LENGTH: usize>(text: &[u8; LENGTH]) -> [u8; WEIGHTS * 4] {
    assert!(LENGTH == WEIGHTS * 9, "the network has another number of weights");
    let (mut bytes, mut word) = ([0; WEIGHTS * 4], 0);
    while word < WEIGHTS {
        let mut byte = 0;
        while byte < 4 {
            let at = word * 9 + (3 - byte) * 2;
            bytes[word * 4 + byte] = digit(text[at]) << 4 | digit(text[at + 1]);
            byte += 1;
        }
        word += 1;
    }
    bytes
}

const fn digit(of: u8) -> u8 {
    match of {
        b'0'..=b'9' => of - b'0',
        b'a'..=b'f' => of - b'a' + 10,
        _ => panic!("no hexadecimal digit"),
    }
}

/// The network, with weights.
pub struct Network {
    weights: Vec<f32>,
}

impl Network {
    /// With the trained weights.
    pub fn trained() -> Self {
        Self { weights: TRAINED.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect() }
    }

    /// Chances of the classes.
    pub fn scores(&self, features: &Features) -> Scores {
        let hidden = self.hidden(&features.map(|feature| f32::from(feature) / 255.0));
        self.output(&hidden)
    }

    fn hidden(&self, inputs: &[f32; INPUTS]) -> [f32; HIDDEN] {
        let mut sums = [0f32; HIDDEN];
        sums.copy_from_slice(&self.weights[HIDDEN_BIAS..OUTPUT]);
        for (input, row) in inputs.iter().zip(self.weights[..HIDDEN_BIAS].chunks(HIDDEN)) {
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += input * weight);
        }
        sums.map(|sum| sum.max(0.0))
    }

    fn output(&self, hidden: &[f32; HIDDEN]) -> Scores {
        let mut sums = [0f32; CLASSES.len()];
        sums.copy_from_slice(&self.weights[OUTPUT_BIAS..]);
        for (unit, row) in hidden.iter().zip(self.weights[OUTPUT..OUTPUT_BIAS].chunks(CLASSES.len())) {
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += unit * weight);
        }
        softmax(sums)
    }
}

/// Chances from sums.
pub fn softmax(sums: Scores) -> Scores {
    let largest = sums.iter().copied().fold(f32::MIN, f32::max);
    let powers = sums.map(|sum| (sum - largest).exp());
    let total: f32 = powers.iter().sum();
    powers.map(|power| power / total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{best, features, shapes};

    /// On pictures that it was not trained on: another series, and other sizes.
    #[test]
    fn it_knows_what_it_has_not_seen() {
        let network = Network::trained();
        for pixels in [48, 96, 200] {
            let right = (0..500).filter(|number| {
                let jpeg = shapes::jpeg(0xf01d, *number, pixels).unwrap();
                let scores = network.scores(&features::features(&features::decode(&jpeg).unwrap()));
                best(&scores).0 == shapes::class_of(*number)
            });
            let right = right.count();
            assert!(right >= 480, "{right} of 500 at {pixels} pixels");
        }
    }

    #[test]
    fn scores_are_chances() {
        let scores = Network::trained().scores(&[128; INPUTS]);
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{scores:?}");
        assert_eq!(softmax([1000.0; 5]), [0.2; 5]);
    }
}
