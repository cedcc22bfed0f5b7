//! What is in the mirror, as far as this process has written it, and the commands that change it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::{JobId, TaskId, limit};
use redis::Pipeline;
use tokio::time::Instant;

use super::Change;

const KEPT: Duration = Duration::from_millis(limit::MIRROR_KEPT_MS);
/// About how many bytes a key or field takes beside its value.
const OVERHEAD: u64 = 100;

/// Names of keys. Those of one job have one hash tag, so that a cluster of Redis keeps them together.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    namespace: String,
}

impl Keys {
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned() }
    }

    pub(super) fn job(&self, job: JobId) -> String {
        format!("ff:{{{}:{job}}}:job", self.namespace)
    }

    pub(super) fn tasks(&self, job: JobId) -> String {
        format!("ff:{{{}:{job}}}:tasks", self.namespace)
    }
}

#[derive(Debug)]
pub(super) struct Book {
    keys: Keys,
    jobs: HashMap<JobId, Entry>,
    /// Jobs in the order in which they were first written, with those that are gone since.
    order: VecDeque<(JobId, Instant)>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Entry {
    since: Option<Instant>,
    fields: BTreeMap<&'static str, u64>,
    tasks: u64,
    task_bytes: u64,
}

impl Entry {
    fn bytes(&self) -> u64 {
        OVERHEAD + self.fields.values().sum::<u64>() + self.task_bytes
    }
}

/// What a batch comes to for one job.
#[derive(Default)]
struct News {
    gone: bool,
    no_tasks: bool,
    fields: BTreeMap<&'static str, Bytes>,
    tasks: Vec<(TaskId, Bytes)>,
}

impl Book {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, jobs: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// The commands for a batch.
    pub(super) fn write(&mut self, batch: Vec<Change>, now: Instant) -> Pipeline {
        let mut pipeline = redis::pipe();
        for (job, news) in digest(batch) {
            if news.gone {
                self.remove(job, &mut pipeline);
            }
            if news.no_tasks {
                self.remove_tasks(job, &mut pipeline);
            }
            self.put(job, news, now, &mut pipeline);
        }
        self.make_room(now, &mut pipeline);
        pipeline
    }

    fn put(&mut self, job: JobId, news: News, now: Instant, pipeline: &mut Pipeline) {
        if news.fields.is_empty() && news.tasks.is_empty() {
            return;
        }
        let entry = self.jobs.entry(job).or_default();
        let before = entry.since.map_or(0, |_| entry.bytes());
        if entry.since.is_none() {
            entry.since = Some(now);
            self.order.push_back((job, now));
        }
        if !news.fields.is_empty() {
            let mut set = redis::cmd("HSET");
            set.arg(self.keys.job(job));
            for (field, value) in &news.fields {
                set.arg(field).arg(value.as_ref());
                entry.fields.insert(field, OVERHEAD + value.len() as u64);
            }
            pipeline.add_command(set).ignore();
            pipeline.pexpire(self.keys.job(job), limit::MIRROR_KEPT_MS as i64).ignore();
        }
        let room = limit::MIRROR_TASKS_MAX.saturating_sub(entry.tasks) as usize;
        if !news.tasks.is_empty() && room > 0 {
            let mut set = redis::cmd("HSET");
            set.arg(self.keys.tasks(job));
            for (task, value) in news.tasks.iter().take(room) {
                set.arg(&task.0[..]).arg(value.as_ref());
                entry.tasks += 1;
                entry.task_bytes += OVERHEAD + value.len() as u64;
            }
            pipeline.add_command(set).ignore();
            pipeline.pexpire(self.keys.tasks(job), limit::MIRROR_KEPT_MS as i64).ignore();
        }
        self.bytes = self.bytes + entry.bytes() - before;
    }

