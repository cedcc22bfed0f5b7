//! The shape of an encoder: `config.json` as model hubs have it, and the tensors that follow from it, with their names.

use fanfold::{Error, Result};
use serde::{Deserialize, Serialize};

/// Bounds of a shape: far beyond published encoders, and small enough that no product of two of them overflows.
const VOCAB_MAX: u32 = 1 << 20;
const HIDDEN_MAX: u32 = 1 << 13;
const INNER_MAX: u32 = 1 << 15;
const LAYERS_MAX: u32 = 64;
const POSITIONS_MAX: u32 = 1 << 13;

/// What `config.json` says, as far as it matters here; what else is in it is ignored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Tokens that there are.
    pub vocab_size: u32,
    /// Numbers of a vector.
    pub hidden_size: u32,
    /// Layers.
    pub num_hidden_layers: u32,
    /// Heads of the attention; they share a vector's numbers equally.
    pub num_attention_heads: u32,
    /// Numbers inside of a feed-forward part.
    pub intermediate_size: u32,
    /// Tokens of a text at most.
    pub max_position_embeddings: u32,
    /// Kinds of tokens; all have the first one here.
    #[serde(default = "two")]
    pub type_vocab_size: u32,
    /// What is added to a variance before its root.
    #[serde(default = "epsilon")]
    pub layer_norm_eps: f32,
    /// Only `gelu` will do, the one with the error function.
    #[serde(default = "gelu")]
    pub hidden_act: String,
}

fn two() -> u32 {
    2
}

fn epsilon() -> f32 {
    1e-12
}

fn gelu() -> String {
    String::from("gelu")
}

impl Config {
    /// From a file's bytes.
    ///
    /// # Errors
    /// `invalid` for what is no JSON, lacks a number, or cannot be computed here.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let config: Self = serde_json::from_slice(json).map_err(|e| Error::invalid(e.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// That everything is within bounds and fits together.
    ///
    /// # Errors
    /// `invalid`, naming what does not.
    pub fn check(&self) -> Result<()> {
        let (hidden, heads) = (self.hidden_size, self.num_attention_heads);
        for (name, number, max) in [
            ("vocab_size", self.vocab_size, VOCAB_MAX),
            ("hidden_size", hidden, HIDDEN_MAX),
            ("num_hidden_layers", self.num_hidden_layers, LAYERS_MAX),
            ("num_attention_heads", heads, hidden),
            ("intermediate_size", self.intermediate_size, INNER_MAX),
            ("max_position_embeddings", self.max_position_embeddings, POSITIONS_MAX),
            ("type_vocab_size", self.type_vocab_size, VOCAB_MAX),
        ] {
            if number == 0 || number > max {
                return Err(Error::invalid(format!("{name} is {number}: from 1 to {max} will do")));
            }
        }
        if !hidden.is_multiple_of(4 * heads) || !self.intermediate_size.is_multiple_of(4) {
            return Err(Error::invalid(format!(
                "hidden_size {hidden} must be a multiple of 4 × num_attention_heads {heads}, and intermediate_size {} of 4",
                self.intermediate_size
            )));
        }
        if self.hidden_act != gelu() {
            return Err(Error::invalid(format!("hidden_act is `{}`: only `gelu` is known", self.hidden_act)));
        }
        if !(self.layer_norm_eps >= 0.0 && self.layer_norm_eps < 1.0) {
            return Err(Error::invalid(format!("layer_norm_eps is {}: from 0 to 1", self.layer_norm_eps)));
        }
        Ok(())
    }
}

/// All tensors of an encoder, each as a `T`.
pub struct Parameters<T> {
    /// A row for each token.
    pub words: T,
    /// A row for each position.
    pub positions: T,
    /// A row for each kind of token.
    pub types: T,
    /// Of the three rows' sum.
    pub norm: Norm<T>,
    /// In order.
    pub layers: Vec<Layer<T>>,
}

/// Tensors of one layer.
pub struct Layer<T> {
    /// What a token looks for.
    pub query: Linear<T>,
    /// What it is found by.
    pub key: Linear<T>,
    /// What it then gives.
    pub value: Linear<T>,
    /// Of what was given to a token.
    pub attended: Linear<T>,
    /// Of that, added to what went into the layer.
    pub attended_norm: Norm<T>,
    /// The feed-forward part: out to more numbers,
    pub inner: Linear<T>,
    /// and back.
    pub outer: Linear<T>,
    /// Of that, added to what went into it.
    pub norm: Norm<T>,
}

