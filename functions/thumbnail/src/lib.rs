//! Makes a thumbnail: a JPEG or PNG image in, a smaller image of the same format out.
//!
//! The environment variable `THUMBNAIL_PIXELS` (in the manifest) is the longest side of the result.

use std::io::Cursor;

use fanfold::{Error, ErrorKind, Result};
use image::{DynamicImage, ImageError, ImageFormat, ImageReader, Limits, codecs::jpeg::JpegEncoder};

/// Longest side of a thumbnail where the environment does not say.
const PIXELS: u32 = 256;
/// Longest side of a source: of what a small file can claim, the first thing that is checked.
const SOURCE_PIXELS_MAX: u32 = 16_384;
/// Bytes of a decoded source; the manifest's memory has room for it and the file.
const DECODED_BYTES_MAX: u64 = 160 << 20;
/// Of 100; what most tools write.
const JPEG_QUALITY: u8 = 80;

/// Body in, body out.
///
/// # Errors
/// `invalid` if the body is no JPEG or PNG image or a damaged one, `limit` if it is too large.
#[fanfold::function]
pub fn thumbnail(image: Vec<u8>) -> Result<Vec<u8>> {
    let (source, format) = decode(&image)?;
    let pixels = pixels()?;
    let (width, height) = (source.width(), source.height());
    // `thumbnail` averages over the source's pixels: fast, and right for making things smaller.
    let small = if width.max(height) > pixels { source.thumbnail(pixels, pixels) } else { source };
    fanfold::debug!("{width} x {height} to {} x {}", small.width(), small.height());
    encode(&small, format)
}

fn pixels() -> Result<u32> {
    let Ok(text) = std::env::var("THUMBNAIL_PIXELS") else { return Ok(PIXELS) };
    match text.parse() {
        Ok(pixels) if (1..=SOURCE_PIXELS_MAX).contains(&pixels) => Ok(pixels),
        _ => Err(Error::guest(format!(
            "THUMBNAIL_PIXELS is `{text}`: set a number from 1 to {SOURCE_PIXELS_MAX}"
        ))),
    }
}

/// Decodes the image under limits, so that a small file cannot claim a huge picture.
fn decode(bytes: &[u8]) -> Result<(DynamicImage, ImageFormat)> {
    let format = image::guess_format(bytes).ok();
    let format = format.filter(|format| matches!(format, ImageFormat::Jpeg | ImageFormat::Png));
    let format = format.ok_or_else(|| Error::invalid("the body is neither a JPEG nor a PNG image"))?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(SOURCE_PIXELS_MAX);
    limits.max_image_height = Some(SOURCE_PIXELS_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    match reader.decode() {
        Ok(image) => Ok((image, format)),
        Err(ImageError::Limits(error)) => {
            Err(Error::new(ErrorKind::Limit, format!("the image is too large: {error}")))
        }
        Err(error) => Err(Error::invalid(format!("the image is damaged: {error}"))),
    }
}

fn encode(image: &DynamicImage, format: ImageFormat) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match format {
        ImageFormat::Jpeg => {
            JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY).encode_image(&image.to_rgb8())?
        }
        format => image.write_to(&mut Cursor::new(&mut bytes), format)?,
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use image::RgbImage;

    use super::*;

    fn sample(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let image = RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, (x ^ y) as u8]));
        encode(&DynamicImage::from(image), format).unwrap()
    }

    #[test]
    fn keeps_format_and_proportions_and_never_enlarges() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png] {
            let (small, same) = decode(&thumbnail(sample(1024, 512, format)).unwrap()).unwrap();
            assert_eq!((small.width(), small.height(), same), (256, 128, format));
            let (kept, _) = decode(&thumbnail(sample(20, 10, format)).unwrap()).unwrap();
            assert_eq!((kept.width(), kept.height()), (20, 10));
        }
    }

    #[test]
    fn wrong_bodies_are_named() {
        let kind = |body: Vec<u8>| thumbnail(body).map_err(|e| e.kind).err();
        assert_eq!(kind(b"just text".to_vec()), Some(ErrorKind::Invalid));
        assert_eq!(kind(Vec::new()), Some(ErrorKind::Invalid));
        let mut cut = sample(300, 300, ImageFormat::Png);
        cut.truncate(1000);
        assert_eq!(kind(cut), Some(ErrorKind::Invalid));
        // A header that claims 65,535 x 65,535 pixels, with its checksum.
        let mut bomb = sample(8, 8, ImageFormat::Png);
        bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
        let checksum = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(kind(bomb), Some(ErrorKind::Limit));
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8)
                .fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1)))
        })
    }
}
