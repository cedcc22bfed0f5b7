//! The state of the model: the object store as it is, what each owner believes, and what clients were told.
//!
//! Owners, executors and tasks are interchangeable, so a state is kept in one order ([`State::sorted`]): states that differ
//! in names only are one. What belongs to a task is in its [`Task`], numbered by the epoch whose owner decided it.

/// Tasks, owners, segments and checkpoints of one run, at most. Arrays of these lengths make states cheap to copy.
pub const TASKS: usize = 3;
pub const OWNERS: usize = 3;
pub const SEGMENTS: usize = 7;
pub const CHECKPOINTS: usize = 3;
/// Epochs that one run can claim.
pub const EPOCHS: usize = 4;
/// Attempts that one owner makes of one task.
pub const ATTEMPTS: u8 = 2;

/// An attempt's token: its owner's epoch and its number under it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    pub epoch: u8,
    pub number: u8,
}

impl Token {
    /// Its place in a set of tokens.
    pub fn bit(self) -> u8 {
        1 << ((self.epoch - 1) * ATTEMPTS + self.number)
    }

    /// All that there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=EPOCHS as u8).flat_map(|epoch| (0..ATTEMPTS).map(move |number| Self { epoch, number }))
    }
}

/// What a segment says about one task.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Note {
    pub accepted: bool,
    pub committed: Option<Token>,
}

/// What the owner of one epoch holds of one task.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Held {
    /// Part of the segment that is being written, also by a request that outlived its owner.
    pub writing: Note,
    /// Attempts started.
    pub started: u8,
}

/// One task, which is the only one of its job.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Task {
    /// Whether this run is without it.
    pub absent: bool,
    /// What the log's segments say of it, the first at 0.
    pub log: [Note; SEGMENTS],
    pub held: [Held; EPOCHS],
    /// Attempts that were sent to executors, as a set of tokens. The message that one has finished may arrive at any time
    /// from then on, any number of times, or never.
    pub sent: u8,
    /// Whether a client was told that it is accepted.
    pub acknowledged: bool,
    /// Which attempt's result a client was told.
    pub told: Option<Token>,
}

impl Task {
    /// Whether the log before segment `next` has its acceptance.
    pub fn is_accepted_before(&self, next: u8) -> bool {
        self.log[..usize::from(next) - 1].iter().any(|note| note.accepted)
    }

    /// The commit in the log before segment `next`: the first one counts.
    pub fn commit_before(&self, next: u8) -> Option<Token> {
        self.log[..usize::from(next) - 1].iter().find_map(|note| note.committed)
    }

    pub fn held_by(&mut self, epoch: u8) -> &mut Held {
        &mut self.held[usize::from(epoch) - 1]
    }
}

/// How far the opening of a journal is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Opening {
    /// Has claimed its epoch and read the newest checkpoint.
    Replaying,
    /// Has read to the tail and sent its fence, which may have been created.
    Fencing { created: bool },
}

/// A process that can own the shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    Down,
    /// This run is without it.
    Absent,
    Opening {
        epoch: u8,
        /// The segment to read or write next.
        next: u8,
        /// The day on which the epoch was claimed.
        began: u8,
        opening: Opening,
        /// Whether it has read what is not the log's.
        astray: bool,
    },
    Live {
        epoch: u8,
        next: u8,
        /// The day of the last write.
        wrote: u8,
        /// Whether a segment is being written, and whether it was created.
        writing: Option<bool>,
    },
}

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wrong {
    /// Something was acknowledged whose segment is not part of the log.
    AcknowledgedOutsideTheLog,
    /// An owner became one after it had read what is not the log's.
    ReadWhatIsNotTheLog,
}

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State {
    /// How many segments there ever were at the tail.
    pub length: u8,
    /// The epoch of each, the first at 0.
    pub log: [u8; SEGMENTS],
    /// Segments up to this number were removed.
    pub collected: u8,
    /// The epochs of those that were created again after that; 0: it was not.
    pub recreated: [u8; SEGMENTS],
    /// Last segment covered, and day; unused ones are first.
    pub checkpoints: [(u8, u8); CHECKPOINTS],
    /// How many were claimed.
    pub epochs: u8,
    pub day: u8,
    pub crashes: u8,
    /// The owner of each epoch has at most one request on the way, which creates this segment; 0: none.
    pub puts: [u8; EPOCHS],
    pub owners: [Owner; OWNERS],
    pub tasks: [Task; TASKS],
    pub wrong: Option<Wrong>,
}

impl State {
    pub fn new(owners: usize, tasks: usize) -> Self {
        Self {
            length: 0,
            log: [0; SEGMENTS],
            collected: 0,
            recreated: [0; SEGMENTS],
            checkpoints: [(0, 0); CHECKPOINTS],
            epochs: 0,
            day: 0,
            crashes: 0,
            puts: [0; EPOCHS],
            owners: std::array::from_fn(|n| if n < owners { Owner::Down } else { Owner::Absent }),
            tasks: std::array::from_fn(|n| Task { absent: n >= tasks, ..Task::default() }),
            wrong: None,
        }
    }

    /// The same state with its interchangeable parts in order.
    pub fn sorted(mut self) -> Self {
        self.owners.sort_unstable();
        self.tasks.sort_unstable();
        self
    }

    /// The epoch of the segment that a reader finds under a number.
    pub fn segment(&self, seq: u8) -> Option<u8> {
        let index = usize::from(seq) - 1;
        let found = if seq > self.collected { self.log[index] } else { self.recreated[index] };
        (found > 0).then_some(found)
    }

    /// The number after the last segment.
    pub fn tail(&self) -> u8 {
        self.length + 1
    }

    /// The request of an epoch's owner.
    pub fn put(&mut self, epoch: u8) -> &mut u8 {
        &mut self.puts[usize::from(epoch) - 1]
    }

    /// The last segment that a checkpoint covers.
    pub fn covered(&self) -> u8 {
        self.checkpoints[CHECKPOINTS - 1].0
    }
}
