//! The users' objects: input data, and results for people.

use std::collections::VecDeque;

use crate::{Error, ObjectRange, Reader, Result, host};

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

/// Writes a whole object, replacing any. An attempt that is run again writes it again: the last write wins.
///
/// # Errors
/// `invalid` for a key that cannot be, `platform` where storage failed.
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
