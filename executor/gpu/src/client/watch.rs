//! The task that owns a worker process: passes its answers on, ends it when something takes too long, and says what its end means.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::pending,
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

/// Ends of submissions that are kept for somebody to ask; of an older one only is known that it ended.
const DONE_KEPT_MAX: usize = 1024;

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
    /// A call took too long.
    Call(String, bool),
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
            End::Call(name, compiles) => {
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
        // An error means that it is gone already.
        let _ = self.child.start_kill();
        let _ = self.child.wait().await;
        self.telling.send_modify(|status| status.ended = Some(error));
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
        let call = self.calls.front().map(|call| (call.until, End::Call(call.name.clone(), call.compiles)));
        let oldest = self.telling.borrow().running.first().copied();
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
            ToWatcher::Idle(idle) => self.idle = idle.then(|| Instant::now() + self.budgets.idle),
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
        let _ = self.child.start_kill();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.last_words.rest()).await;
        let status = self.child.wait().await;
        let words = self.last_words.shown();
        match status {
            Ok(status) => died(status, call, &words),
            Err(error) => Error::internal(format!("the gpu's process is lost: {error}")),
        }
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}
