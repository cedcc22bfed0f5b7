//! Makes thumbnails of the photos that a batch of events tells of: `inbox/a.jpg` becomes `thumbnails/a.jpg`.
//!
//! The trigger in `fanfold.toml` calls it. One photo that cannot be read fails the whole batch; the platform then splits it, so
//! that in the end only that photo's event is given up. Whatever of a failed batch was written before is written again, the same.

use std::io::Cursor;

use fanfold::{Error, Result, objects};
use image::{ImageReader, Limits};
use serde::{Deserialize, Serialize};

/// Longest side of a thumbnail.
const PIXELS: u32 = 128;
/// Longest side of a photo, and bytes of it once it is decoded: a small file can claim to be a huge picture.
const SOURCE_PIXELS_MAX: u32 = 16_384;
const DECODED_BYTES_MAX: u64 = 160 << 20;

/// What is needed of a CloudEvent of an object; the rest is passed over.
#[derive(Deserialize)]
struct Event {
    data: Photo,
}

#[derive(Deserialize)]
struct Photo {
    key: String,
}

/// One line of the result.
#[derive(Serialize, Debug, PartialEq, Eq)]
struct Thumbnail {
    /// The photo.
    photo: String,
    /// Where its thumbnail is.
    thumbnail: String,
    /// The photo's width and height in pixels.
    pixels: (u32, u32),
}

/// Makes the thumbnails; what they are of, in the order of the events.
#[fanfold::function]
fn inbox(events: Vec<Event>) -> Result<Vec<Thumbnail>> {
    events.into_iter().map(|event| thumbnail(event.data.key)).collect()
}

fn thumbnail(photo: String) -> Result<Thumbnail> {
    let name = photo.strip_prefix("inbox/").unwrap_or(&photo);
    let thumbnail = format!("thumbnails/{name}");
    let bytes = objects::open(photo.as_str())?.bytes()?;
    let (small, pixels) = shrink(&bytes).map_err(|e| Error::invalid(format!("{photo}: {e}")))?;
    objects::put(&thumbnail, &small)?;
    Ok(Thumbnail { photo, thumbnail, pixels })
}

fn shrink(bytes: &[u8]) -> image::ImageResult<(Vec<u8>, (u32, u32))> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(SOURCE_PIXELS_MAX);
    limits.max_image_height = Some(SOURCE_PIXELS_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    reader.limits(limits);
    let format = reader.format().unwrap_or(image::ImageFormat::Jpeg);
    let photo = reader.decode()?;
    let mut small = Cursor::new(Vec::new());
    photo.thumbnail(PIXELS, PIXELS).to_rgb8().write_to(&mut small, format)?;
    Ok((small.into_inner(), (photo.width(), photo.height())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &str) -> Event {
        Event { data: Photo { key: key.to_owned() } }
    }

    #[test]
    fn photos_become_thumbnails_and_what_is_none_is_named() {
        let photo = image::RgbImage::from_fn(512, 256, |x, y| image::Rgb([x as u8, y as u8, 0]));
        let mut bytes = Cursor::new(Vec::new());
        photo.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
        objects::put("inbox/a.jpg", bytes.get_ref()).unwrap();
        let made = inbox(vec![event("inbox/a.jpg")]).unwrap();
        assert_eq!((made[0].thumbnail.as_str(), made[0].pixels), ("thumbnails/a.jpg", (512, 256)));
        let small = objects::open("thumbnails/a.jpg").unwrap().bytes().unwrap();
        assert_eq!(image::load_from_memory(&small).unwrap().width(), 128);

        objects::put("inbox/b.jpg", b"no photo").unwrap();
        let error = inbox(vec![event("inbox/a.jpg"), event("inbox/b.jpg")]).unwrap_err();
        assert!(error.message.starts_with("inbox/b.jpg: "), "{error:?}");
    }
}
