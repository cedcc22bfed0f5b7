//! Outputs of tasks: whether each exists, what keeps it, and what is left of one that is gone.

use fanfold_protocol::{
    Digest, TaskId,
    value::{Output, Stored, Value},
};

use crate::{slab::NodeIx, task::Part};

/// One output of a task.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub content: Content,
    /// What keeps it alive: handles, arguments of unfinished tasks, live outputs that name it, the job's end.
    pub refs: u32,
    /// Whether it counts in its task's `alive`.
    pub alive: bool,
    /// Whether one of `refs` is the handle that its driver (for a put: its own task) got when it was called.
    pub held: bool,
    /// What this output keeps alive because its bytes name it.
    pub nested: Option<Box<[Part]>>,
    /// First of those who wait for it.
    pub interest: Option<NodeIx>,
}

impl Slot {
    pub fn stored(&self) -> Option<&Stored> {
        match &self.content {
            Content::Made(output) => match output.as_ref() {
                Output::Stored(stored) => Some(stored),
                _ => None,
            },
            _ => None,
        }
    }

    pub fn gone(&self) -> Option<&Gone> {
        match &self.content {
            Content::Gone(gone) => Some(gone),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) enum Content {
    #[default]
    Pending,
    /// Can be read, or is an alias.
    Made(Box<Output>),
    /// Was made; no copy is left.
    Gone(Box<Gone>),
}

#[derive(Debug)]
pub(crate) struct Gone {
    /// Where it says that an executor has it, that executor is not here, and may come (back) with the copy.
    pub was: Was,
    /// Given up because nothing referred to it, rather than lost.
    pub freed: bool,
}

impl Gone {
    /// The copy that an executor which is not here may have.
    pub fn away(&self) -> Option<&Stored> {
        match &self.was {
            Was::Stored(stored) => stored.at.map(|_| stored),
            _ => None,
        }
    }
}

/// What is left of an output that is gone, to recognise it when it is made again.
#[derive(Debug)]
pub(crate) enum Was {
    Unknown,
    Stored(Stored),
    Other { digest: Digest, bytes: u64, crc32c: Option<u32> },
}

impl Was {
    /// What `output`, whose last copy goes, was.
    pub fn of(output: Output) -> Self {
        match output {
            Output::Stored(stored) => Self::Stored(Stored { at: None, durable: false, ..stored }),
            other => {
                let (bytes, crc32c) = summary(&other);
                Self::Other { digest: digest(&other), bytes, crc32c }
            }
        }
    }

    /// Its size and checksum, as far as they are known.
    pub fn summary(&self) -> (u64, Option<u32>) {
        match self {
            Self::Unknown => (0, None),
            Self::Stored(stored) => (stored.meta.bytes, Some(stored.meta.crc32c)),
            Self::Other { bytes, crc32c, .. } => (*bytes, *crc32c),
        }
    }

    /// Whether `output` is the very copy that is gone.
    pub fn is_copy(&self, output: &Output) -> bool {
        matches!((self, output), (Self::Stored(was), Output::Stored(now)) if was.key == now.key)
    }

    /// Whether `output` is the same output, made by whichever attempt.
    pub fn is(&self, output: &Output) -> bool {
        match (self, output) {
            (Self::Unknown, _) => true,
            (Self::Stored(was), Output::Stored(now)) => was.meta == now.meta && was.refs == now.refs,
            (Self::Other { digest: was, .. }, Output::Inline(_) | Output::Alias(_)) => *was == digest(output),
            _ => false,
        }
    }
}

/// Whether two outputs are the same but for where and by which attempt they were stored.
pub(crate) fn same(a: &Output, b: &Output) -> bool {
    match (a, b) {
        (Output::Stored(a), Output::Stored(b)) => a.meta == b.meta && a.refs == b.refs,
        (a, b) => a == b,
    }
}

/// Size and checksum of an output; an alias has neither of its own.
pub(crate) fn summary(output: &Output) -> (u64, Option<u32>) {
    let crc32c = match output {
        Output::Inline(payload) => Some(crc32c::crc32c(&payload.bytes)),
        Output::Stored(stored) => Some(stored.meta.crc32c),
        Output::Alias(_) => None,
    };
    (output.bytes(), crc32c)
}

fn digest(output: &Output) -> Digest {
    match output {
        Output::Inline(payload) => {
            let refs: Vec<u8> = payload.refs.iter().flat_map(|id| part_bytes(id.task, id.output)).collect();
            Digest::of_parts(&[b"inline", &payload.bytes, &refs])
        }
        Output::Alias(value) => match value.as_ref() {
            Value::Partition(id) => Digest::of_parts(&[b"partition", &part_bytes(id.task, id.output)]),
            Value::Blocks { partition, first, count } => Digest::of_parts(&[
                b"blocks",
                &part_bytes(partition.task, partition.output),
                &first.to_be_bytes(),
                &count.to_be_bytes(),
            ]),
            Value::Object(range) => Digest::of_parts(&[
                b"object",
                range.key.as_bytes(),
                range.etag.as_deref().unwrap_or_default().as_bytes(),
                &range.offset.to_be_bytes(),
                &range.length.unwrap_or(u64::MAX).to_be_bytes(),
            ]),
            Value::Inline(payload) => digest(&Output::Inline(payload.clone())),
        },
        Output::Stored(stored) => Digest::of(&stored.meta.crc32c.to_be_bytes()),
    }
}

fn part_bytes(task: TaskId, output: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&task.0);
    bytes[16..].copy_from_slice(&output.to_be_bytes());
    bytes
}
