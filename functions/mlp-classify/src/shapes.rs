//! Pictures of known classes: one shape each, of random place, size, angle and colours, on a shaded ground, with noise.
//!
//! Equal arguments make equal pictures.

use fanfold::Result;
use image::{Rgb, RgbImage, codecs::jpeg::JpegEncoder};

/// What there is to see; a class is a place in this list.
pub const CLASSES: [&str; 5] = ["cross", "disc", "ring", "square", "triangle"];

/// Of 100.
const JPEG_QUALITY: u8 = 85;
/// Samples of a pixel along x and along y.
const SAMPLES: u32 = 2;
/// The least difference of a shape from its ground, summed over the colours.
const CONTRAST_MIN: f32 = 150.0;
/// The largest noise in a colour of a pixel.
const NOISE: f32 = 24.0;

/// The class of picture `number`: all come in turn.
pub fn class_of(number: u64) -> usize {
    (number % CLASSES.len() as u64) as usize
}

/// Picture `number` of a series, `pixels` wide and high, as a JPEG file.
///
/// # Errors
/// `guest` where it cannot be encoded.
pub fn jpeg(seed: u64, number: u64, pixels: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY).encode_image(&draw(seed, number, pixels))?;
    Ok(bytes)
}

/// The same as an image.
pub fn draw(seed: u64, number: u64, pixels: u32) -> RgbImage {
    let mut random = Random::new(seed, number);
    let picture = Picture::new(class_of(number), &mut random);
    RgbImage::from_fn(pixels, pixels, |x, y| {
        let cover = picture.cover(x, y, pixels);
        let shade = picture.slope * (x as f32 / pixels as f32 - 0.5);
        let mut colour = |n: usize| {
            let ground = picture.ground[n] + shade;
            ground + (picture.shape[n] - ground) * cover + random.between(-NOISE, NOISE)
        };
        Rgb([colour(0), colour(1), colour(2)].map(|value| value.clamp(0.0, 255.0) as u8))
    })
}

/// What is drawn. Lengths are parts of the picture's side.
struct Picture {
    class: usize,
    center: [f32; 2],
    radius: f32,
    /// Cosine and sine of the angle by which it is turned.
    turn: (f32, f32),
    shape: [f32; 3],
    ground: [f32; 3],
    /// How much lighter the ground is on the right than on the left.
    slope: f32,
}

impl Picture {
    fn new(class: usize, random: &mut Random) -> Self {
        let center = [0.5 + random.between(-0.1, 0.1), 0.5 + random.between(-0.1, 0.1)];
        let radius = random.between(0.24, 0.36);
        let angle = random.between(-0.25, 0.25);
        let mut colour = || [0; 3].map(|_: i32| random.between(0.0, 255.0));
        let (ground, mut shape) = (colour(), colour());
        while ground.iter().zip(&shape).map(|(a, b)| (a - b).abs()).sum::<f32>() < CONTRAST_MIN {
            shape = colour();
        }
        let slope = random.between(-30.0, 30.0);
        Self { class, center, radius, turn: (angle.cos(), angle.sin()), shape, ground, slope }
    }

    /// How much of a pixel the shape covers, from 0 to 1.
    fn cover(&self, x: u32, y: u32, pixels: u32) -> f32 {
        let steps = (pixels * SAMPLES) as f32;
        let mut inside = 0;
        for sample in 0..SAMPLES * SAMPLES {
            let place = |at: u32, sample: u32| ((at * SAMPLES + sample) as f32 + 0.5) / steps;
            let (x, y) = (place(x, sample % SAMPLES), place(y, sample / SAMPLES));
            let (x, y) = ((x - self.center[0]) / self.radius, (y - self.center[1]) / self.radius);
            let (cos, sin) = self.turn;
            inside += u32::from(contains(self.class, x * cos + y * sin, y * cos - x * sin));
        }
        inside as f32 / (SAMPLES * SAMPLES) as f32
    }
}

/// Whether a point is in the shape of radius 1 around the origin; y goes down.
fn contains(class: usize, x: f32, y: f32) -> bool {
    let (across, down) = (x.abs(), y.abs());
    match CLASSES[class] {
        "cross" => (across < 0.3 && down < 1.0) || (across < 1.0 && down < 0.3),
        "disc" => x * x + y * y < 1.0,
        "ring" => (0.35..1.0).contains(&(x * x + y * y)),
        "square" => across < 0.85 && down < 0.85,
        _ => (-1.0..0.8).contains(&y) && across < (y + 1.0) * 0.55,
    }
}

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64, number: u64) -> Self {
        let mut random = Self(seed);
        random.0 = random.next() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_follow_from_their_numbers() {
        assert_eq!(jpeg(1, 7, 48).unwrap(), jpeg(1, 7, 48).unwrap());
        assert_ne!(draw(1, 7, 48), draw(2, 7, 48));
        assert_ne!(draw(1, 7, 48), draw(1, 12, 48));
    }

    #[test]
    fn shapes_are_what_they_are_called() {
        let inside =
            |name: &str, x, y| contains(CLASSES.iter().position(|class| *class == name).unwrap(), x, y);
        assert!(!inside("ring", 0.0, 0.0) && inside("ring", 0.0, 0.8) && inside("disc", 0.0, 0.0));
        assert!(inside("square", 0.8, 0.8) && !inside("disc", 0.8, 0.8) && !inside("cross", 0.8, 0.8));
        assert!(inside("triangle", 0.8, 0.75) && !inside("triangle", 0.8, -0.75));
    }
}
