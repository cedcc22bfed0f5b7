//! The task that owns a worker process: passes its answers on, ends it when something takes too long, and says what its end means.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::pending,
    process::ExitStatus,
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind, limit};
use tokio::{
    net::unix::OwnedReadHalf,
    process::Child,
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::death::{Call, LastWords, died, gone};
use crate::{
    frame::Frames,
    message::{Adapter, Answer, Done, Reply},
};

/// Ends of a session's submissions that are kept for somebody to ask.
pub(super) const DONE_KEPT_MAX: usize = 1024;
/// How long a process that was killed may take to be gone. One that a driver holds in the kernel may never be.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budgets {
    /// A submission, from being handed over to its end.
    pub submission: Duration,
    /// Any call.
    pub call: Duration,
    /// Having no session.
    pub idle: Duration,
}

/// An answer, and the data behind it.
pub(super) type Answered = (Result<Answer, Error>, Bytes);

/// What a watcher is told.
pub(super) enum ToWatcher {
    /// A request is about to be written.
    Call { name: String, compiles: bool, submits: bool },
    /// There is no session from now on, or there is one again.
    Idle(bool),
}

/// What is known of the worker from outside of calls.
#[derive(Default)]
pub(super) struct Status {
    /// Submissions that have not ended.
    pub running: BTreeSet<u64>,
    /// How the last ones ended, at most [`DONE_KEPT_MAX`].
    pub done: BTreeMap<u64, Done>,
    /// Why there is no worker any more.
    pub ended: Option<Error>,
}

/// The task that owns the process.
pub(super) struct Watch {
    pub child: Child,
    pub frames: Frames<OwnedReadHalf>,
    pub last_words: LastWords,
    pub orders: mpsc::Receiver<ToWatcher>,
    pub answering: mpsc::Sender<Answered>,
    pub telling: watch::Sender<Status>,
    pub budgets: Budgets,
    pub calls: VecDeque<Call>,
    /// Since when the device has been at the oldest submission that has not ended.
    pub since: Instant,
    /// When a worker without a session is ended.
    pub idle: Option<Instant>,
}

/// Why a worker is being ended.
enum End {
    /// Nobody holds it any more, or it was idle for long.
    Unwanted,
    /// A submission took too long.
    Submission(u64),
    /// The oldest call took too long.
    Call,
    /// It hung up.
    Gone,
}

impl Watch {
    /// Waits for the first message.
    pub async fn ready(&mut self) -> Result<Adapter, Error> {
        let allowed = Duration::from_millis(limit::GPU_START_MS);
        let first = tokio::time::timeout(allowed, async {
            let reading = self.frames.next::<Reply>();
            tokio::pin!(reading);
            loop {
                tokio::select! {
                    first = &mut reading => return first,
                    () = self.last_words.more() => {}
                }
            }
        });
        match first.await {
            Ok(Ok((Reply::Ready(adapter), _))) => adapter,
            Ok(_) => Err(self.death(None).await),
            Err(_) => {
                let message = format!("the gpu's driver did not start within {} s", allowed.as_secs());
                Err(Error::internal(message))
            }
        }
    }

    /// Watches until the worker has ended.
    pub async fn run(mut self) {
        let error = match self.watch().await {
            End::Unwanted => gone(),
            End::Submission(number) => {
                let seconds = self.budgets.submission.as_secs_f64();
                let message = format!(
                    "submission {number} took over {seconds} s: the gpu's process was ended, and its buffers are gone"
                );
                // On a machine that is less busy it may end in time.
                Error::new(Kind::Limit, Code::GpuTime, message).retryable(true)
            }
            End::Call => {
                let (name, compiles) =
                    self.calls.pop_front().map_or(("a call".into(), false), |c| (c.name, c.compiles));
                let seconds = self.budgets.call.as_secs_f64();
                let code = if compiles { Code::Shader } else { Code::GpuTime };
                let message = format!("{name} took over {seconds} s: the gpu's process was ended");
                Error::new(Kind::Limit, code, message).retryable(!compiles)
            }
            End::Gone => {
                let call = self.calls.pop_front();
                self.death(call).await
            }
        };
        if error != gone() {
            tracing::warn!(%error, "a gpu process ended");
        }
        // Said before the process is gone, which may take long: nobody shall wait for it, or be given it.
        self.telling.send_modify(|status| status.ended = Some(error));
        drop(self.answering);
        bury(&mut self.child).await;
    }

