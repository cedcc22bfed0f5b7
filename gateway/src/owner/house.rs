//! What is only a matter of age or amount, looked at once a second: jobs to forget, answers to forget, jobs that waited
//! too long, freed data to remove, checkpoints.

use fanfold_protocol::{
    Code, Error, JobId, Kind, limit,
    message::ToExecutor,
    record::Record,
    value::{Stored, StoredKey},
};

use super::{
    consequences::Consequence,
    lane::weight,
    live::{Live, Stage},
    messages::tell,
    run::Loop,
    work::Done,
};

/// Jobs whose objects are removed at the same time.
const REMOVALS_MAX: usize = 64;
/// Bytes that can be read in the time it takes to open a segment: how much its mere existence adds to a restart.
const SEGMENT_BYTES: u64 = limit::CHECKPOINT_BYTES / limit::CHECKPOINT_SEGMENTS;
/// Time between two looks at the ages of stored answers.
const ANSWERS_INTERVAL_MS: u64 = 60_000;

impl Loop {
    /// Looks at everything that is due.
    pub fn keep_house(&mut self) {
        self.tell_silence();
        self.forget_due();
        self.expire_answers();
        self.expire_memos();
        self.give_up_waiting();
        self.free(Vec::new());
        self.checkpoint();
    }

    /// Tells those whose acceptance waits for a store that says nothing. Their jobs run if it is found to be recorded.
    fn tell_silence(&mut self) {
        let Some(error) = self.lane.silence() else { return };
        for accepting in self.accepting.values_mut() {
            accepting.waiters.drain(..).for_each(|waiter| waiter.refuse(error.clone()));
        }
    }

    /// Forgets ended jobs whose time is over: first their objects go, then their record, so that a crash in between
    /// leaves nothing behind.
    fn forget_due(&mut self) {
        if self.lane.refusal().is_some() {
            return;
        }
        let room = REMOVALS_MAX.saturating_sub(self.housekeeping.removing);
        for job in self.retention.due(self.now_ms, room) {
            self.forget(job);
        }
    }

    /// Begins to forget an ended job.
    pub fn forget(&mut self, job: JobId) {
        self.housekeeping.removing += 1;
        let stored: Vec<_> =
            self.state.job(job).map(|job| job.stored().cloned().collect()).unwrap_or_default();
        self.free_copies(&stored);
        self.mirror_gone(job);
        self.work.remove(job, true);
    }

    /// Forgets answers that are too old; all of them are looked at, so not every second.
    fn expire_answers(&mut self) {
        if self.housekeeping.answers_due_ms <= self.now_ms {
            self.housekeeping.answers_due_ms = self.now_ms + ANSWERS_INTERVAL_MS;
            self.state.expire_answers(self.now_ms.saturating_sub(limit::RESULT_KEPT_MS));
        }
    }

    /// Ends jobs that did not get their turn and a place before they were too old. Queues for a place are in order of age, nearly: where
    /// triggers have policies of their own, one may be given up when it comes to the front.
    fn give_up_waiting(&mut self) {
        loop {
            let now_ms = self.now_ms;
            // One whose end is on its way is among those that wait for a turn until that is durable.
            let late = |live: &Live| matches!(live.stage, Stage::Waiting) && live.deadline_at_ms <= now_ms;
            let late = |job: &JobId| self.live.get(job).is_some_and(late);
            let waiting = self.places.fronts().into_iter().chain(self.runs.waiting());
            let late: Vec<_> = waiting.filter(late).collect();
            if late.is_empty() || self.lane.is_full() {
                return;
            }
            for job in late {
                let why = "the invocation grew older than max_age of its retry policy before there was a place for it";
                self.end_unstarted(job, Error::new(Kind::Limit, Code::Deadline, why));
            }
        }
    }

    /// Removes freed data, one batch at a time. What the disk refuses to remove now goes with its job.
    pub fn free(&mut self, keys: Vec<StoredKey>) {
        self.housekeeping.to_free.extend(keys);
        if !self.housekeeping.freeing && !self.housekeeping.to_free.is_empty() {
            self.housekeeping.freeing = true;
            let keys = std::mem::take(&mut self.housekeeping.to_free);
            self.work.free(keys);
        }
    }

