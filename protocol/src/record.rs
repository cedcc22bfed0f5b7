//! What the journal records. The state of a gateway is a fold over these, in order; nothing else is durable but the
//! bytes they point to.
//!
//! Entries are MessagePack with field names, so that fields can be added with a default. An entry that cannot be
//! understood stops the replay: it is never skipped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, Digest, Error, FunctionName, JobId, PartitionId, TaskId,
    function::FunctionVersion,
    manifest::Retry,
    message::{Spent, Usage},
    trigger::TriggerRecord,
    value::{Output, Payload},
};

/// One entry. Times are Unix milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A version exists and the alias `latest` points to it. Repeated deploys of one version are not recorded.
    Deployed(Box<FunctionVersion>),
    /// An alias points to versions by weight; an empty map removes it. `latest` is an alias like any other.
    AliasSet {
        /// The function.
        name: FunctionName,
        /// The alias.
        alias: FunctionName,
        /// Version digest to weight, above 0.
        weights: BTreeMap<Digest, u32>,
    },
    /// A function and all its versions and aliases are gone for new invocations.
    Removed {
        /// The function.
        name: FunctionName,
    },
    /// A trigger exists, in place of any of that name.
    TriggerSet(Box<TriggerRecord>),
    /// It does not any more.
    TriggerRemoved {
        /// The trigger.
        name: FunctionName,
    },
    /// An event waits for its batch. The batch's `Accepted` takes it out.
    Held(Box<HeldEvent>),
    /// A schedule's times up to this one are passed over: nothing fires for them any more.
    Passed {
        /// The trigger.
        trigger: FunctionName,
        /// The last of them.
        at_ms: u64,
        /// Its last run, where a checkpoint says so.
        job: Option<JobId>,
    },
    /// An asynchronous invocation or batch job was accepted. Written before `202`.
    Accepted(Box<Accepted>),
    /// A task's outputs exist: the one commit of the task. Later ones for the same task are ignored when folded.
    Committed(Box<Committed>),
    /// A generator's or `put` output exists before its task has finished.
    Made {
        /// The job.
        job: JobId,
        /// The attempt that made it.
        attempt: AttemptId,
        /// Which output.
        output: u32,
        /// What.
        value: Output,
    },
    /// A `wait` for fewer than all, or with a timeout, was answered so; a replay gets the same answer.
    Waited {
        /// The job.
        job: JobId,
        /// The driver.
        task: TaskId,
        /// Counts from 0 over the task's waits for fewer than all or with a timeout. Other waits are not counted: an
        /// attempt that cannot read a partition has one more of them than another attempt.
        wait: u64,
        /// The positions that were ready.
        ready: Vec<u32>,
    },
    /// A job named a function for the first time; until its end the name means this version to it, so that a replayed
    /// driver makes the same calls. Written before anything that follows from the call.
    Resolved {
        /// The job.
        job: JobId,
        /// As its driver wrote it: `name`, `name:alias` or `name:version`.
        function: String,
        /// What it means.
        version: Digest,
    },
    /// A task failed for good.
    Failed {
        /// The job.
        job: JobId,
        /// The task.
        task: TaskId,
        /// Why.
        error: Error,
    },
    /// An attempt of a root task failed and another will follow; counts against its retry policy across restarts.
    AttemptFailed {
        /// The job.
        job: JobId,
        /// Which.
        attempt: AttemptId,
        /// When.
        at_ms: u64,
        /// Why.
        error: Error,
    },
    /// Partitions beside the root's outputs that a job's result consists of, because the outputs' bytes name them. Written
    /// before the job's end; they can be read as long as its result is kept.
    Kept {
        /// The job.
        job: JobId,
        /// Each with what it is, aliases followed.
        partitions: Vec<(PartitionId, Output)>,
    },
    /// A job ended; at most once per job.
    Ended {
        /// The job.
        job: JobId,
        /// When.
        at_ms: u64,
        /// The root's outputs, or why it failed. A failed one is in the dead-letter list, a cancelled one is not.
        result: Result<Vec<Output>, Error>,
        /// Sums over all attempts.
        usage: Usage,
        /// What else its bill counts.
        #[serde(default)]
        spent: Spent,
        /// Tasks of the job, the root included.
        tasks: u64,
        /// Whether something follows from it that is not done yet: a trigger waits for the end, or the result says something. Done,
        /// there is a `Followed`.
        #[serde(default)]
        follow: bool,
    },
    /// What followed from a job's end is recorded.
    Followed {
        /// The job.
        job: JobId,
    },
    /// Somebody asked for the job to be cancelled.
    CancelAsked {
        /// The job.
        job: JobId,
    },
    /// A dead letter was given another chance, as a new job.
    Retried {
        /// The failed job.
        job: JobId,
        /// The new one.
        again: JobId,
    },
    /// A call committed whose outputs answer equal calls from now on; the first under a key stays.
    Memoised {
        /// What makes calls equal: [ADR 4](../../docs/adr/0004-memo.md).
        key: Digest,
        /// When.
        at_ms: u64,
        /// Inline, or stored under keys of the entry's own.
        outputs: Vec<Output>,
    },
    /// Such an entry is gone, and its data.
    Unmemoised {
        /// Its key.
        key: Digest,
    },
    /// A job's result has passed its time; all that was kept for it is gone.
    Forgotten {
        /// The job.
        job: JobId,
    },
    /// A synchronous answer stored under an `Idempotency-Key`.
    Answered {
        /// `Digest::of_parts([scope, key])`; the scope is method and path.
        key: Digest,
        /// Digest of the request's body, so that reuse with another body is refused.
        request: Digest,
        /// When.
        at_ms: u64,
        /// HTTP status.
        status: u16,
        /// Media type of the body.
        content_type: String,
        /// Body, at most [`crate::limit::INLINE_BYTES_MAX`]; larger answers are not stored and the key is refused.
        body: bytes::Bytes,
    },
}

