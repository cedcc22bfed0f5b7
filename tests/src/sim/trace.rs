//! What happened, in words: hashed always, printed when asked for.

use std::{collections::BTreeMap, fmt::Write as _};

use fanfold_protocol::{
    AttemptId, Error, PartitionId, TaskId,
    message::{FromExecutor, ToExecutor},
    record::Record,
    value::{Output, StoredKey, Value},
};
use fanfold_scheduler::{Command, Event};

#[derive(Debug)]
pub struct Trace {
    print: bool,
    hash: u64,
    line: String,
}

type Names = BTreeMap<TaskId, String>;

impl Trace {
    pub fn new(print: bool) -> Self {
        Self { print, hash: 0xcbf2_9ce4_8422_2325, line: String::new() }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn line(&mut self, now_ms: u64, write: impl FnOnce(&mut String)) {
        self.line.clear();
        let _ = write!(self.line, "{now_ms:6} ");
        write(&mut self.line);
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.print {
            println!("{}", self.line);
        }
    }

    pub fn fact(&mut self, now_ms: u64, what: std::fmt::Arguments<'_>) {
        self.line(now_ms, |line| {
            let _ = line.write_fmt(what);
        });
    }

    pub fn event(&mut self, now_ms: u64, event: &Event, names: &Names) {
        self.line(now_ms, |line| {
            let show = Show { names };
            match event {
                Event::ExecutorJoined { offer, held } => {
                    let what = (offer.executor, offer.cpu_millis, offer.memory);
                    let _ = write!(line, "{} joins with {} cpu, {} memory and ", what.0, what.1, what.2);
                    let held: Vec<String> =
                        held.iter().map(|held| format!("{} {}", show.key(held.key), held.durable)).collect();
                    let _ = write!(line, "{held:?}");
                }
                Event::ExecutorLeft(id) => line.push_str(&format!("{id} left")),
                Event::JobStarted(start) => {
                    let _ = write!(
                        line,
                        "{} starts, {} committed",
                        show.task(start.root.id),
                        start.replay.committed.len()
                    );
                }
                Event::Submitted { attempt, task, spec } => {
                    let _ = write!(line, "{} calls {}", show.attempt(*attempt), show.task(*task));
                    if let Ok(spec) = spec.as_ref() {
                        let _ = write!(line, " = program {} {}", spec.terms.entry, show.values(&spec.args));
                    }
                }
                Event::From { executor, message } => {
                    let _ = write!(line, "{executor}: {}", show.from(message));
                }
                Event::Cancel { .. } => line.push_str("cancel"),
                Event::Memo { key, .. } => line.push_str(&format!("memo {key}")),
                Event::Tick => line.push_str("tick"),
            }
        });
    }

    pub fn command(&mut self, now_ms: u64, command: &Command, names: &Names) {
        self.line(now_ms, |line| {
            let show = Show { names };
            line.push_str("    > ");
            match command {
                Command::Send { executor, message } => {
                    let _ = write!(line, "{executor}: {}", show.to(message));
                }
                Command::Record(record) => line.push_str(&show.record(record)),
                Command::WakeAt(at_ms) => line.push_str(&format!("wake at {at_ms}")),
                Command::JobEnded(end) => {
                    let result = end.result.as_ref().map(Vec::len).map_err(|error| error.code);
                    let _ = write!(line, "{} ended {result:?}", show.task(TaskId::root(end.job)));
                }
                Command::Free(keys) => {
                    let _ = write!(line, "store: free {}", show.keys(keys));
                }
                Command::Memoise { outputs, .. } => line.push_str(&format!("memoise {}", outputs.len())),
                Command::Stalled { reason, .. } => line.push_str(&format!("stalled: {reason}")),
            }
        });
    }
}

struct Show<'a> {
    names: &'a Names,
}

