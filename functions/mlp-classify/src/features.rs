//! From a picture's file to what the network looks at.
//!
//! What counts is the shape and not its colours: a part of the picture is worth how far its colour is from the mean one of the
//! picture's border, the farthest being 255.

use std::io::Cursor;

use fanfold::{Error, ErrorKind, Result};
use image::{
    DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits, RgbImage, imageops,
};

use crate::{Features, INPUTS, SIDE};

/// Longest side of a picture: of what a small file can claim, the first thing that is checked.
const PIXELS_MAX: u32 = 16_384;
/// Bytes of a decoded picture in three colours, which a grey one gets as well. While it does, it is there twice.
const DECODED_BYTES_MAX: u64 = 160 << 20;

/// Decodes a JPEG file, under limits: a small file cannot claim a huge picture.
///
/// # Errors
/// `invalid` for what is no JPEG file or a damaged one, `limit` for one that is too large.
pub fn decode(jpeg: &[u8]) -> Result<RgbImage> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(PIXELS_MAX);
    limits.max_image_height = Some(PIXELS_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(jpeg), ImageFormat::Jpeg);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(refused)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) * 3 > DECODED_BYTES_MAX {
        let message = format!("the picture is too large: {width} × {height} pixels");
        return Err(Error::new(ErrorKind::Limit, message));
    }
    DynamicImage::from_decoder(decoder).map(DynamicImage::into_rgb8).map_err(refused)
}

fn refused(error: ImageError) -> Error {
    match error {
        ImageError::Limits(error) => {
            Error::new(ErrorKind::Limit, format!("the picture is too large: {error}"))
        }
        error => Error::invalid(format!("not a whole JPEG file: {error}")),
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
    use image::{ExtendedColorType, Rgb, codecs::jpeg::JpegEncoder};

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

    /// A small file that says it is 12,000 pixels wide and high, in shades of grey: 144 MB, and three times as much in colours.
    #[test]
    fn claims_are_judged_by_what_they_take_in_the_end() {
        let mut jpeg = Vec::new();
        JpegEncoder::new(&mut jpeg).encode(&[7; 64], 8, 8, ExtendedColorType::L8).unwrap();
        assert_eq!(decode(&jpeg).unwrap().dimensions(), (8, 8));
        let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        let side = 12_000u16.to_be_bytes();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[side, side].concat());
        let error = decode(&jpeg).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit, "{}", error.message);
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
