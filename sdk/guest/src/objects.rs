//! The users' objects: input data, and results for people.

use std::{
    collections::VecDeque,
    io::{self, Write},
};

use crate::{Error, ObjectRange, Reader, Result, buffer::Buffer, host};

/// An object's key, size in bytes, and etag (which changes with its content).
pub use crate::raw::Object;

/// The objects whose key starts with `prefix`, in the order of their keys; fetched a thousand at a time.
///
/// Each item is an object, or the error that ends the listing.
pub fn list(prefix: impl Into<String>) -> List {
    List { prefix: prefix.into(), after: None, page: VecDeque::new(), ended: false }
}

/// See [`list`].
#[derive(Debug)]
pub struct List {
    prefix: String,
    after: Option<String>,
    page: VecDeque<Object>,
    ended: bool,
}

impl Iterator for List {
    type Item = Result<Object>;

    fn next(&mut self) -> Option<Self::Item> {
        // A page may be empty and not the last one.
        while self.page.is_empty() && !self.ended {
            match host::list(&self.prefix, self.after.as_deref()) {
                Ok(page) => {
                    self.page = page.objects.into();
                    self.ended = page.next.is_none();
                    self.after = page.next;
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(Error::from(error)));
                }
            }
        }
        self.page.pop_front().map(Ok)
    }
}

/// One object's size and etag.
///
/// # Errors
/// `not-found` if there is no such object.
pub fn head(key: &str) -> Result<Object> {
    Ok(host::head(key)?)
}

/// Writes a whole object of at most 64 MiB, replacing any; [`create`] is for longer ones. An attempt that is run again
/// writes it again: the last write wins.
///
/// # Errors
/// `invalid` for a key that cannot be or too many bytes, `platform` where storage failed.
pub fn put(key: &str, bytes: &[u8]) -> Result<Object> {
    Ok(host::put_object(key, bytes)?)
}

/// Opens a whole object for reading.
///
/// # Errors
/// `not-found` if there is no such object.
pub fn open(key: impl Into<String>) -> Result<Reader> {
    ObjectRange::whole(key).open()
}

/// Starts an object that is written piece by piece, at most 5 GiB in all. Nothing is there yet.
///
/// ```
/// use std::io::Write;
/// use fanfold::objects;
///
/// # fn main() -> fanfold::Result<()> {
/// let mut lines = objects::create("numbers")?;
/// for n in 0..3 {
///     writeln!(lines, "{n}")?;
/// }
/// assert_eq!(lines.finish()?.bytes, 6);
/// assert_eq!(objects::open("numbers")?.bytes()?, b"0\n1\n2\n");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `invalid` for a key that cannot be.
pub fn create(key: &str) -> Result<ObjectWriter> {
    Ok(ObjectWriter { raw: host::create_object(key)?, buffer: Buffer::default() })
}

/// An object that is being written: see [`create`].
///
/// It becomes visible, replacing any, when it is finished; one that is dropped leaves what was there before. An attempt
/// that is run again writes it again: the last write wins. Small writes are collected; the host makes the task wait while
/// earlier bytes are on their way to the store. After an error it cannot be finished.
#[derive(Debug)]
pub struct ObjectWriter {
    raw: host::ObjectWriter,
    buffer: Buffer,
}

impl ObjectWriter {
    /// Makes the object visible, durable and whole.
    ///
    /// # Errors
    /// `platform` where storage failed, also earlier; what was there before still is.
    pub fn finish(mut self) -> Result<Object> {
        self.buffer.send(|bytes| self.raw.write(bytes))?;
        Ok(host::finish_object(self.raw)?)
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.append(bytes, |bytes| self.raw.write(bytes)).map_err(Error::from)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.buffer.send(|bytes| self.raw.write(bytes)).map_err(Error::from)?)
    }
}