impl Show<'_> {
    fn task(&self, task: TaskId) -> String {
        self.names.get(&task).cloned().unwrap_or_else(|| task.to_string())
    }

    fn attempt(&self, attempt: AttemptId) -> String {
        format!("{}#{}.{}", self.task(attempt.task), attempt.epoch, attempt.number)
    }

    fn part(&self, id: PartitionId) -> String {
        match id.output.checked_sub(PartitionId::FIRST_PUT) {
            Some(put) => format!("{}.p{put}", self.task(id.task)),
            None => format!("{}.{}", self.task(id.task), id.output),
        }
    }

    fn parts(&self, ids: &[PartitionId]) -> String {
        ids.iter().map(|id| self.part(*id)).collect::<Vec<_>>().join(" ")
    }

    fn key(&self, key: StoredKey) -> String {
        format!("{}#{}.{}", self.part(key.partition), key.epoch, key.attempt)
    }

    fn keys(&self, keys: &[StoredKey]) -> String {
        keys.iter().map(|key| self.key(*key)).collect::<Vec<_>>().join(" ")
    }

    fn values(&self, values: &[Value]) -> String {
        let value = |value: &Value| match value {
            Value::Inline(payload) => format!("inline[{}]", self.parts(&payload.refs)),
            Value::Partition(id) => self.part(*id),
            Value::Blocks { partition, first, count } => {
                format!("{}[{first}+{count}]", self.part(*partition))
            }
            Value::Object(range) => range.key.clone(),
        };
        values.iter().map(value).collect::<Vec<_>>().join(", ")
    }

    fn output(&self, output: &Output) -> String {
        match output {
            Output::Inline(payload) => {
                format!(
                    "inline {}[{}]",
                    super::making::inline_value(payload) % 10_000,
                    self.parts(&payload.refs)
                )
            }
            Output::Stored(stored) => format!(
                "{} crc {} at {:?}{}[{}]",
                self.key(stored.key),
                stored.meta.crc32c % 10_000,
                stored.at.map(|at| at.0),
                if stored.durable { " durable" } else { "" },
                self.parts(&stored.refs)
            ),
            Output::Alias(value) => format!("alias {}", self.values(std::slice::from_ref(value))),
        }
    }

    fn result(&self, result: &Result<Output, Error>) -> String {
        match result {
            Ok(output) => self.output(output),
            Err(error) => format!("!{:?}", error.code),
        }
    }

    fn from(&self, message: &FromExecutor) -> String {
        match message {
            FromExecutor::Submit { attempt, index, .. } => {
                format!("{} submits {index}", self.attempt(*attempt))
            }
            FromExecutor::Wait { attempt, wait, on, count, timeout_ms } => format!(
                "{} wait {wait}: {count} of {} within {timeout_ms:?}",
                self.attempt(*attempt),
                self.parts(on)
            ),
            FromExecutor::Next { attempt, wait, generator, output } => {
                format!("{} next {wait}: {} {output}", self.attempt(*attempt), self.task(*generator))
            }
            FromExecutor::Yield { attempt, output, value } => {
                format!("{} yields {output}: {}", self.attempt(*attempt), self.output(value))
            }
            FromExecutor::Put { attempt, output, value } => {
                let n = output - PartitionId::FIRST_PUT;
                format!("{} puts {n}: {}", self.attempt(*attempt), self.output(value))
            }
            FromExecutor::Drop { attempt, futures } => {
                format!("{} drops {}", self.attempt(*attempt), self.parts(futures))
            }
            FromExecutor::Cancel { attempt, futures } => {
                format!("{} cancels {}", self.attempt(*attempt), self.parts(futures))
            }
            FromExecutor::Lost { attempt, key } => {
                format!("{} lost {}", self.attempt(*attempt), self.key(*key))
            }
            FromExecutor::Durable(key) => format!("durable {}", self.key(*key)),
            FromExecutor::Spent { spent, .. } => format!("spent {:?}", spent.requests),
            FromExecutor::Wrote { attempt, object } => {
                format!("{} wrote {}", self.attempt(*attempt), object.key)
            }
            FromExecutor::Logs { attempt, .. } => format!("{} logs", self.attempt(*attempt)),
            FromExecutor::Status { attempt, .. } => format!("{} says how it stands", self.attempt(*attempt)),
            FromExecutor::Offer(offer) => format!("offers {} cpu, {} memory", offer.cpu_millis, offer.memory),
            FromExecutor::Leaving => "is leaving".to_owned(),
            FromExecutor::Left => "is gone".to_owned(),
            FromExecutor::Finished { attempt, result, .. } => {
                let result = match result {
                    Ok(outputs) => outputs.iter().map(|o| self.output(o)).collect::<Vec<_>>().join(", "),
                    Err(error) => format!("!{:?} {}", error.code, error.message),
                };
                format!("{} finished: {result}", self.attempt(*attempt))
            }
        }
    }

    fn to(&self, message: &ToExecutor) -> String {
        match message {
            ToExecutor::Run(run) => {
                let args = run.args.iter().map(|arg| match &arg.output {
                    Some(output) => self.output(output),
                    None => "-".to_owned(),
                });
                let args: Vec<String> = args.collect();
                format!("run {} with {} memory: {}", self.attempt(run.attempt), run.memory, args.join(", "))
            }
            ToExecutor::Stop { attempt, error } => {
                format!("stop {} {:?} {}", self.attempt(*attempt), error.code, error.message)
            }
            ToExecutor::Woken { attempt, wait, ready } => {
                let ready = ready.iter().map(|(n, result)| format!("{n}={}", self.result(result)));
                format!("woken {} {wait}: {}", self.attempt(*attempt), ready.collect::<Vec<_>>().join(" "))
            }
            ToExecutor::Next { attempt, wait, result } => {
                let result = match result {
                    Ok(id) => id.map_or("end".to_owned(), |id| self.part(id)),
                    Err(error) => format!("!{:?}", error.code),
                };
                format!("next {} {wait}: {result}", self.attempt(*attempt))
            }
            ToExecutor::MayYield { attempt, below } => {
                format!("{} may yield {below}", self.attempt(*attempt))
            }
            ToExecutor::Free(keys) => format!("free {}", self.keys(keys)),
            ToExecutor::Prefetch(wanted) => {
                format!("prefetch {}", self.keys(&wanted.iter().map(|stored| stored.key).collect::<Vec<_>>()))
            }
            ToExecutor::Peers(peers) => format!("peers {peers:?}"),
        }
    }

    fn record(&self, record: &Record) -> String {
        match record {
            Record::Committed(c) => format!("log commit of {}", self.attempt(c.attempt)),
            Record::Made { attempt, output, .. } => {
                format!("log {}", self.part(PartitionId { task: attempt.task, output: *output }))
            }
            Record::Waited { task, wait, ready, .. } => {
                format!("log answer to {} {wait}: {ready:?}", self.task(*task))
            }
            Record::Failed { task, error, .. } => {
                format!("log failure of {}: {:?}", self.task(*task), error.code)
            }
            Record::AttemptFailed { attempt, error, .. } => {
                format!("log failure of {}: {:?}", self.attempt(*attempt), error.code)
            }
            Record::Ended { job, .. } => format!("log end of {}", self.task(TaskId::root(*job))),
            other => format!("log {other:?}"),
        }
    }
}