/// An accepted invocation or job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Accepted {
    /// Its id.
    pub job: JobId,
    /// The function as it was resolved when accepted.
    pub name: FunctionName,
    /// The version that runs it.
    pub version: Digest,
    /// Which entry of the component; empty: its main one.
    pub entry: String,
    /// Its input: inline, or a reference to what was stored before.
    pub input: Input,
    /// `Digest::of_parts([scope, Idempotency-Key])`, if one was sent, and the digest of the request.
    pub idempotency: Option<(Digest, Digest)>,
    /// W3C `traceparent`, if one was sent.
    pub traceparent: Option<String>,
    /// When.
    pub at_ms: u64,
    /// Attempts already made for this input under an earlier id (a retried dead letter keeps its history).
    #[serde(default)]
    pub retried_from: Option<JobId>,
    /// Whether it came as a batch job, and is listed as one even where its function calls no others.
    #[serde(default)]
    pub batch: bool,
    /// The trigger that fired it, if one did.
    #[serde(default)]
    pub fired: Option<Box<Fired>>,
}

/// What made a trigger fire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fired {
    /// The trigger.
    pub trigger: FunctionName,
    /// The scheduled time it stands for; times before it are done with.
    pub scheduled_ms: Option<u64>,
    /// Keys of the events of its batch, in order: further idempotency keys of the invocation. One that was not batched has its own
    /// as the invocation's only key.
    pub events: Vec<Digest>,
    /// How many runs led to this one, itself included.
    #[serde(default)]
    pub hops: u32,
    /// Its ordering key: runs of the trigger with the same one run one after the other.
    #[serde(default)]
    pub ordering: Option<Digest>,
    /// What the trigger said of its runs.
    #[serde(default)]
    pub says: Says,
}

/// What a trigger says of its runs, as it was defined when it fired.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Says {
    /// Whether their result says which events of the batch failed.
    pub partial: bool,
    /// The result may be CloudEvents whose types are so; a `*` at the end stands for any rest.
    pub emits: Option<String>,
    /// How many of them are under way at once, at most.
    pub concurrency: Option<u32>,
    /// How they are tried again, in place of what the function's manifest says.
    pub retry: Option<Retry>,
}

