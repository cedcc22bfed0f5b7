//! The owner's lane to the journal: records in the order in which they were decided, one write at a time.
//!
//! While a write is under way further records gather and go out together with the next: group commit from the owner's
//! side. Each record may carry a consequence, which the owner carries out once the record is durable, and only then.
//!
//! A write that fails loses nothing that was decided: its records stay in front and are written again after a delay.
//! (Should the failed write turn up in the journal after all, they are there twice, which the fold ignores.) Only what
//! a client still waits for (an accept, a cancel, an answer to remember, a deploy) is refused at once; while the lane
//! fails and holds records, such requests are refused without trying, because they could not overtake them.
//!
//! Checkpoints go through the lane too, because one stands for everything that was appended before it: between the
//! moment when the state is copied and the moment when the journal has the checkpoint, nothing is written.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use fanfold_protocol::{
    Code, Digest, Error, Kind, limit,
    record::{Input, Record},
    value::Output,
};
use fanfold_store::Journal;
use tokio::time::{Instant, Sleep, sleep_until};

/// Delay before a failed write is tried again: the disk that was full is looked at twice a second, so that what is
/// held finishes soon after somebody made room.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How long a write may take before those who wait for it are told. A store that lives answers in a tenth of it.
const SILENCE: Duration = Duration::from_secs(3);
/// Bytes of one write: below the journal's segment size, so that a write is one segment.
const WRITE_BYTES_MAX: usize = limit::SEGMENT_BYTES_MAX / 2;

/// A record on its way, and what becomes true with it.
pub(super) struct Entry<C> {
    pub record: Record,
    /// Recorded together with it: all or none.
    pub more: Vec<Record>,
    /// Carried out after the write.
    pub consequence: Option<C>,
    /// Whether a failed write refuses it (its client is told and may try again) rather than keeps it.
    refusable: bool,
}

/// What the journal answered.
pub(super) enum Written<C> {
    /// These are durable now, in order.
    Durable(Vec<Entry<C>>),
    /// The write failed. These are refused; the rest will be written again.
    Failed { error: Error, refused: Vec<Entry<C>> },
    /// The journal takes nothing any more: it belongs to another owner, or is closed.
    Ended(Error),
    /// A checkpoint was made, or not.
    Checkpoint(Result<(), Error>),
}

type Write = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// See the module's documentation. `C` is the consequence.
pub(super) struct Lane<C> {
    journal: Journal,
    waiting: VecDeque<Entry<C>>,
    waiting_bytes: usize,
    writing: Option<(Write, Vec<Entry<C>>)>,
    failing: Option<(Error, Pin<Box<Sleep>>)>,
    /// When the write that is under way began.
    since: Option<Instant>,
    /// What is said while that is too long ago.
    silent: Option<Error>,
    paused: bool,
    checkpoint: Option<Write>,
}

impl<C> Lane<C> {
    pub fn new(journal: Journal) -> Self {
        Self {
            journal,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            writing: None,
            failing: None,
            since: None,
            silent: None,
            paused: false,
            checkpoint: None,
        }
    }

    /// Queues a record that was decided.
    pub fn push(&mut self, record: Record, consequence: Option<C>) {
        self.enqueue(Entry { record, more: Vec::new(), consequence, refusable: false });
    }

    /// Queues records that a client waits for, all or none; [`Lane::refusal`] must be `None`.
    pub fn push_refusable(&mut self, record: Record, more: Vec<Record>, consequence: C) {
        self.enqueue(Entry { record, more, consequence: Some(consequence), refusable: true });
    }

    fn enqueue(&mut self, entry: Entry<C>) {
        self.waiting_bytes += entry.weight();
        self.waiting.push_back(entry);
    }

    /// Why nothing can be acknowledged now, if so.
    pub fn refusal(&self) -> Option<&Error> {
        self.failing.as_ref().map(|(error, _)| error).or(self.silent.as_ref())
    }

    /// What to tell those who wait for the write that is under way, if it takes so long that nobody should. It may still
    /// succeed; until it ends, nothing is acknowledged.
    pub fn silence(&mut self) -> Option<&Error> {
        let long = self.since.is_some_and(|since| since.elapsed() >= SILENCE);
        if long && self.silent.is_none() {
            let why = "the journal's store does not answer, and it is not known whether this is recorded: ask again with the \
                       same Idempotency-Key, which makes that safe";
            let error = Error::new(Kind::Platform, Code::Storage, why).retryable(true);
            tracing::warn!(
                waiting = self.len(),
                "the journal's store does not answer; nothing is acknowledged until it does"
            );
            self.silent = Some(error);
        }
        self.silent.as_ref()
    }