/// `weight` has a row for each number that comes out.
pub struct Linear<T> {
    /// Rows of as many numbers as go in.
    pub weight: T,
    /// One number for each row.
    pub bias: T,
}

/// What a normalised vector is multiplied by, and what is added then.
pub struct Norm<T> {
    /// Factors.
    pub weight: T,
    /// Terms.
    pub bias: T,
}

impl<T> Parameters<T> {
    /// Has each tensor made from its name and its shape, in the order of the computation.
    ///
    /// # Errors
    /// The first that `make` gives.
    pub fn make(config: &Config, make: impl FnMut(&str, &[u32]) -> Result<T>) -> Result<Self> {
        let (hidden, mut maker) = (config.hidden_size, Maker { config, make });
        Ok(Self {
            words: maker.tensor("embeddings.word_embeddings.weight", &[config.vocab_size, hidden])?,
            positions: maker
                .tensor("embeddings.position_embeddings.weight", &[config.max_position_embeddings, hidden])?,
            types: maker
                .tensor("embeddings.token_type_embeddings.weight", &[config.type_vocab_size, hidden])?,
            norm: maker.norm("embeddings.LayerNorm")?,
            layers: (0..config.num_hidden_layers).map(|n| maker.layer(n)).collect::<Result<_>>()?,
        })
    }
}

struct Maker<'a, F> {
    config: &'a Config,
    make: F,
}

impl<T, F: FnMut(&str, &[u32]) -> Result<T>> Maker<'_, F> {
    fn tensor(&mut self, name: &str, shape: &[u32]) -> Result<T> {
        (self.make)(name, shape)
    }

    fn norm(&mut self, name: &str) -> Result<Norm<T>> {
        let shape = [self.config.hidden_size];
        Ok(Norm {
            weight: self.tensor(&format!("{name}.weight"), &shape)?,
            bias: self.tensor(&format!("{name}.bias"), &shape)?,
        })
    }

    fn linear(&mut self, name: &str, inputs: u32, outputs: u32) -> Result<Linear<T>> {
        Ok(Linear {
            weight: self.tensor(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: self.tensor(&format!("{name}.bias"), &[outputs])?,
        })
    }

    fn layer(&mut self, number: u32) -> Result<Layer<T>> {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        Ok(Layer {
            query: self.linear(&name("attention.self.query"), hidden, hidden)?,
            key: self.linear(&name("attention.self.key"), hidden, hidden)?,
            value: self.linear(&name("attention.self.value"), hidden, hidden)?,
            attended: self.linear(&name("attention.output.dense"), hidden, hidden)?,
            attended_norm: self.norm(&name("attention.output.LayerNorm"))?,
            inner: self.linear(&name("intermediate.dense"), hidden, inner)?,
            outer: self.linear(&name("output.dense"), inner, hidden)?,
            norm: self.norm(&name("output.LayerNorm"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINILM: &str = r#"{"architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": 384,
        "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
        "num_attention_heads": 12, "num_hidden_layers": 6, "type_vocab_size": 2, "vocab_size": 30522}"#;

    #[test]
    fn a_published_shape_has_its_tensors() {
        let config = Config::parse(MINILM.as_bytes()).unwrap();
        let (mut names, mut numbers) = (Vec::new(), 0);
        Parameters::make(&config, |name, shape| {
            names.push(format!("{name} {shape:?}"));
            numbers += shape.iter().product::<u32>();
            Ok(())
        })
        .unwrap();
        // 22,713,216 with the layer that nobody needs for vectors.
        assert_eq!((names.len(), numbers), (5 + 6 * 16, 22_713_216 - 384 * 385));
        assert!(
            names.contains(&String::from("encoder.layer.5.intermediate.dense.weight [1536, 384]")),
            "{names:?}"
        );
    }

    #[test]
    fn shapes_that_cannot_be_are_named() {
        for (from, to, part) in [
            ("\"num_attention_heads\": 12", "\"num_attention_heads\": 7", "num_attention_heads 7"),
            ("\"hidden_size\": 384", "\"hidden_size\": 0", "hidden_size is 0"),
            ("\"vocab_size\": 30522", "\"vocab_size\": 4000000000", "vocab_size is 4000000000"),
            ("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "`relu`"),
            ("\"num_hidden_layers\": 6,", "", "num_hidden_layers"),
        ] {
            let error = Config::parse(MINILM.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.kind == fanfold::ErrorKind::Invalid && error.message.contains(part), "{error}");
        }
    }
}
