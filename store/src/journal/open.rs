//! Becoming the owner: claim an epoch, replay, put a fence at the tail.
//!
//! The order matters. The epoch comes first, so that a stale owner that asks for it learns that it is one. Replaying
//! and fencing repeat until the fence is in: what a stale owner wrote before that is part of the journal and was
//! acknowledged; what it tries to write after it meets the fence.
//!
//! An opening may itself be paused for a day, between reading and fencing. Then others have gone on, and what they wrote
//! may have been collected, so that the fence finds its number free. An opening that took long enough for that is given up;
//! one that took longer than an epoch is trusted counts as a silence, and the first write is followed by the question.

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind as ErrorKind, record::Record};
use futures::{StreamExt as _, stream};
use object_store::path::Path;
use uuid::Uuid;

use super::{
    Options,
    segment::{self, Header, Kind, Segment},
    tail::{Outcome, Shard},
};
use crate::{backend::Backend, errors::corrupt, paths};

/// Segments that are read ahead during a replay: hides the latency of a remote store.
const READ_AHEAD: usize = 16;

/// A journal that was claimed, read and fenced.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) shard: Shard,
    /// Number of the segment to write next.
    pub(super) next: u64,
    pub(super) records: Vec<Record>,
    /// Segments read, the checkpoint's not counted, and their bytes.
    pub(super) segments: u64,
    pub(super) bytes: u64,
    /// When the epoch was claimed.
    pub(super) began_ms: u64,
}

pub(super) async fn open(backend: Backend, name: &str, options: Options) -> Result<Opened, Error> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(Error::invalid(format!("`{}` is not a shard's name", name.escape_debug())));
    }
    let writer = Uuid::now_v7();
    let began_ms = options.clock.now_ms();
    let epoch = claim(&backend, name, writer).await?;
    let shard = Shard { backend, name: name.to_owned(), epoch, writer, options };
    let mut replay = Replay { shard: &shard, next: 1, records: Vec::new(), epoch: 0, segments: 0, bytes: 0 };
    replay.load_checkpoint().await?;
    while !replay.reach_tail().await? || !replay.fence().await? {}
    let Replay { next, records, segments, bytes, .. } = replay;
    in_time(&shard, began_ms)?;
    Ok(Opened { next, records, segments, bytes, shard, began_ms })
}

/// Whether nothing that was there when the opening began can have been collected before it ended.
fn in_time(shard: &Shard, began_ms: u64) -> Result<(), Error> {
    let Options { clock, segment_kept_ms, .. } = &shard.options;
    let took_ms = clock.now_ms().saturating_sub(began_ms);
    if took_ms < segment_kept_ms / 2 {
        return Ok(());
    }
    let message = format!(
        "reading the journal `{}` took {} minutes, in which parts of it may have been replaced; start again",
        shard.name,
        took_ms / 60_000
    );
    Err(Error::new(ErrorKind::Platform, Code::Storage, message))
}

/// Creates the next epoch's object.
async fn claim(backend: &Backend, shard: &str, writer: Uuid) -> Result<u64, Error> {
    let known = backend.names(&paths::epochs(shard), "", None).await?;
    let mut epoch = known.iter().filter_map(|name| paths::number(name)).max().unwrap_or(0) + 1;
    let id = Bytes::from(writer.to_string());
    loop {
        let path = paths::epoch(shard, epoch);
        if backend.create(&path, id.clone().into()).await? || backend.get(&path).await?.as_ref() == Some(&id)
        {
            return Ok(epoch);
        }
        // Somebody else was faster; each turn is another owner's progress.
        epoch += 1;
    }
}

struct Replay<'a> {
    shard: &'a Shard,
    next: u64,
    records: Vec<Record>,
    /// The highest epoch seen.
    epoch: u64,
    segments: u64,
    bytes: u64,
}

