//! Calls that may be answered by what an equal one made before.
//!
//! Two calls are equal if their keys are: version, entry, number of outputs, and what the arguments *are*: bytes, a
//! pinned range of an object, or an output of a task that was itself memoised, which follows from that one's key. An
//! argument of which nothing such is known gives the call no key, and it runs. See `docs/adr/0004-memo.md`.

use fanfold_protocol::{
    AttemptId, Digest,
    message::Usage,
    value::{ObjectRange, Output, Value},
};

use crate::{
    Command, Scheduler,
    interest::Resolved,
    placement::needed_args,
    slab::TaskIx,
    spec::Spec,
    task::{Part, Phase, put_index},
};

/// Changed whenever keys are made in another way: entries made before then answer nothing.
const KEY_VERSION: &[u8] = b"fanfold memo 1";

impl Scheduler {
    /// Commits a task that could run now with the outputs of an equal call. Whether there was one.
    pub(crate) fn reuse(&mut self, ix: TaskIx) -> bool {
        let Some(key) = self.memo_key(ix) else { return false };
        self.tasks[ix].memo = Some(Box::new(key));
        let Some(outputs) = self.memos.get(&key).cloned() else { return false };
        // Attempts count from 1: this stands for none.
        let attempt = AttemptId { task: self.tasks[ix].id, epoch: self.epoch, number: 0 };
        self.tasks[ix].phase = Phase::Idle;
        self.commit_first(ix, attempt, outputs, &Usage::default());
        if let Some(stage) = self.stage_of(ix) {
            stage.reused += 1;
        }
        self.settled(ix);
        true
    }

    /// Tells the owner of outputs that can answer equal calls.
    pub(crate) fn memoise(&mut self, ix: TaskIx, outputs: &[Output]) {
        let Some(key) = self.tasks[ix].memo.as_deref().copied() else { return };
        let lasts = |output: &Output| match output {
            Output::Inline(payload) => payload.refs.is_empty(),
            Output::Stored(stored) => stored.refs.is_empty() && stored.durable,
            Output::Alias(_) => false,
        };
        if !self.memos.contains_key(&key) && outputs.iter().all(lasts) {
            self.command(Command::Memoise { key, outputs: outputs.to_vec() });
        }
    }

    /// The key of a task whose arguments all exist.
    fn memo_key(&self, ix: TaskIx) -> Option<Digest> {
        let task = &self.tasks[ix];
        let Spec { args, terms } = task.spec.as_ref().filter(|_| task.is_open())?;
        if !terms.memo || !terms.deterministic || terms.generator {
            return None;
        }
        let mut needed = needed_args(task).map(|(_, part)| part);
        let args = args.iter().map(|value| match value.needs() {
            Some(_) => self.identity(value, needed.next()),
            None => self.identity(value, None),
        });
        let args: Vec<Digest> = args.collect::<Option<_>>()?;
        let outputs = terms.outputs.to_be_bytes();
        let mut parts = vec![KEY_VERSION, &terms.version.0, terms.entry.as_bytes(), &outputs];
        parts.extend(args.iter().map(|arg| &arg.0[..]));
        Some(Digest::of_parts(&parts))
    }

    /// What an argument is, whoever passes it; `part`: the partition behind it.
    fn identity(&self, value: &Value, part: Option<Part>) -> Option<Digest> {
        match value {
            Value::Inline(payload) if payload.refs.is_empty() => {
                Some(Digest::of_parts(&[b"inline", &payload.bytes]))
            }
            // The ids of partitions differ from job to job.
            Value::Inline(_) => None,
            Value::Object(range) => object(range),
            Value::Partition(_) => self.content(part?),
            Value::Blocks { first, count, .. } => {
                let content = self.content(part?)?;
                Some(Digest::of_parts(&[b"blocks", &content.0, &first.to_be_bytes(), &count.to_be_bytes()]))
            }
        }
    }

    fn content(&self, part: Part) -> Option<Digest> {
        let Resolved::Ready(part, output) = self.resolve(part) else { return None };
        match output {
            Output::Inline(payload) if payload.refs.is_empty() => {
                Some(Digest::of_parts(&[b"bytes", &payload.bytes]))
            }
            Output::Inline(_) => None,
            Output::Stored(_) if put_index(part.output).is_some() => None,
            Output::Stored(_) => {
                let maker = self.tasks[part.task].memo.as_deref()?;
                Some(Digest::of_parts(&[b"made", &maker.0, &part.output.to_be_bytes()]))
            }
            Output::Alias(value) => match value.as_ref() {
                Value::Object(range) => object(range),
                _ => None,
            },
        }
    }

    /// Outputs of a job's tasks that are this entry's data.
    pub(crate) fn reused_as(
        &self,
        job: crate::slab::JobIx,
        key: &fanfold_protocol::value::StoredKey,
    ) -> Vec<Part> {
        let tasks = self.tasks_of(job).into_iter();
        let parts =
            tasks.flat_map(|task| self.tasks[task].output_numbers().map(move |output| Part { task, output }));
        parts
            .filter(|&part| self.slot(part).is_some_and(|slot| slot.stored().is_some_and(|s| s.key == *key)))
            .collect()
    }
}

/// A range of an object is known by its content's tag.
fn object(range: &ObjectRange) -> Option<Digest> {
    let etag = range.etag.as_deref()?;
    let (offset, length) = (range.offset.to_be_bytes(), range.length.unwrap_or(u64::MAX).to_be_bytes());
    Some(Digest::of_parts(&[b"object", range.key.as_bytes(), etag.as_bytes(), &offset, &length]))
}