/// An event that waits for its batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldEvent {
    /// The trigger.
    pub trigger: FunctionName,
    /// What that calls, so that the event is not lost with its trigger.
    pub function: String,
    /// Which entry of it.
    pub entry: String,
    /// The event's idempotency key.
    pub key: Digest,
    /// When it came.
    pub at_ms: u64,
    /// Bytes of the object it tells of, 0 where it tells of none.
    pub bytes: u64,
    /// The CloudEvent as JSON, at most [`crate::limit::HELD_EVENT_BYTES_MAX`].
    pub event: bytes::Bytes,
    /// How many runs led to it.
    #[serde(default)]
    pub hops: u32,
    /// What the function gets.
    #[serde(default)]
    pub input: crate::trigger::Input,
    /// What the trigger said of its runs.
    #[serde(default)]
    pub says: Says,
}

impl HeldEvent {
    /// Whether a run can have both: they ask for the same call in the same way.
    pub fn goes_with(&self, other: &Self) -> bool {
        let Self { function, entry, input, says, .. } = other;
        (&self.function, &self.entry, &self.input, &self.says) == (function, entry, input, says)
    }
}

/// The input of an invocation from outside.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Input {
    /// At most [`crate::limit::INLINE_BYTES_MAX`] bytes, and their media type.
    Inline {
        /// The bytes.
        body: Payload,
        /// Media type, empty if none was given.
        content_type: String,
    },
    /// Stored in the job's input object before it was accepted.
    Stored {
        /// How many bytes.
        bytes: u64,
        /// Media type, empty if none was given.
        content_type: String,
    },
}

/// The commit of a task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Committed {
    /// The job.
    pub job: JobId,
    /// The attempt whose outputs these are.
    pub attempt: AttemptId,
    /// The driver that called it; `None`: the root.
    pub parent: Option<TaskId>,
    /// [`crate::call::Terms::fingerprint`]: a replayed driver must make the same call.
    pub fingerprint: Digest,
    /// One per output.
    pub outputs: Vec<Output>,
    /// What the attempt used.
    pub usage: Usage,
}

impl Committed {
    /// The partitions this commit makes visible.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let task = self.attempt.task;
        (0..self.outputs.len() as u32).map(move |output| PartitionId { task, output })
    }
}

impl Record {
    /// The bytes of the entry.
    pub fn encode(&self) -> Vec<u8> {
        // Named MessagePack of these types cannot fail: there is no map with non-string keys and no writer.
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }

    /// The entry in `bytes`.
    ///
    /// # Errors
    /// [`crate::Code::Corrupt`] where they are no entry of this or an older version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        rmp_serde::from_slice(bytes).map_err(|e| {
            Error::new(
                crate::Kind::Platform,
                crate::Code::Corrupt,
                format!(
                    "a journal entry cannot be read ({e}): it was written by a newer version or is damaged"
                ),
            )
            .retryable(false)
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn an_accepted_record_of_before_batch_jobs_were_told_apart_is_read() {
        #[derive(Serialize)]
        struct Earlier<'a> {
            job: JobId,
            name: &'a str,
            version: Digest,
            entry: &'a str,
            input: Input,
            idempotency: Option<(Digest, Digest)>,
            traceparent: Option<String>,
            at_ms: u64,
        }
        let input = Input::Inline { body: Bytes::from_static(b"in").into(), content_type: String::new() };
        let (job, version) = (JobId(uuid::Uuid::from_u128(9)), Digest::of(b"v"));
        let earlier = BTreeMap::from([(
            "Accepted",
            Earlier {
                job,
                name: "f",
                version,
                entry: "",
                input,
                idempotency: None,
                traceparent: None,
                at_ms: 5,
            },
        )]);
        let bytes = rmp_serde::to_vec_named(&earlier).unwrap();
        let Record::Accepted(accepted) = Record::decode(&bytes).unwrap() else { panic!("another record") };
        assert_eq!((accepted.job, accepted.at_ms, accepted.batch), (job, 5, false));
    }

    #[test]
    fn records_survive_encoding() {
        let attempt = AttemptId { task: TaskId([3; 16]), epoch: 2, number: 1 };
        let record = Record::Committed(Box::new(Committed {
            job: JobId(uuid::Uuid::from_u128(9)),
            attempt,
            parent: Some(TaskId([1; 16])),
            fingerprint: Digest::of(b"x"),
            outputs: vec![Output::Inline(Bytes::from_static(b"hello").into())],
            usage: Usage::default(),
        }));
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes).unwrap(), record);
        assert!(bytes.len() < 400, "a commit of one small output took {} bytes", bytes.len());
        assert!(Record::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}
