//! Makes thumbnails of the photos that a manifest lists, and an index of them: `inbox/a.jpg` becomes `thumbnails/a.jpg`.
//!
//! The trigger in `fanfold.toml` calls it with a table of what arrived. A photo that cannot be read is reported as failed, with why,
//! so that only its event is given up and nothing is done twice. (Should the function as a whole fail, by taking too much memory for
//! example, the platform splits the batch; whatever of it was written before is written again, the same.)

mod index;

use std::io::Cursor;

use arrow_array::{RecordBatch, StringArray, cast::AsArray as _};
use fanfold::{Error, ErrorKind, Reader, Result, arrow, objects};
use image::{ImageReader, Limits};
use serde::Serialize;

/// Longest side of a thumbnail.
const PIXELS: u32 = 128;
/// Longest side of a photo, and bytes of it once it is decoded: a small file can claim to be a huge picture.
const SOURCE_PIXELS_MAX: u32 = 16_384;
const DECODED_BYTES_MAX: u64 = 160 << 20;

/// The result: `failed` is what the platform reads.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was made, in the order of the manifest.
    pub made: Vec<Thumbnail>,
    /// Photos of which nothing was made.
    pub failed: Vec<Failed>,
    /// The object that lists what was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
}

/// A photo and its thumbnail.
#[derive(Serialize, Debug, PartialEq, Eq)]
pub struct Thumbnail {
    /// The photo.
    pub photo: String,
    /// Which content of it.
    #[serde(skip)]
    pub etag: String,
    /// Where its thumbnail is.
    pub thumbnail: String,
    /// The photo's width and height in pixels.
    pub pixels: (u32, u32),
}

/// A photo that failed.
#[derive(Serialize, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its row in the manifest.
    pub item: usize,
    /// Why, naming the photo.
    pub reason: String,
    /// Whether it may succeed when it is tried again.
    pub retryable: bool,
}

/// Makes the thumbnails of all photos in the manifest that can be read.
///
/// # Errors
/// `invalid` for what is no manifest; what kept the index from being written.
#[fanfold::function]
pub fn inbox(manifest: Reader) -> Result<Report> {
    let mut report = Report::default();
    let mut item = 0;
    for table in arrow::batches(manifest) {
        let table = table?;
        let (keys, etags) = (column(&table, "key")?, column(&table, "etag")?);
        for (key, etag) in keys.iter().zip(etags) {
            let key = key.unwrap_or_default();
            match thumbnail(key, etag.unwrap_or_default()) {
                Ok(made) => report.made.push(made),
                Err(error) => report.failed.push(failed(item, key, &error)),
            }
            item += 1;
        }
    }
    report.index = index::write(&report.made)?;
    Ok(report)
}

fn column<'a>(table: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = table.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| Error::invalid(format!("the manifest has no column `{name}`")))
}

fn failed(item: usize, key: &str, error: &Error) -> Failed {
    // What is no photo now will be none later; what the platform failed at may succeed.
    Failed {
        item,
        reason: format!("{key}: {error}"),
        retryable: error.kind != ErrorKind::Guest && error.retryable,
    }
}

fn thumbnail(photo: &str, etag: &str) -> Result<Thumbnail> {
    let name = photo.strip_prefix("inbox/").unwrap_or(photo);
    let thumbnail = format!("thumbnails/{name}");
    let bytes = objects::open(photo)?.bytes()?;
    let (small, pixels) = shrink(&bytes)?;
    objects::put(&thumbnail, &small)?;
    Ok(Thumbnail { photo: photo.to_owned(), etag: etag.to_owned(), thumbnail, pixels })
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
    use std::sync::Arc;

    use arrow_ipc::reader::FileReader;
    use fanfold::Writer;

    use super::*;

    fn manifest(keys: &[&str]) -> Reader {
        let etags = StringArray::from(vec!["e"; keys.len()]);
        let keys = StringArray::from(keys.to_vec());
        let table =
            RecordBatch::try_from_iter([("key", Arc::new(keys) as _), ("etag", Arc::new(etags) as _)])
                .unwrap();
        let mut writer = Writer::new().unwrap();
        arrow::write_block(&mut writer, &[table]).unwrap();
        writer.finish().unwrap().open().unwrap()
    }

    #[test]
    fn photos_become_thumbnails_and_what_is_none_is_named() {
        let photo = image::RgbImage::from_fn(512, 256, |x, y| image::Rgb([x as u8, y as u8, 0]));
        let mut bytes = Cursor::new(Vec::new());
        photo.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
        objects::put("inbox/a.jpg", bytes.get_ref()).unwrap();
        objects::put("inbox/b.jpg", b"no photo").unwrap();
        let report = inbox(manifest(&["inbox/b.jpg", "inbox/a.jpg", "inbox/gone.jpg"])).unwrap();
        let made = &report.made[0];
        assert_eq!((made.thumbnail.as_str(), made.pixels), ("thumbnails/a.jpg", (512, 256)));
        let small = objects::open("thumbnails/a.jpg").unwrap().bytes().unwrap();
        assert_eq!(image::load_from_memory(&small).unwrap().width(), 128);

        let index = objects::open(report.index.as_deref().unwrap()).unwrap().bytes().unwrap();
        let tables: Vec<_> = FileReader::try_new(Cursor::new(index), None).unwrap().flatten().collect();
        assert_eq!(column(&tables[0], "photo").unwrap().value(0), "inbox/a.jpg");
        assert_eq!(tables[0].num_rows(), 1);

        let failed: Vec<_> = report.failed.iter().map(|failed| (failed.item, failed.retryable)).collect();
        assert_eq!(failed, [(0, false), (2, false)]);
        assert!(report.failed[0].reason.starts_with("inbox/b.jpg: "), "{report:?}");
    }
}
