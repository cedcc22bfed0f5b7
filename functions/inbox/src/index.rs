//! What was made of a batch as an Arrow file, `thumbnails/index/` + a digest of its photos + `.arrow`: the columns `photo`, `thumbnail`,
//! `width` and `height` (of the photo, in pixels), a row for each thumbnail. The same batch writes the same object.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow_ipc::writer::FileWriter;
use fanfold::{Result, objects};

use crate::Thumbnail;

/// Writes the index; its key, or nothing where there is nothing to write.
pub fn write(made: &[Thumbnail]) -> Result<Option<String>> {
    if made.is_empty() {
        return Ok(None);
    }
    let key = format!("thumbnails/index/{:016x}.arrow", digest(made));
    let table = table(made)?;
    let mut file = FileWriter::try_new(Vec::new(), &table.schema())?;
    file.write(&table)?;
    objects::put(&key, &file.into_inner()?)?;
    Ok(Some(key))
}

fn table(made: &[Thumbnail]) -> Result<RecordBatch> {
    let photos: ArrayRef = Arc::new(StringArray::from_iter_values(made.iter().map(|made| &made.photo)));
    let thumbnails: ArrayRef =
        Arc::new(StringArray::from_iter_values(made.iter().map(|made| &made.thumbnail)));
    let widths: ArrayRef = Arc::new(UInt32Array::from_iter_values(made.iter().map(|made| made.pixels.0)));
    let heights: ArrayRef = Arc::new(UInt32Array::from_iter_values(made.iter().map(|made| made.pixels.1)));
    let columns = [("photo", photos), ("thumbnail", thumbnails), ("width", widths), ("height", heights)];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// FNV-1a over photos and their etags: what is put anew under the same key gets an index of its own.
fn digest(made: &[Thumbnail]) -> u64 {
    let texts = made.iter().flat_map(|made| [made.photo.as_bytes(), b"\0", made.etag.as_bytes(), b"\0"]);
    texts.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
