//! Rows of the pipeline: a picture's file, what the network looks at, and its label. Each begins or ends with the object's key.

use fanfold::{Error, ObjectRange, Result, objects};
use fanfold_pipeline::{Row, RowIter};
use image::{RgbImage, codecs::jpeg::JpegEncoder, imageops};
use mlp_classify::{Features, INPUTS, features};

/// Longest side of a thumbnail.
const THUMBNAIL_PIXELS: u32 = 64;
/// Of 100.
const JPEG_QUALITY: u8 = 80;
/// Bytes of a key's length before it.
const LENGTH_BYTES: usize = 2;

/// The pictures of a split, from one on: the key's length, the key, the file.
pub fn read(split: &[ObjectRange], from: u64) -> Result<RowIter> {
    let rest = split.get(from as usize..).unwrap_or_default().to_vec();
    Ok(Box::new(rest.into_iter().map(|object| {
        let mut row = (object.key.len() as u16).to_le_bytes().to_vec();
        row.extend_from_slice(object.key.as_bytes());
        row.extend(object.open()?.bytes()?);
        Ok(row)
    })))
}

/// Whether an object is a picture, going by its key.
pub fn is_picture(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.ends_with(".jpg") || key.ends_with(".jpeg")
}

/// What [`decode`] makes as it is written one after the other: its length before it.
pub fn frame(row: &[u8]) -> Result<Row> {
    Ok([&(row.len() as u16).to_le_bytes(), row].concat())
}

/// What [`frame`] made, in some objects, from a row on.
pub fn read_frames(split: &[ObjectRange], from: u64) -> Result<RowIter> {
    let mut rows = Vec::new();
    for object in split {
        let bytes = object.open()?.bytes()?;
        let mut rest = &*bytes;
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or_else(short)?;
            let (row, after) =
                after.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(short)?;
            rows.push(row.to_vec());
            rest = after;
        }
    }
    Ok(Box::new(rows.into_iter().skip(from as usize).map(Ok)))
}

/// Decodes a picture, writes its thumbnail where one is wanted, and keeps what the network looks at, and the key.
pub fn decode(row: &[u8], input: &str, thumbnails: Option<&str>) -> Result<Row> {
    let (key, file) = split_key(row)?;
    let decoded = features::decode(file).map_err(|error| error.context(key))?;
    if let Some(prefix) = thumbnails {
        let name = key.strip_prefix(input).unwrap_or(key);
        objects::put(&format!("{prefix}{name}"), &thumbnail(&decoded)?)?;
    }
    let mut row = features::features(&decoded).to_vec();
    row.extend_from_slice(key.as_bytes());
    Ok(row)
}

fn split_key(row: &[u8]) -> Result<(&str, &[u8])> {
    let (length, rest) = row.split_first_chunk::<LENGTH_BYTES>().ok_or_else(short)?;
    let (key, file) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(short)?;
    Ok((std::str::from_utf8(key)?, file))
}

fn short() -> Error {
    Error::guest("a row is too short")
}

fn thumbnail(picture: &RgbImage) -> Result<Vec<u8>> {
    let longest = picture.width().max(picture.height()).max(THUMBNAIL_PIXELS);
    let scaled =
        |side: u32| (u64::from(side) * u64::from(THUMBNAIL_PIXELS) / u64::from(longest)).max(1) as u32;
    let small = imageops::thumbnail(picture, scaled(picture.width()), scaled(picture.height()));
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY).encode_image(&small)?;
    Ok(bytes)
}

/// A picture as the network sees it.
pub struct Looked<'a> {
    /// What goes into the network.
    pub features: Features,
    key: &'a [u8],
}

impl<'a> Looked<'a> {
    /// From a row.
    pub fn parse(row: &'a [u8]) -> Result<Self> {
        let (features, key) = row.split_first_chunk::<INPUTS>().ok_or_else(short)?;
        Ok(Self { features: *features, key })
    }

    /// Its label as a row: class, score in thousandths, key.
    ///
    /// Adapters differ in the last bits of what they compute; labels should not.
    pub fn label(&self, (class, score): (usize, f32)) -> Row {
        let mut row = vec![class as u8];
        row.extend(((score * 1000.0).round() as u16).to_le_bytes());
        row.extend_from_slice(self.key);
        row
    }
}

/// A picture's label.
pub struct Labelled {
    /// The object's key.
    pub key: String,
    /// A place in the list of classes.
    pub class: usize,
    /// The class's chance.
    pub score: f32,
}

impl Labelled {
    /// From a row.
    pub fn parse(row: &[u8]) -> Result<Self> {
        let ([class, score @ ..], key) = row.split_first_chunk::<3>().ok_or_else(short)?;
        let score = f32::from(u16::from_le_bytes(*score)) / 1000.0;
        Ok(Self { key: String::from_utf8(key.to_vec())?, class: (*class).into(), score })
    }
}
