//! One worker process, as who uses it sees it: requests go in, answers come out in order. The task that owns it is [`super::watch`]'s.

use std::{collections::VecDeque, ffi::OsString, io, os::fd::OwnedFd, process::Stdio};

use bytes::Bytes;
use fanfold_protocol::Error;
use tokio::{
    io::AsyncWriteExt as _,
    net::{UnixStream, unix::OwnedWriteHalf},
    process::{Child, Command},
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::task::TaskTracker;

use super::{
    death::{LastWords, gone},
    kept::Kept,
    watch::{Answered, Budgets, DONE_KEPT_MAX, Status, ToWatcher, Watch},
};
use crate::{
    check::invalid,
    frame::{self, Frames},
    message::{Adapter, Answer, Done, Request},
};

pub(super) use crate::message::REQUESTS_AHEAD;

/// Variables that say where drivers are. Nothing else of our environment is a worker's business: it may hold secrets.
const ENVIRONMENT: [&str; 8] = [
    "LD_LIBRARY_PATH",
    "VK_ICD_FILENAMES",
    "VK_DRIVER_FILES",
    "VK_ADD_DRIVER_FILES",
    "XDG_DATA_DIRS",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "LP_NUM_THREADS",
];

/// A handle to a running worker. Dropping it ends the process.
pub(super) struct Process {
    pub adapter: Adapter,
    /// What it keeps between sessions.
    pub kept: Kept,
    socket: OwnedWriteHalf,
    watcher: mpsc::Sender<ToWatcher>,
    answers: mpsc::Receiver<Answered>,
    status: watch::Receiver<Status>,
    /// Requests that have not been answered.
    ahead: usize,
    /// Whether a request was written in part only: its caller gave up.
    torn: bool,
}

impl Process {
    /// Starts a worker and waits until it has its adapter. The task that watches over it is the tracker's.
    pub async fn start(
        argv: &[OsString],
        memory: u64,
        budgets: Budgets,
        tracker: &TaskTracker,
    ) -> Result<Self, Error> {
        let (ours, theirs) = UnixStream::pair().map_err(|e| unstarted(&e))?;
        let theirs = theirs.into_std().and_then(|socket| {
            socket.set_nonblocking(false)?;
            Ok(OwnedFd::from(socket))
        });
        let mut child = spawn(argv, theirs.map_err(|e| unstarted(&e))?)?;
        let last_words = child.stderr.take();
        let (reading, mut socket) = ours.into_split();
        let start = frame::encode(&Request::Start { memory }, 0).map_err(|e| unstarted(&e))?;
        // Where the worker is gone, reading says so.
        let _ = socket.write_all(&start).await;
        let (watcher, orders) = mpsc::channel(2 * REQUESTS_AHEAD);
        let (answering, answers) = mpsc::channel(2 * REQUESTS_AHEAD);
        let (telling, status) = watch::channel(Status::default());
        let mut watch = Watch {
            child,
            frames: Frames::new(reading),
            last_words: LastWords::new(last_words),
            orders,
            answering,
            telling,
            budgets,
            calls: VecDeque::new(),
            since: Instant::now(),
            idle: None,
        };
        let adapter = watch.ready().await?;
        tracker.spawn(watch.run());
        Ok(Self { adapter, kept: Kept::default(), socket, watcher, answers, status, ahead: 0, torn: false })
    }

    /// Why it has ended, if it has.
    pub fn ended(&self) -> Option<Error> {
        self.status.borrow().ended.clone()
    }

    /// Whether every request has been answered.
    pub fn is_settled(&self) -> bool {
        self.ahead == 0
    }

    /// Says whether there is a session.
    pub async fn set_idle(&mut self, idle: bool) -> Result<(), Error> {
        let sent = self.watcher.send(ToWatcher::Idle(idle)).await;
        if sent.is_err() { Err(self.verdict().await) } else { Ok(()) }
    }

    /// Sends a request, with `data` after it. At most [`REQUESTS_AHEAD`] may be on their way.
    pub async fn send(&mut self, request: &Request, data: &[u8]) -> Result<(), Error> {
        let head = frame::encode(request, data.len()).map_err(|e| invalid(e.to_string()))?;
        let call = ToWatcher::Call {
            name: request.name(),
            compiles: request.compiles(),
            submits: matches!(request, Request::Submit(_)),
        };
        if self.torn {
            return Err(gone());
        }
        self.torn = true;
        self.ahead += 1;
        if self.watcher.send(call).await.is_err() {
            return Err(self.verdict().await);
        }
        let written = async {
            self.socket.write_all(&head).await?;
            self.socket.write_all(data).await
        };
        if written.await.is_err() {
            return Err(self.verdict().await);
        }
        self.torn = false;
        Ok(())
    }

    /// The answer to the oldest request that has none.
    pub async fn receive(&mut self) -> Result<(Answer, Bytes), Error> {
        if self.torn {
            return Err(gone());
        }
        match self.answers.recv().await {
            Some((answer, data)) => {
                self.ahead = self.ahead.saturating_sub(1);
                Ok((answer?, data))
            }
            None => Err(self.verdict().await),
        }
    }

    /// How many requests are on their way.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// Waits for the end of a submission that was answered for; its error is this one's.
    pub async fn done(&mut self, submission: u64) -> Result<Done, Error> {
        let over = |s: &Status| s.ended.is_some() || !s.running.contains(&submission);
        let Ok(status) = self.status.wait_for(over).await else { return Err(gone()) };
        match (status.done.get(&submission), &status.ended) {
            (Some(Done { error: Some(error), .. }), _) => Err(error.clone()),
            (Some(done), _) => Ok(done.clone()),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(invalid(format!(
                "how submission {submission} ended is not known any more: ask before {DONE_KEPT_MAX} further ones have ended"
            ))),
        }
    }

    /// Why the worker has ended; it has, or is about to.
    async fn verdict(&mut self) -> Error {
        match self.status.wait_for(|status| status.ended.is_some()).await {
            Ok(status) => status.ended.clone().unwrap_or_else(gone),
            Err(_) => gone(),
        }
    }
}

fn unstarted(error: &io::Error) -> Error {
    Error::internal(format!("the gpu's process does not start: {error}"))
}

/// In a process group of its own, so that a terminal's interrupt is ours to handle.
fn spawn(argv: &[OsString], socket: OwnedFd) -> Result<Child, Error> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(Error::internal("no command for the gpu's process is set"));
    };
    let environment = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        // Neither has it a home to keep compiled shaders in, nor may it look for one.
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        .env("__GL_SHADER_DISK_CACHE", "0")
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| unstarted(&e))
}
