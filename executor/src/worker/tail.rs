//! The log lines of an attempt on their way to its owner: some while it runs, the rest with its end, each once. And what it says of
//! how its job stands: the last of it, while it runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fanfold_protocol::{AttemptId, direct::Logs, message::FromExecutor};
use tokio::sync::mpsc;

use crate::sandbox::{LogSink, Status};

/// What of an attempt's lines its owner was told. Whoever writes lines only ever appends.
#[derive(Debug, Default)]
pub struct Tail(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// `None`: it has no instance yet.
    logs: Option<Logs>,
    bytes: usize,
    status: Status,
    /// The rest goes with the attempt's end.
    ended: bool,
}

impl Tail {
    /// The attempt writes to `sink` from now on.
    pub fn begin(&self, sink: &LogSink) {
        *self.told() =
            Told { logs: Some(sink.logs()), bytes: 0, status: sink.status().clone(), ended: false };
    }

    /// Tells the owner what is new. Where its channel is full, the lines wait.
    pub(super) fn flush(&self, attempt: AttemptId, events: &mpsc::Sender<FromExecutor>) {
        // Held while the message is sent: an attempt's end must not overtake its lines.
        let mut told = self.told();
        if !told.ended
            && let Some(text) = told.status.take()
        {
            // One that finds the channel full is not missed for long.
            let _ = events.try_send(FromExecutor::Status { attempt, text });
        }
        let Some(lines) = told.new_lines() else { return };
        let bytes = lines.len();
        if events.try_send(FromExecutor::Logs { attempt, lines }).is_ok() {
            told.bytes += bytes;
        }
    }

    /// What is left to be told with the attempt's end; nothing is told in between any more. The guest must be gone.
    pub fn end(&self) -> Bytes {
        let mut told = self.told();
        told.ended = true;
        let Some(logs) = told.logs.take() else { return Bytes::new() };
        let mut lines = std::mem::take(&mut *lock(&logs));
        if told.bytes == 0 { lines.into() } else { lines.split_off(told.bytes.min(lines.len())).into() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        lock(&self.0)
    }
}

impl Told {
    fn new_lines(&self) -> Option<Bytes> {
        let logs = lock(self.logs.as_ref().filter(|_| !self.ended)?);
        let new = logs.get(self.bytes..).filter(|new| !new.is_empty())?;
        Some(Bytes::copy_from_slice(new))
    }
}

/// A panic while the lock was held leaves whole lines behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{TaskId, limit};

    use super::*;

    #[test]
    fn each_line_is_told_once_and_none_is_lost_where_there_is_no_room() {
        let attempt = AttemptId { task: TaskId([1; 16]), epoch: 1, number: 1 };
        let sink = LogSink::default();
        let (events, mut heard) = mpsc::channel(1);
        let tail = Tail::default();
        tail.flush(attempt, &events);
        tail.begin(&sink);
        tail.flush(attempt, &events);
        assert!(heard.try_recv().is_err(), "there is nothing to tell");
        let write = |line: &[u8]| lock(&sink.logs()).extend_from_slice(line);
        write(b"a\n");
        tail.flush(attempt, &events);
        write(b"b\n");
        tail.flush(attempt, &events);
        let told = |message| matches!(message, FromExecutor::Logs { lines, .. } if lines == "a\n");
        assert!(told(heard.try_recv().unwrap()));
        write(b"c\n");
        assert_eq!(tail.end(), "b\nc\n");
        tail.flush(attempt, &events);
        assert!(heard.try_recv().is_err(), "nothing follows the end");
    }

    #[test]
    fn the_last_that_was_said_is_told_once() {
        let attempt = AttemptId { task: TaskId([1; 16]), epoch: 1, number: 1 };
        let (events, mut heard) = mpsc::channel(4);
        let (tail, sink) = (Tail::default(), LogSink::default());
        tail.begin(&sink);
        sink.status().say("begins".into());
        sink.status().say("é".repeat(limit::STATUS_BYTES_MAX));
        tail.flush(attempt, &events);
        tail.flush(attempt, &events);
        let Ok(FromExecutor::Status { text, .. }) = heard.try_recv() else { panic!("nothing was told") };
        assert_eq!(text, "é".repeat(limit::STATUS_BYTES_MAX / 2));
        assert!(heard.try_recv().is_err(), "it was told before");
        sink.status().say("ends".into());
        tail.end();
        tail.flush(attempt, &events);
        assert!(heard.try_recv().is_err(), "nothing follows the end");
    }
}