impl Replay<'_> {
    /// Begins at the newest checkpoint that can be read. A damaged one is passed over: the segments since the one
    /// before it are kept for as long as it is the newest, and if they are not there the replay fails.
    async fn load_checkpoint(&mut self) -> Result<(), Error> {
        let Shard { backend, name, .. } = self.shard;
        for checkpoint in backend.names(&paths::checkpoints(name), "", None).await?.iter().rev() {
            let Some(seq) = paths::number(checkpoint) else { continue };
            let path = paths::checkpoint(name, seq);
            let bytes = backend.get(&path).await?.unwrap_or_default();
            match Segment::parse(&bytes) {
                Ok(found) if found.header.kind == Kind::Checkpoint && found.header.seq == seq => {
                    found.read(&path, &mut self.records)?;
                    self.epoch = found.header.epoch;
                    self.next = seq + 1;
                    return Ok(());
                }
                Ok(_) => {
                    tracing::error!("`{path}` is not the checkpoint it should be; trying the one before it")
                }
                Err(damage) => tracing::error!("`{path}` is damaged: {damage}; trying the one before it"),
            }
        }
        Ok(())
    }

    /// Reads segments up to the first number that does not exist. `false`: that one came into being meanwhile.
    async fn reach_tail(&mut self) -> Result<bool, Error> {
        let Shard { backend, name, .. } = self.shard;
        let mut segments = stream::iter(self.next..)
            .map(|seq| async move {
                let path = paths::segment(name, seq);
                let bytes = backend.get(&path).await;
                (path, bytes)
            })
            .buffered(READ_AHEAD);
        while let Some((path, bytes)) = segments.next().await {
            let Some(bytes) = bytes? else { break };
            self.take(&path, &bytes).await?;
        }
        drop(segments);
        let tail = paths::segment(name, self.next);
        let later = backend.names(&paths::segments(name), tail.filename().unwrap_or_default(), None).await?;
        let covered =
            backend.names(&paths::checkpoints(name), &format!("{:020}", self.next - 1), None).await?;
        let Some(later) = later.first().or(covered.first()) else { return Ok(true) };
        if backend.head(&tail).await?.is_some() {
            return Ok(false);
        }
        let what = format!("it is missing, and `{later}` follows it; restore it from a copy");
        Err(corrupt(&tail, what))
    }

    async fn take(&mut self, path: &Path, bytes: &Bytes) -> Result<(), Error> {
        let segment = match Segment::parse(bytes) {
            Ok(segment) => segment,
            Err(damage) => return Err(self.refuse(path, &damage.to_string()).await),
        };
        let Header { kind, epoch, seq, .. } = segment.header;
        if kind == Kind::Checkpoint || seq != self.next {
            return Err(self.refuse(path, "it is another segment").await);
        }
        if epoch > self.shard.epoch {
            return Err(self.shard.fenced(epoch));
        }
        if epoch < self.epoch {
            return Err(self.refuse(path, "an owner wrote it that had been replaced").await);
        }
        segment.read(path, &mut self.records)?;
        self.epoch = epoch;
        self.next += 1;
        self.segments += 1;
        self.bytes += segment.bytes;
        Ok(())
    }

    /// The error of a segment that cannot be taken, with the way out where there is one.
    async fn refuse(&self, path: &Path, what: &str) -> Error {
        let name = path.filename().unwrap_or_default();
        let later = self.shard.backend.names(&paths::segments(&self.shard.name), name, None).await;
        let last = later.is_ok_and(|later| later.is_empty());
        let remedy = if last {
            "it is the last one: restore it from a copy, or move it away to go on without the acknowledged records in it"
        } else {
            "restore it from a copy; nothing after it can be read without it"
        };
        corrupt(path, format_args!("{what}; {remedy}"))
    }

    /// Writes the fence. `false`: a stale owner was faster, and its segment is to be read first.
    async fn fence(&mut self) -> Result<bool, Error> {
        let Shard { epoch, writer, options, .. } = self.shard;
        let header = Header {
            kind: Kind::Fence,
            epoch: *epoch,
            seq: self.next,
            writer: *writer,
            at_ms: options.clock.now_ms(),
        };
        let bytes = segment::encode(&header, &[]);
        match self.shard.create(self.next, &bytes).await {
            Outcome::Written => {
                self.next += 1;
                Ok(true)
            }
            Outcome::Taken(header) if header.epoch > *epoch => Err(self.shard.fenced(header.epoch)),
            Outcome::Taken(_) => Ok(false),
            Outcome::Absent(e) | Outcome::Unknown(e) | Outcome::Broken(e) => Err(e),
        }
    }
}