    /// Removes the result of an unrecorded job.
    pub fn free_result(&mut self, stored: &[Stored]) {
        let keys = self.free_copies(stored);
        self.free(keys);
    }

    /// Has executors remove the copies they are known to have, and the store's with them. The others' keys.
    fn free_copies(&mut self, stored: &[Stored]) -> Vec<StoredKey> {
        let mut others = Vec::new();
        // The data of memoised calls has its own time.
        for Stored { key, at, .. } in stored.iter().filter(|stored| !stored.key.is_memo()) {
            match self.links.iter_mut().find(|link| Some(link.id()) == *at && link.connected) {
                Some(link) => link.send(ToExecutor::Free(vec![*key])),
                None => others.push(*key),
            }
        }
        others
    }

    /// Begins a checkpoint when a restart would have much to read. The state is copied while no write is under way, and
    /// none begins until the journal has the checkpoint: see [`super::lane`].
    fn checkpoint(&mut self) {
        // A checkpoint costs as much as the state is large, so the tail must be worth it.
        let opening = self.journal.segments_since_checkpoint() * SEGMENT_BYTES;
        let tail = self.journal.bytes_since_checkpoint() + opening;
        let much = tail >= limit::CHECKPOINT_BYTES.max(self.housekeeping.checkpoint_bytes);
        if much && !self.housekeeping.checkpointing && self.lane.refusal().is_none() {
            self.housekeeping.checkpointing = true;
            self.lane.pause();
        }
    }

    /// Goes on with a checkpoint once the last write is done.
    pub fn compact(&mut self) {
        if self.housekeeping.compacting || !self.lane.is_paused() || self.lane.is_writing() {
            return;
        }
        self.housekeeping.compacting = true;
        let state = self.state.clone();
        self.work.compact(move || state.records());
    }

    fn compacted(&mut self, records: Result<Vec<Record>, Error>) {
        self.housekeeping.compacting = false;
        match records {
            Ok(records) => {
                self.housekeeping.checkpoint_bytes = records.iter().map(|record| weight(record) as u64).sum();
                self.lane.checkpoint(records);
            }
            Err(error) => {
                self.lane.go_on();
                self.checkpointed(Err(error));
            }
        }
    }

    /// The journal has a checkpoint, or could not write it.
    pub fn checkpointed(&mut self, result: Result<(), Error>) {
        self.housekeeping.checkpointing = false;
        match result {
            Ok(()) => tracing::info!("a checkpoint was written"),
            Err(error) => tracing::warn!(%error, "no checkpoint could be written; trying again later"),
        }
    }

    /// Takes the outcome of work.
    pub fn done(&mut self, done: Done) {
        match done {
            Done::Input { job, result } => self.input_read(job, result),
            Done::EndStored { job, result } => {
                if let Err(error) = result {
                    tracing::warn!(%job, %error, "a job's logs and task graph could not be stored");
                }
                self.journal_end(job);
            }
            Done::Removed { job, recorded, result } => self.removed(job, recorded, result),
            Done::Freed { result } => {
                self.housekeeping.freeing = false;
                if let Err(error) = result {
                    tracing::warn!(%error, "freed partitions could not be removed; they go with their jobs");
                }
            }
            Done::MemoCopied { key, from, outputs, result } => self.memo_copied(key, &from, outputs, result),
            Done::MemoRemoved { key, result } => self.memo_removed(key, result),
            Done::Compacted { records } => self.compacted(records),
        }
    }

    fn removed(&mut self, job: JobId, recorded: bool, result: Result<(), Error>) {
        if let Err(error) = &result {
            tracing::warn!(%job, %error, "a job's objects could not be removed");
        }
        if !recorded {
            return;
        }
        self.housekeeping.removing -= 1;
        let remover = self.housekeeping.removers.remove(&job);
        match result {
            Ok(()) => self.lane.push(Record::Forgotten { job }, remover.map(Consequence::Recorded)),
            // It is still known, so it is tried again.
            Err(error) => {
                if let Some(job) = self.state.job(job) {
                    self.retention.add(job);
                }
                if let Some(reply) = remover {
                    tell(reply, Err(error));
                }
            }
        }
    }
}
