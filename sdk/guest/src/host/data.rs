//! The native host's data plane: partitions and objects in memory.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

use crate::raw::{
    Block, BlockRange, Error, ErrorKind, Object, ObjectRange, Page, PartitionId, Payload, Value,
};

/// Objects in one page of a listing.
const PAGE_OBJECTS: usize = 1000;

/// Everything that was written in this thread.
#[derive(Default)]
pub(super) struct Data {
    partitions: HashMap<PartitionId, Result<Rc<Stored>, Error>>,
    objects: BTreeMap<String, Vec<u8>>,
}

/// The content of a partition.
#[derive(Default, Debug)]
pub(super) struct Stored {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    refs: Vec<PartitionId>,
}

impl Stored {
    fn single(bytes: Vec<u8>, refs: Vec<PartitionId>) -> Self {
        let block = Block { offset: 0, length: bytes.len() as u64 };
        let blocks = if bytes.is_empty() { Vec::new() } else { vec![block] };
        Self { bytes, blocks, refs }
    }

    fn cut(&self, range: &BlockRange) -> Result<Self, Error> {
        let end = range.first.saturating_add(range.count) as usize;
        let missing = || fail(ErrorKind::Invalid, format!("no blocks {range:?} among {}", self.blocks.len()));
        let blocks = self.blocks.get(range.first as usize..end).ok_or_else(missing)?;
        let start = blocks.first().map_or(0, |b| b.offset);
        let end = blocks.last().map_or(start, |b| b.offset + b.length);
        let blocks = blocks.iter().map(|b| Block { offset: b.offset - start, length: b.length }).collect();
        let bytes = self.bytes[start as usize..end as usize].to_vec();
        Ok(Self { bytes, blocks, refs: self.refs.clone() })
    }
}

pub(super) fn fail(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error { kind, message: message.into(), retryable: false }
}

impl Data {
    pub fn store(&mut self, id: PartitionId, stored: Result<Rc<Stored>, Error>) {
        self.partitions.insert(id, stored);
    }

    /// The bytes behind a value.
    pub fn resolve(&self, value: &Value) -> Result<Rc<Stored>, Error> {
        match value {
            Value::Inline(Payload { bytes, refs }) => {
                Ok(Rc::new(Stored::single(bytes.clone(), refs.clone())))
            }
            Value::Partition(id) => self.partition(*id),
            Value::Blocks(range) => Ok(Rc::new(self.partition(range.partition)?.cut(range)?)),
            Value::Object(range) => Ok(Rc::new(Stored::single(self.object(range)?, Vec::new()))),
        }
    }

    /// The failure of the task that should have made a partition among `args`.
    pub fn failed(&self, args: &[Value]) -> Option<Error> {
        args.iter().find_map(|arg| match arg {
            Value::Partition(id) => self.partition(*id).err(),
            Value::Blocks(range) => self.partition(range.partition).err(),
            Value::Inline(_) | Value::Object(_) => None,
        })
    }

    pub fn partition(&self, id: PartitionId) -> Result<Rc<Stored>, Error> {
        let found = self.partitions.get(&id);
        found.cloned().unwrap_or_else(|| Err(fail(ErrorKind::NotFound, format!("no partition {id:?}"))))
    }

    fn object(&self, range: &ObjectRange) -> Result<Vec<u8>, Error> {
        let object = self.head(&range.key)?;
        if range.etag.as_ref().is_some_and(|etag| *etag != object.etag) {
            return Err(fail(ErrorKind::Conflict, format!("object `{}` has changed", range.key)));
        }
        let start = range.offset.min(object.bytes);
        let end = start.saturating_add(range.length.unwrap_or(u64::MAX)).min(object.bytes);
        Ok(self.objects[&range.key][start as usize..end as usize].to_vec())
    }

    pub fn head(&self, key: &str) -> Result<Object, Error> {
        let bytes = self.objects.get(key);
        let bytes = bytes.ok_or_else(|| fail(ErrorKind::NotFound, format!("there is no object `{key}`")))?;
        let mut hash = DefaultHasher::new();
        bytes.hash(&mut hash);
        Ok(Object { key: key.into(), bytes: bytes.len() as u64, etag: format!("{:016x}", hash.finish()) })
    }

    pub fn put_object(&mut self, key: &str, bytes: &[u8]) -> Result<Object, Error> {
        self.objects.insert(key.into(), bytes.into());
        self.head(key)
    }

    pub fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, Error> {
        let keys = self
            .objects
            .keys()
            .filter(|key| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after));
        let objects: Vec<_> = keys.take(PAGE_OBJECTS).map(|key| self.head(key)).collect::<Result<_, _>>()?;
        let full = objects.len() == PAGE_OBJECTS;
        let next = objects.last().filter(|_| full).map(|last| last.key.clone());
        Ok(Page { objects, next })
    }
}

/// A reader over a copy that no longer changes.
#[derive(Debug)]
pub struct Reader(pub(super) Rc<Stored>);

impl Reader {
    pub fn size(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    pub fn blocks(&self) -> Vec<Block> {
        self.0.blocks.clone()
    }

    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Error> {
        let rest =
            usize::try_from(offset).ok().and_then(|offset| self.0.bytes.get(offset..)).unwrap_or_default();
        Ok(rest[..rest.len().min(length as usize)].to_vec())
    }

    pub fn refs(&self) -> Vec<PartitionId> {
        self.0.refs.clone()
    }
}

/// A partition that is being written.
#[derive(Debug)]
pub struct Writer {
    pub(super) id: PartitionId,
    stored: RefCell<Stored>,
    /// Where the current block starts.
    start: Cell<u64>,
}

impl Writer {
    pub(super) fn new(id: PartitionId) -> Self {
        Self { id, stored: RefCell::default(), start: Cell::new(0) }
    }

    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        self.stored.borrow_mut().bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub fn end_block(&self) -> Result<u32, Error> {
        let mut stored = self.stored.borrow_mut();
        let (offset, end) = (self.start.get(), stored.bytes.len() as u64);
        stored.blocks.push(Block { offset, length: end - offset });
        self.start.set(end);
        Ok(stored.blocks.len() as u32 - 1)
    }

    pub fn add_ref(&self, id: PartitionId) -> Result<(), Error> {
        self.stored.borrow_mut().refs.push(id);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Stored, Error> {
        if self.start.get() < self.stored.borrow().bytes.len() as u64 {
            self.end_block()?;
        }
        Ok(self.stored.into_inner())
    }
}

/// An object that is being written: kept apart until it is finished.
#[derive(Debug)]
pub struct ObjectWriter {
    key: String,
    bytes: RefCell<Vec<u8>>,
}

impl ObjectWriter {
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.into(), bytes: RefCell::default() }
    }

    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn finish(self) -> (String, Vec<u8>) {
        (self.key, self.bytes.into_inner())
    }
}
