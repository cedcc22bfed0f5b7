//! Commands as lines of a script.

use fanfold_protocol::{
    AttemptId, Error, ExecutorId, PartitionId, TaskId,
    message::ToExecutor,
    record::Record,
    value::{Output, StoredKey},
};

use super::{MIB, World};
use crate::Command;

impl World {
    pub(super) fn show(&mut self, command: Command) -> Option<String> {
        Some(match command {
            Command::Send { executor, message } => self.show_message(executor, message),
            Command::Record(record) => {
                let text = self.show_record(&record);
                self.log.push(record);
                text
            }
            Command::WakeAt(_) => return None,
            Command::JobEnded(end) => {
                let result = match &end.result {
                    Ok(outputs) => {
                        outputs.iter().map(|output| self.output(output)).collect::<Vec<_>>().join(" ")
                    }
                    Err(error) => show_error(error),
                };
                format!("end {} {result}", self.names[&TaskId::root(end.job)])
            }
            Command::Free(keys) => format!("free store {}", self.keys(&keys)),
            Command::Memoise { key, outputs } => {
                let shown: Vec<String> = outputs.iter().map(|output| self.output(output)).collect();
                self.memoised = Some((key, outputs));
                format!("memoise {}", shown.join(" "))
            }
            Command::Stalled { job, reason } => {
                format!("stalled {}: {reason}", self.names[&TaskId::root(job)])
            }
        })
    }

    fn show_message(&mut self, executor: ExecutorId, message: ToExecutor) -> String {
        match message {
            ToExecutor::Run(run) => {
                let earlier = self.attempts.insert(run.attempt.task, (run.attempt, executor));
                self.earlier.extend(earlier.map(|earlier| (run.attempt.task, earlier)));
                format!("run {} on {executor} mem={}", self.attempt(run.attempt), run.memory / MIB)
            }
            ToExecutor::Stop { attempt, error } => {
                format!("stop {} {}", self.attempt(attempt), show_error(&error))
            }
            ToExecutor::Woken { attempt, wait, ready } => {
                let ready = ready.iter().map(|(n, result)| match result {
                    Ok(output) => format!("{n}={}", self.output(output)),
                    Err(error) => format!("{n}={}", show_error(error)),
                });
                let ready: Vec<String> = ready.collect();
                format!("woken {} {wait}: {}", self.names[&attempt.task], ready.join(" "))
            }
            ToExecutor::Next { attempt, wait, result } => {
                let result = match result {
                    Ok(Some(id)) => self.part_name(id),
                    Ok(None) => "end".to_owned(),
                    Err(error) => show_error(&error),
                };
                format!("next {} {wait}: {result}", self.names[&attempt.task])
            }
            ToExecutor::MayYield { attempt, below } => {
                format!("credit {} {below}", self.names[&attempt.task])
            }
            ToExecutor::Free(keys) => {
                let held = self.held.entry(executor).or_default();
                held.retain(|key, _| !keys.contains(key));
                format!("free {executor} {}", self.keys(&keys))
            }
            ToExecutor::Prefetch(wanted) => {
                let wanted: Vec<_> =
                    wanted.iter().map(|stored| self.part_name(stored.key.partition)).collect();
                format!("prefetch {executor} {}", wanted.join(" "))
            }
            ToExecutor::Peers(_) => format!("peers {executor}"),
        }
    }

    fn show_record(&self, record: &Record) -> String {
        match record {
            Record::Committed(c) => format!("log committed {}", self.names[&c.attempt.task]),
            Record::Made { attempt, output, .. } => {
                format!("log made {}", self.part_name(PartitionId { task: attempt.task, output: *output }))
            }
            Record::Waited { task, wait, ready, .. } => {
                format!("log waited {} {wait} {ready:?}", self.names[task])
            }
            Record::Failed { task, error, .. } => {
                format!("log failed {} {}", self.names[task], show_error(error))
            }
            Record::AttemptFailed { attempt, error, .. } => {
                format!("log attempt-failed {} {}", self.attempt(*attempt), show_error(error))
            }
            Record::Ended { job, .. } => format!("log ended {}", self.names[&TaskId::root(*job)]),
            other => format!("{other:?}"),
        }
    }

    fn output(&self, output: &Output) -> String {
        match output {
            Output::Inline(payload) => format!("'{}'", String::from_utf8_lossy(&payload.bytes)),
            Output::Stored(stored) => match stored.at {
                Some(at) => format!("@{} on {at}", stored.meta.bytes),
                None if stored.durable => format!("@{} in store", stored.meta.bytes),
                None => format!("@{} nowhere", stored.meta.bytes),
            },
            Output::Alias(value) => format!("{value:?}"),
        }
    }

    fn attempt(&self, attempt: AttemptId) -> String {
        format!("{}#{}", self.names[&attempt.task], attempt.number)
    }

    fn part_name(&self, id: PartitionId) -> String {
        match id.output.checked_sub(PartitionId::FIRST_PUT) {
            Some(put) => format!("{}.p{put}", self.names[&id.task]),
            None => format!("{}.{}", self.names[&id.task], id.output),
        }
    }

    fn keys(&self, keys: &[StoredKey]) -> String {
        let name = |key: &StoredKey| format!("{}#{}", self.part_name(key.partition), key.attempt);
        keys.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

fn show_error(error: &Error) -> String {
    let code = serde_json::to_string(&error.code).unwrap();
    format!("!{}/{}", error.kind.name(), code.trim_matches('"'))
}
