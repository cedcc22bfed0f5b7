//! What a listing found: the store's objects against those that were seen before, both sorted by key, in bounded memory.
//!
//! What was seen is kept as lines of JSON, `["key","etag"]`, in byte order of the keys, which is the order of listings.

use bytes::{Buf as _, Bytes, BytesMut};
use fanfold_protocol::{Code, Error, Kind};

/// One object that was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its key.
    pub key: String,
    /// Its etag then.
    pub etag: String,
}

impl Seen {
    /// Appends its line.
    pub fn write(&self, out: &mut Vec<u8>) {
        // Strings to memory: neither can fail.
        let line = serde_json::to_vec(&(&self.key, &self.etag)).unwrap_or_default();
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
}

/// Takes lines out of pieces of any length.
#[derive(Debug, Default)]
pub struct Lines {
    rest: BytesMut,
}

impl Lines {
    /// Takes a piece; gives the whole lines that are there now.
    ///
    /// # Errors
    /// `lost` / `corrupt`.
    pub fn push(&mut self, piece: &Bytes) -> Result<Vec<Seen>, Error> {
        self.rest.extend_from_slice(piece);
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let (key, etag) = serde_json::from_slice(&self.rest[..end]).map_err(|e| {
                let why = format!("the list of what was seen is damaged: {e}");
                Error::new(Kind::Lost, Code::Corrupt, why)
            })?;
            lines.push(Seen { key, etag });
            self.rest.advance(end + 1);
        }
        Ok(lines)
    }
}

/// What the next two entries mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Both have the next key, with the same etag: nothing happened. Take both.
    Same,
    /// Both have it, and the object was written since. Take both.
    Changed,
    /// Only the listing has it: it was created. Take it.
    Created,
    /// Only what was seen has it: it was removed. Take it.
    Removed,
    /// Both are at their end.
    End,
}

/// Compares the next entry of the listing (key and etag) with the next that was seen.
pub fn step(listed: Option<(&str, &str)>, seen: Option<&Seen>) -> Step {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match (listed, seen) {
        (None, None) => Step::End,
        (Some(_), None) => Step::Created,
        (None, Some(_)) => Step::Removed,
        (Some((key, etag)), Some(seen)) => match key.as_bytes().cmp(seen.key.as_bytes()) {
            Less => Step::Created,
            Greater => Step::Removed,
            Equal if etag == seen.etag => Step::Same,
            Equal => Step::Changed,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Objects = BTreeMap<String, String>;

    /// Both are maps from key to etag: what a merge says has to be what the maps say.
    fn diff(listed: &Objects, seen: &Objects) -> (Objects, Vec<String>) {
        let (mut ahead, mut behind) = (listed.iter().peekable(), seen.iter().peekable());
        let (mut created, mut removed) = (Objects::new(), Vec::new());
        loop {
            let known = behind.peek().map(|(key, etag)| Seen { key: (*key).clone(), etag: (*etag).clone() });
            match step(ahead.peek().map(|(key, etag)| (key.as_str(), etag.as_str())), known.as_ref()) {
                Step::Same => drop((ahead.next(), behind.next())),
                Step::Changed => {
                    behind.next();
                    created.extend(ahead.next().map(|(key, etag)| (key.clone(), etag.clone())));
                }
                Step::Created => created.extend(ahead.next().map(|(key, etag)| (key.clone(), etag.clone()))),
                Step::Removed => removed.extend(behind.next().map(|(key, _)| key.clone())),
                Step::End => return (created, removed),
            }
        }
    }

    proptest! {
        #[test]
        fn a_merge_finds_every_difference(
            listed in prop::collection::btree_map("[a-c/é]{0,3}", "[x-z]", 0..20),
            seen in prop::collection::btree_map("[a-c/é]{0,3}", "[x-z]", 0..20),
        ) {
            let (created, removed) = diff(&listed, &seen);
            let wanted: Objects =
                listed.iter().filter(|(key, etag)| seen.get(*key) != Some(etag)).map(|(k, e)| (k.clone(), e.clone())).collect();
            prop_assert_eq!(created, wanted);
            let gone: Vec<String> = seen.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
            prop_assert_eq!(removed, gone);
        }

        #[test]
        fn lines_survive_any_cut(
            entries in prop::collection::vec(("\\PC{0,5}", "[a-f0-9\"\\n]{0,4}"), 0..10),
            cut in 1..9_usize,
        ) {
            let entries: Vec<_> = entries.into_iter().map(|(key, etag)| Seen { key, etag }).collect();
            let mut bytes = Vec::new();
            entries.iter().for_each(|seen| seen.write(&mut bytes));
            let (mut lines, mut read) = (Lines::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                read.extend(lines.push(&Bytes::copy_from_slice(piece)).unwrap());
            }
            prop_assert_eq!(read, entries);
        }
    }

    #[test]
    fn damage_is_seen() {
        assert!(Lines::default().push(&Bytes::from_static(b"[\"a\"]\n")).is_err());
    }
}
