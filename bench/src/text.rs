//! Generated text, put in as objects.

use anyhow::Result;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::rest::Rest;

const OBJECT_BYTES: usize = 4 << 20;
const WORDS: usize = 50_000;

/// Puts about as many megabytes under a prefix; returns how many bytes.
pub async fn put(rest: &mut Rest, prefix: &str, megabytes: usize) -> Result<usize> {
    let mut bytes = 0;
    for number in 0..megabytes * 1_000_000 / OBJECT_BYTES {
        let text = text(number as u64);
        bytes += text.len();
        rest.send("PUT", &format!("/v1/objects/{prefix}{number:05}"), "text/plain", text).await?;
    }
    Ok(bytes)
}

/// Text with the word frequencies of prose: the rank of a word is drawn so that rank and frequency multiply to a constant.
fn text(seed: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut text = Vec::with_capacity(OBJECT_BYTES + 32);
    while text.len() < OBJECT_BYTES {
        let rank = (WORDS as f64).powf(random.random::<f64>()) as usize;
        text.extend_from_slice(format!("w{rank:x}").as_bytes());
        text.push(if random.random_ratio(1, 12) { b'\n' } else { b' ' });
    }
    text
}