    /// Whether whoever adds records should pause until some are written.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= limit::JOURNAL_QUEUE_MAX
            || self.waiting_bytes >= limit::JOURNAL_WAITING_BYTES_MAX / 4
    }

    /// Whether even running work must pause: only while writes fail does the lane grow this long.
    pub fn is_overflowing(&self) -> bool {
        self.waiting.len() >= limit::JOB_TASKS_PENDING_MAX
            || self.waiting_bytes >= limit::JOURNAL_WAITING_BYTES_MAX
    }

    /// Whether everything is durable.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.writing.is_none() && self.checkpoint.is_none()
    }

    /// Whether a write is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Whether no write begins.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Records not yet durable.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.writing.as_ref().map_or(0, |(_, entries)| entries.len())
    }

    /// Begins no write from here until [`Lane::checkpoint`] or [`Lane::go_on`].
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Writes again.
    pub fn go_on(&mut self) {
        self.paused = false;
    }

    /// Gives the journal a checkpoint of the state as it is since [`Lane::pause`], and writes again.
    pub fn checkpoint(&mut self, records: Vec<Record>) {
        let journal = self.journal.clone();
        self.checkpoint = Some(Box::pin(async move { journal.checkpoint(records).await }));
    }

    /// Moves writes on: completes the one that is under way, or starts one if there is something to write.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Written<C>> {
        if let Some(checkpoint) = &mut self.checkpoint {
            // The first poll puts it into the journal's queue, before whatever is written from here on.
            let result = checkpoint.as_mut().poll(cx);
            self.paused = false;
            if let Poll::Ready(result) = result {
                self.checkpoint = None;
                return Poll::Ready(Written::Checkpoint(result));
            }
        }
        if self.writing.is_none() && (self.paused || self.is_delayed(cx) || !self.begin_write()) {
            return Poll::Pending;
        }
        let Some((write, _)) = &mut self.writing else { return Poll::Pending };
        let result = std::task::ready!(write.as_mut().poll(cx));
        let entries = self.writing.take().map(|(_, entries)| entries).unwrap_or_default();
        Poll::Ready(self.complete(result, entries))
    }

    /// Whether the next write has to wait because the last one failed.
    fn is_delayed(&mut self, cx: &mut Context<'_>) -> bool {
        self.failing.as_mut().is_some_and(|(_, delay)| delay.as_mut().poll(cx).is_pending())
    }

    fn begin_write(&mut self) -> bool {
        let (mut bytes, mut count) = (0, 0);
        for entry in self.waiting.iter().take(limit::JOURNAL_QUEUE_MAX) {
            let weight = entry.weight();
            if count > 0 && bytes + weight > WRITE_BYTES_MAX {
                break;
            }
            (bytes, count) = (bytes + weight, count + 1);
        }
        if count == 0 {
            return false;
        }
        self.waiting_bytes -= bytes;
        let entries: Vec<_> = self.waiting.drain(..count).collect();
        let records = entries.iter().flat_map(|entry| std::iter::once(&entry.record).chain(&entry.more));
        let records: Vec<Record> = records.cloned().collect();
        let journal = self.journal.clone();
        self.since = Some(Instant::now());
        self.writing = Some((Box::pin(async move { journal.append_all(records).await }), entries));
        true
    }

    fn complete(&mut self, result: Result<(), Error>, entries: Vec<Entry<C>>) -> Written<C> {
        (self.since, self.silent) = (None, None);
        let Err(error) = result else {
            self.failing = None;
            return Written::Durable(entries);
        };
        if self.journal.fenced() || !matches!(error.code, Code::DiskFull | Code::Storage) {
            return Written::Ended(error);
        }
        // What came in behind the failed write is no better off.
        let behind = std::mem::take(&mut self.waiting);
        let (refused, kept): (Vec<_>, Vec<_>) =
            entries.into_iter().chain(behind).partition(|entry| entry.refusable);
        self.waiting = kept.into();
        self.waiting_bytes = self.waiting.iter().map(Entry::weight).sum();
        // With nothing held, the next request is its own trial.
        self.failing = (!self.waiting.is_empty())
            .then(|| (error.clone(), Box::pin(sleep_until(Instant::now() + RETRY_AFTER))));
        Written::Failed { error, refused }
    }
}

impl<C> Entry<C> {
    /// About how many bytes its records take in the journal.
    fn weight(&self) -> usize {
        weight(&self.record) + self.more.iter().map(weight).sum::<usize>()
    }
}

/// About how many bytes a record takes in the journal.
pub(super) fn weight(record: &Record) -> usize {
    let outputs = |outputs: &[Output]| outputs.iter().map(output_weight).sum::<usize>();
    200 + match record {
        Record::Accepted(accepted) => {
            let keys =
                accepted.fired.as_ref().map_or(0, |fired| fired.events.len() * size_of::<Digest>() * 2);
            keys + match &accepted.input {
                Input::Inline { body, .. } => body.bytes.len(),
                Input::Stored { .. } => 0,
            }
        }
        Record::Held(held) => held.event.len() + 100,
        Record::Committed(committed) => outputs(&committed.outputs),
        Record::Memoised { outputs: made, .. } => outputs(made),
        Record::Made { value, .. } => output_weight(value),
        Record::Ended { result: Ok(ended), .. } => outputs(ended),
        Record::Kept { partitions, .. } => {
            partitions.iter().map(|(_, output)| 40 + output_weight(output)).sum()
        }
        Record::Waited { ready, .. } => ready.len() * 5,
        Record::Answered { body, .. } => body.len(),
        _ => 0,
    }
}

fn output_weight(output: &Output) -> usize {
    100 + match output {
        Output::Inline(payload) => payload.bytes.len() + payload.refs.len() * 24,
        Output::Stored(stored) => stored.refs.len() * 24,
        Output::Alias(_) => 0,
    }
}