    /// Goes on until the worker has to end, or has.
    async fn watch(&mut self) -> End {
        loop {
            let deadline = self.deadline();
            let until = deadline.as_ref().map(|(at, _)| *at);
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(order) => self.order(order),
                    None => return End::Unwanted,
                },
                reply = self.frames.next::<Reply>() => match reply {
                    Ok((reply, data)) => if !self.reply(reply, data).await { return End::Gone },
                    Err(_) => return End::Gone,
                },
                () = passed(until) => if let Some((_, end)) = deadline { return end },
                () = self.last_words.more() => {}
            }
        }
    }

    /// What must have happened first, and until when.
    fn deadline(&self) -> Option<(Instant, End)> {
        let call = self.calls.front();
        // A worker that compiles does not look after submissions. It tells of those that have ended before it answers.
        let compiling = call.is_some_and(|call| call.compiles);
        let call = call.map(|call| (call.until, End::Call));
        let oldest = self.telling.borrow().running.first().copied().filter(|_| !compiling);
        let submission = oldest.map(|number| (self.since + self.budgets.submission, End::Submission(number)));
        let idle = self.idle.map(|until| (until, End::Unwanted));
        [call, submission, idle].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn order(&mut self, order: ToWatcher) {
        match order {
            ToWatcher::Call { name, compiles, submits } => {
                // A read waits for what was submitted before.
                let running = self.telling.borrow().running.len() as u32;
                let until = Instant::now() + self.budgets.call + self.budgets.submission * running;
                self.calls.push_back(Call { name, compiles, submits, until });
            }
            ToWatcher::Idle(idle) => {
                self.idle = idle.then(|| Instant::now() + self.budgets.idle);
                // Nobody is left to ask.
                self.telling.send_modify(|status| status.done.clear());
            }
        }
    }

    /// Whether it made sense.
    async fn reply(&mut self, reply: Reply, data: Bytes) -> bool {
        match reply {
            Reply::Ready(_) => false,
            Reply::Answer(answer) => {
                // What it answers was announced before it was sent.
                while let Ok(order) = self.orders.try_recv() {
                    self.order(order);
                }
                let Some(call) = self.calls.pop_front() else { return false };
                if let (true, Ok(Answer::Submission(number))) = (call.submits, &answer) {
                    self.begun(*number);
                }
                self.answering.send((answer, data)).await.is_ok()
            }
            Reply::Done(done) => {
                self.since = Instant::now();
                self.telling.send_modify(|status| {
                    status.running.remove(&done.submission);
                    status.done.insert(done.submission, done);
                    if status.done.len() > DONE_KEPT_MAX {
                        status.done.pop_first();
                    }
                });
                true
            }
        }
    }

    fn begun(&mut self, submission: u64) {
        if self.telling.borrow().running.is_empty() {
            self.since = Instant::now();
        }
        self.telling.send_modify(|status| {
            status.running.insert(submission);
        });
    }

    /// What it means that the worker is gone, or talks nonsense.
    async fn death(&mut self, call: Option<Call>) -> Error {
        // One that talks nonsense is alive, and what it has started may be, too.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await;
        let status = bury(&mut self.child).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), self.last_words.rest()).await;
        status.map_or_else(gone, |status| died(status, call, &self.last_words.shown()))
    }
}