    fn remove(&mut self, job: JobId, pipeline: &mut Pipeline) {
        if let Some(entry) = self.jobs.remove(&job) {
            self.bytes -= entry.bytes();
        }
        // Also where nothing is known of it: an earlier process may have written it.
        pipeline.unlink(&[self.keys.job(job), self.keys.tasks(job)][..]).ignore();
    }

    fn remove_tasks(&mut self, job: JobId, pipeline: &mut Pipeline) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            self.bytes -= std::mem::take(&mut entry.task_bytes);
            entry.tasks = 0;
        }
        pipeline.unlink(self.keys.tasks(job)).ignore();
    }

    /// Forgets what has expired, and removes the oldest jobs beyond the bound. What is written to for longer than it lives
    /// unwritten is at the front in time, and then removed early: its next change writes it anew.
    fn make_room(&mut self, now: Instant, pipeline: &mut Pipeline) {
        while let Some((job, since)) = self.order.front().copied() {
            let known = self.jobs.get(&job).is_some_and(|entry| entry.since == Some(since));
            let expired = now.duration_since(since) >= KEPT;
            if known && !expired && self.bytes <= limit::MIRROR_BYTES_MAX {
                return;
            }
            self.order.pop_front();
            if known {
                self.remove(job, pipeline);
            }
        }
    }
}

/// A batch by job, each thing once: what was told last.
fn digest(batch: Vec<Change>) -> BTreeMap<JobId, News> {
    let mut jobs: BTreeMap<JobId, News> = BTreeMap::new();
    for change in batch {
        match change {
            Change::Field { job, field, value } => {
                jobs.entry(job).or_default().fields.insert(field, value);
            }
            Change::Task { job, task, value } => jobs.entry(job).or_default().tasks.push((task, value)),
            Change::NoTasks(job) => {
                let news = jobs.entry(job).or_default();
                (news.no_tasks, news.tasks) = (true, Vec::new());
            }
            Change::Gone(job) => {
                jobs.insert(job, News { gone: true, ..News::default() });
            }
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(n: u64) -> JobId {
        JobId(uuid::Uuid::from_u128(u128::from(n)))
    }

    fn field(n: u64, bytes: usize) -> Change {
        Change::Field { job: job(n), field: "view", value: vec![0; bytes].into() }
    }

    fn task(n: u64, index: u8) -> Change {
        Change::Task { job: job(n), task: TaskId([index; 16]), value: Bytes::from_static(b"task") }
    }

    #[test]
    fn what_is_written_is_counted_once_and_bounded() {
        let mut book = Book::new(Keys::new("n"));
        let now = Instant::now();
        book.write(vec![field(1, 1000)], now);
        let once = book.bytes;
        book.write(vec![field(1, 1000), task(1, 1), Change::NoTasks(job(1))], now);
        assert_eq!(book.bytes, once);
        let most = limit::MIRROR_BYTES_MAX / (1 << 20);
        for n in 2..=most + 10 {
            book.write(vec![field(n, 1 << 20)], now);
            assert!(book.bytes <= limit::MIRROR_BYTES_MAX);
        }
        assert!(!book.jobs.contains_key(&job(1)) && book.jobs.contains_key(&job(most + 10)));
        book.write(vec![Change::Gone(job(most + 10))], now);
        assert!(!book.jobs.contains_key(&job(most + 10)));
        book.write(Vec::new(), now + KEPT);
        assert_eq!((book.bytes, book.order.len()), (0, 0), "all has expired");
    }

    #[test]
    fn a_batch_comes_to_few_commands() {
        let mut book = Book::new(Keys::new("n"));
        let mut batch: Vec<Change> = (0..100).map(|n| task(7, n)).collect();
        batch.extend([field(7, 10), field(7, 20)]);
        let pipeline = book.write(batch, Instant::now());
        // Two HSET, two PEXPIRE.
        assert_eq!(pipeline.len(), 4);
        let gone = book.write(vec![field(7, 10), Change::Gone(job(7))], Instant::now());
        assert_eq!(gone.len(), 1, "what is gone need not be written first");
    }
}
