//! From a picture's file to what the network looks at.
//!
//! What counts is the shape and not its colours: a part of the picture is worth how far its colour is from the mean one of the
//! picture's border, the farthest being 255.

use std::io::Cursor;

use fanfold::{Error, ErrorKind, Result};
use image::{ImageError, ImageFormat, ImageReader, Limits, RgbImage, imageops};

use crate::{Features, INPUTS, SIDE};

/// Longest side of a picture: of what a small file can claim, the first thing that is checked.
const PIXELS_MAX: u32 = 16_384;
/// Bytes of a decoded picture.
const DECODED_BYTES_MAX: u64 = 160 << 20;

/// Decodes a JPEG file, under limits: a small file cannot claim a huge picture.
///
/// # Errors
/// `invalid` for what is no JPEG file or a damaged one, `limit` for one that is too large.
pub fn decode(jpeg: &[u8]) -> Result<RgbImage> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(PIXELS_MAX);
    limits.max_image_height = Some(PIXELS_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(jpeg), ImageFormat::Jpeg);
    reader.limits(limits);
    match reader.decode() {
        Ok(image) => Ok(image.into_rgb8()),
        Err(ImageError::Limits(error)) => {
            Err(Error::new(ErrorKind::Limit, format!("the picture is too large: {error}")))
        }
        Err(error) => Err(Error::invalid(format!("not a whole JPEG file: {error}"))),
    }
}

/// What the network looks at.
pub fn features(picture: &RgbImage) -> Features {
    // Averages over the pixels of a part.
    let small = imageops::thumbnail(picture, SIDE as u32, SIDE as u32);
    let ground = border(&small);
    let mut distances = [0f32; INPUTS];
    for (distance, pixel) in distances.iter_mut().zip(small.pixels()) {
        *distance =
            pixel.0.iter().zip(&ground).map(|(value, ground)| (f32::from(*value) - ground).abs()).sum();
    }
    let farthest = distances.iter().copied().fold(1.0, f32::max);
    distances.map(|distance| (distance / farthest * 255.0).round() as u8)
}

/// The mean colour of the outermost pixels.
fn border(small: &RgbImage) -> [f32; 3] {
    let last = SIDE as u32 - 1;
    let (mut sum, mut count) = ([0f32; 3], 0);
    for (x, y, pixel) in small.enumerate_pixels() {
        if x == 0 || y == 0 || x == last || y == last {
            count += 1;
            sum.iter_mut().zip(pixel.0).for_each(|(sum, value)| *sum += f32::from(value));
        }
    }
    sum.map(|sum| sum / count as f32)
}

#[cfg(test)]
mod tests {
    use image::Rgb;

    use super::*;
    use crate::shapes;

    #[test]
    fn colours_do_not_count() {
        let square = |ground: [u8; 3], shape: [u8; 3]| {
            features(&RgbImage::from_fn(64, 64, |x, y| {
                Rgb(if (16..48).contains(&x) && (16..48).contains(&y) { shape } else { ground })
            }))
        };
        let white = square([0; 3], [255; 3]);
        assert_eq!(white, square([255; 3], [0; 3]));
        assert_eq!(white, square([200, 20, 90], [10, 60, 90]));
        assert_eq!((white[0], white[7 * SIDE + 7]), (0, 255));
        // Nothing to see at all.
        assert_eq!(square([7; 3], [7; 3]), [0; INPUTS]);
    }

    #[test]
    fn damaged_files_are_errors() {
        let whole = shapes::jpeg(1, 1, 64).unwrap();
        assert_eq!(decode(&whole).unwrap().dimensions(), (64, 64));
        for bytes in [&b"no picture"[..], &[], &whole[..100]] {
            assert_eq!(decode(bytes).unwrap_err().kind, ErrorKind::Invalid);
        }
    }
}