/// Ends a process. How it ended, unless that takes too long: then the system is left to clear it away, should it ever end.
async fn bury(child: &mut Child) -> Option<ExitStatus> {
    // An error means that it is gone already.
    let _ = child.start_kill();
    let status = tokio::time::timeout(ENDING_MAX, child.wait()).await;
    match status {
        Ok(status) => status.ok(),
        Err(_) => {
            tracing::error!(process = child.id(), "a gpu process does not end although it was killed");
            None
        }
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::UnixStream, process::Command, time::advance};

    use super::*;

    const SUBMISSION: Duration = Duration::from_secs(10);
    const CALL: Duration = Duration::from_secs(60);

    /// Of a process that is not asked for anything: what it says is handed to the watcher.
    fn watch() -> (Watch, mpsc::Receiver<Answered>, mpsc::Sender<ToWatcher>) {
        let (reading, _) = UnixStream::pair().expect("sockets").0.into_split();
        let (answering, answers) = mpsc::channel(8);
        let (watcher, orders) = mpsc::channel(8);
        let watch = Watch {
            child: Command::new("true").spawn().expect("a process"),
            frames: Frames::new(reading),
            last_words: LastWords::new(None),
            orders,
            answering,
            telling: watch::Sender::default(),
            budgets: Budgets { submission: SUBMISSION, call: CALL, idle: CALL },
            calls: VecDeque::new(),
            since: Instant::now(),
            idle: None,
        };
        (watch, answers, watcher)
    }

    impl Watch {
        fn begin(&mut self, compiles: bool, submits: bool) {
            self.order(ToWatcher::Call { name: "a call".into(), compiles, submits });
        }

        async fn submit(&mut self, number: u64) {
            self.begin(false, true);
            assert!(self.reply(Reply::Answer(Ok(Answer::Submission(number))), Bytes::new()).await);
        }

        async fn done(&mut self, submission: u64) {
            let done = Done { submission, timestamps: Vec::new(), error: None };
            assert!(self.reply(Reply::Done(done), Bytes::new()).await);
        }

        /// How long until which submission has to have ended, if one is what has to happen first.
        fn submission_due(&self) -> Option<(u64, Duration)> {
            match self.deadline()? {
                (at, End::Submission(number)) => Some((number, at.saturating_duration_since(Instant::now()))),
                _ => None,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_submission_has_its_time_from_the_end_of_the_one_before() {
        let (mut watch, _answers, _watcher) = watch();
        watch.submit(1).await;
        advance(SUBMISSION / 2).await;
        watch.submit(2).await;
        assert_eq!(watch.submission_due(), Some((1, SUBMISSION / 2)));
        // A read waits for both. It does not end the worker for what none of them did.
        watch.begin(false, false);
        watch.done(1).await;
        advance(SUBMISSION - Duration::from_secs(1)).await;
        assert_eq!(watch.submission_due(), Some((2, Duration::from_secs(1))));
        watch.done(2).await;
        assert_eq!(watch.submission_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_submission_is_late_while_its_worker_compiles() {
        let (mut watch, _answers, _watcher) = watch();
        watch.submit(1).await;
        watch.submit(2).await;
        watch.begin(true, false);
        advance(SUBMISSION * 2).await;
        assert!(matches!(watch.deadline(), Some((_, End::Call))));
        // What ended meanwhile is told of now; the other one begins to count.
        watch.done(1).await;
        assert!(watch.reply(Reply::Answer(Ok(Answer::Nothing)), Bytes::new()).await);
        assert_eq!(watch.submission_due(), Some((2, SUBMISSION)));
        // One that has not ended is late as soon as that can be said.
        watch.begin(true, false);
        advance(SUBMISSION * 2).await;
        assert!(watch.reply(Reply::Answer(Ok(Answer::Nothing)), Bytes::new()).await);
        assert_eq!(watch.submission_due(), Some((2, Duration::ZERO)));
    }
}
