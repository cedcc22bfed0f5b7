//! The captured log of a live job: lines of all its attempts, each tagged with its task, up to a bound.

use bytes::{Bytes, BytesMut};
use fanfold_protocol::{AttemptId, TaskId, limit};

/// Room kept for the line that says how much was dropped.
const NOTICE_BYTES: usize = 128;

/// NDJSON lines of one job.
#[derive(Debug, Default)]
pub(super) struct JobLog {
    lines: BytesMut,
    dropped: u64,
}

impl JobLog {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }

    /// Appends an attempt's lines. Lines that do not fit are dropped whole, and counted.
    pub fn append(&mut self, attempt: AttemptId, logs: &[u8]) {
        let tag = Tag::new(attempt.task, attempt.number);
        for line in logs.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let tagged = tag.len() + line.len();
            if self.dropped > 0 || self.lines.len() + tagged + NOTICE_BYTES > limit::JOB_LOG_BYTES_MAX {
                self.dropped += 1;
            } else {
                tag.write(line, &mut self.lines);
            }
        }
    }

    /// Bytes of the lines until now.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// The lines until now from a byte on, without those that were dropped.
    pub fn since(&self, from: usize) -> Bytes {
        Bytes::copy_from_slice(self.lines.get(from..).unwrap_or_default())
    }

    /// All lines until now, a last one telling how many were dropped.
    pub fn snapshot(&self) -> Bytes {
        let mut lines = self.lines.clone();
        if self.dropped > 0 {
            let notice = format!(
                "{{\"stream\":\"platform\",\"line\":\"{} lines dropped: a job keeps {} MiB of log\"}}\n",
                self.dropped,
                limit::JOB_LOG_BYTES_MAX >> 20
            );
            lines.extend_from_slice(notice.as_bytes());
        }
        lines.freeze()
    }
}

/// `"task":"…","attempt":n,` as the first members of a line that is a JSON object without them.
struct Tag(String);

impl Tag {
    fn new(task: TaskId, attempt: u32) -> Self {
        Self(format!("{{\"task\":\"{task}\",\"attempt\":{attempt},"))
    }

    fn len(&self) -> usize {
        self.0.len() + 1
    }

    fn write(&self, line: &[u8], to: &mut BytesMut) {
        match line.strip_prefix(b"{") {
            Some(rest) if !line.starts_with(b"{\"task\":") && !rest.starts_with(b"}") => {
                to.extend_from_slice(self.0.as_bytes());
                to.extend_from_slice(rest);
            }
            _ => to.extend_from_slice(line),
        }
        to.extend_from_slice(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_tagged_and_bounded() {
        let attempt = AttemptId { task: TaskId([7; 16]), epoch: 3, number: 2 };
        let mut log = JobLog::default();
        log.append(attempt, b"{\"stream\":\"stdout\",\"line\":\"a\"}\n{\"task\":\"t\"}\nnot json");
        let text = String::from_utf8(log.snapshot().to_vec()).unwrap();
        let tagged =
            format!("{{\"task\":\"{}\",\"attempt\":2,\"stream\":\"stdout\",\"line\":\"a\"}}", attempt.task);
        assert_eq!(text.lines().collect::<Vec<_>>(), [tagged.as_str(), "{\"task\":\"t\"}", "not json"]);

        let line = vec![b'x'; 1 << 20];
        for _ in 0..9 {
            log.append(attempt, &line);
        }
        let lines = log.snapshot();
        assert!(lines.len() <= limit::JOB_LOG_BYTES_MAX);
        let last = String::from_utf8(lines.split(|b| *b == b'\n').rev().nth(1).unwrap().to_vec()).unwrap();
        assert!(last.contains("6 lines dropped"), "{last}");
    }
}
