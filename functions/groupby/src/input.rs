//! Reading Arrow IPC, files and streams, batch by batch: no more of an object is in memory than one batch.
//!
//! The arrays of a batch share the buffer that the host filled; nothing is copied in between as long as a batch has at
//! most 1 MiB, the largest read of the host (a larger one is put together from several).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::{
    Block, Footer,
    convert::try_fb_to_schema,
    reader::{FileDecoder, StreamDecoder, read_footer_length},
    root_as_footer, root_as_message,
};
use arrow_schema::{ArrowError, SchemaRef};
use fanfold::{Error, ObjectRange, Reader, Result};

/// What a file starts and ends with.
const MAGIC: &[u8; 6] = b"ARROW1";
/// What a message of a stream starts with.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The footer's length and the magic.
const TRAILER_BYTES: u64 = 10;
/// Bytes of a stream that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// An object that has been recognised.
enum Source {
    File(FileDecoder, SchemaRef, Vec<Block>),
    Stream,
}

/// The schema of an object.
///
/// # Errors
/// `invalid` if it is not Arrow IPC; those of reading.
pub fn schema(key: &str) -> Result<SchemaRef> {
    let reader = ObjectRange::whole(key).open()?;
    let found = match open(&reader) {
        Ok(Source::File(_, schema, _)) => Ok(schema),
        Ok(Source::Stream) => stream_schema(&reader),
        Err(error) => Err(error),
    };
    found.map_err(|error| error.context(format_args!("object `{key}`")))
}

/// Visits the batches that start in `range`, in order. A stream has no index: all of it belongs to its first byte.
///
/// # Errors
/// `invalid` if the object is not Arrow IPC; those of reading and of `visit`; `conflict` if the range is bound to another
/// version of the object.
pub fn each_batch(range: &ObjectRange, mut visit: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
    let whole = ObjectRange { offset: 0, length: None, ..range.clone() };
    let end = range.length.map_or(u64::MAX, |length| range.offset.saturating_add(length));
    let reader = whole.open()?;
    let read = || -> Result<()> {
        match open(&reader)? {
            Source::File(decoder, _, blocks) => {
                let starts = |block: &&Block| (range.offset..end).contains(&(block.offset() as u64));
                for block in blocks.iter().filter(starts) {
                    if let Some(batch) = file_batch(&reader, &decoder, block)? {
                        visit(&batch)?;
                    }
                }
                Ok(())
            }
            Source::Stream if range.offset == 0 => stream_batches(&reader, visit),
            Source::Stream => Ok(()),
        }
    };
    read().map_err(|error| error.context(format_args!("object `{}`", range.key)))
}

fn open(reader: &Reader) -> Result<Source> {
    let start = reader.range(0..MAGIC.len() as u64)?;
    if start.starts_with(&CONTINUATION) {
        return Ok(Source::Stream);
    }
    if start != MAGIC || reader.size() < 2 * TRAILER_BYTES {
        return Err(Error::invalid("neither an Arrow IPC file nor a stream"));
    }
    let trailer_start = reader.size() - TRAILER_BYTES;
    let trailer = reader.range(trailer_start..reader.size())?;
    let trailer = trailer.first_chunk().ok_or_else(|| Error::invalid("it is cut"))?;
    let length = read_footer_length(*trailer).map_err(malformed)? as u64;
    let footer_start =
        trailer_start.checked_sub(length).ok_or_else(|| Error::invalid("its footer is longer than it"))?;
    let bytes = reader.range(footer_start..trailer_start)?;
    let footer = root_as_footer(&bytes).map_err(|error| Error::invalid(format!("its footer: {error}")))?;
    file(reader, &footer)
}

fn file(reader: &Reader, footer: &Footer<'_>) -> Result<Source> {
    let schema = footer.schema().ok_or_else(|| Error::invalid("its footer has no schema"))?;
    let schema = Arc::new(try_fb_to_schema(schema).map_err(malformed)?);
    let mut decoder = FileDecoder::new(schema.clone(), footer.version());
    for block in footer.dictionaries().iter().flatten() {
        decoder.read_dictionary(block, &message(reader, block)?).map_err(malformed)?;
    }
    let blocks = footer.recordBatches().iter().flatten().copied().collect();
    Ok(Source::File(decoder, schema, blocks))
}

/// The bytes of a message that a footer points to, which is not trusted.
fn message(reader: &Reader, block: &Block) -> Result<Buffer> {
    let whole = || {
        let (start, head) =
            (u64::try_from(block.offset()).ok()?, u64::try_from(block.metaDataLength()).ok()?);
        let end = start.checked_add(head)?.checked_add(u64::try_from(block.bodyLength()).ok()?)?;
        (end <= reader.size()).then_some(start..end)
    };
    let range = whole().ok_or_else(|| Error::invalid("its footer points outside of it"))?;
    Ok(Buffer::from(reader.range(range)?))
}

fn file_batch(reader: &Reader, decoder: &FileDecoder, block: &Block) -> Result<Option<RecordBatch>> {
    let bytes = message(reader, block)?;
    check_buffers(&bytes, block)?;
    decoder.read_record_batch(block, &bytes).map_err(malformed)
}

/// The decoder trusts that a batch's buffers are inside of its body, and panics otherwise.
fn check_buffers(bytes: &[u8], block: &Block) -> Result<()> {
    let (head, body) = bytes.split_at(block.metaDataLength() as usize);
    // Since version 0.15 of the format a marker precedes the length.
    let head = if head.starts_with(&CONTINUATION) { head.get(8..) } else { head.get(4..) };
    let message = head.and_then(|head| root_as_message(head).ok());
    let message = message.ok_or_else(|| Error::invalid("a batch has no readable header"))?;
    let fits = |buffer: &arrow_ipc::Buffer| {
        let end = buffer.offset().checked_add(buffer.length());
        buffer.offset() >= 0 && buffer.length() >= 0 && end.is_some_and(|end| end <= body.len() as i64)
    };
    let batch = message.header_as_record_batch();
    match batch.and_then(|batch| batch.buffers()).is_none_or(|buffers| buffers.iter().all(fits)) {
        true => Ok(()),
        false => Err(Error::invalid("the buffers of a batch are outside of it")),
    }
}

fn stream_batches(reader: &Reader, mut visit: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
    let mut decoder = StreamDecoder::new();
    let mut at = 0;
    while at < reader.size() {
        let mut chunk = Buffer::from(reader.range(at..at + CHUNK_BYTES)?);
        at += CHUNK_BYTES;
        while !chunk.is_empty() {
            if let Some(batch) = decoder.decode(&mut chunk).map_err(malformed)? {
                visit(&batch)?;
            }
        }
    }
    decoder.finish().map_err(malformed)
}

fn stream_schema(reader: &Reader) -> Result<SchemaRef> {
    let mut decoder = StreamDecoder::new();
    let mut at = 0;
    while at < reader.size() && decoder.schema().is_none() {
        let mut chunk = Buffer::from(reader.range(at..at + CHUNK_BYTES)?);
        at += CHUNK_BYTES;
        decoder.decode(&mut chunk).map_err(malformed)?;
    }
    decoder.schema().ok_or_else(|| Error::invalid("a stream without a schema"))
}

fn malformed(error: ArrowError) -> Error {
    Error::invalid(format!("no readable Arrow IPC: {error}"))
}
