//! The way from a running attempt to the owner of its job: messages out, answers to waits back.
//!
//! Promises: messages leave in program order; only answers that could differ from one run to the next take a number
//! from the sequence that a replay has to reproduce.

use std::sync::Arc;

use fanfold_protocol::{
    AttemptId, Code, Error, Kind, PartitionId, TaskId, message::FromExecutor, value::Output,
};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::worker::control::{Answer, Control};

/// What a wait for some partitions answers: positions, ascending, each with its output or failure.
pub type Ready = Vec<(u32, Result<Output, Error>)>;

/// See the module.
#[derive(Debug)]
pub struct Owner {
    attempt: AttemptId,
    events: mpsc::Sender<FromExecutor>,
    control: Arc<Control>,
    /// Number of the last wait: those whose answers are recorded count in the upper half, and the others since the last
    /// of these in the lower one. So numbers always rise, and a recorded one does not depend on how many of the others
    /// there were, which lost partitions and full caches decide.
    wait: u64,
}

/// Distance between the numbers of two recorded waits.
const RECORDED: u64 = 1 << 32;

impl Owner {
    /// For one attempt.
    pub fn new(attempt: AttemptId, events: mpsc::Sender<FromExecutor>, control: Arc<Control>) -> Self {
        Self { attempt, events, control, wait: 0 }
    }

    /// The attempt it speaks for.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Sends a message, waiting while the owner is behind.
    ///
    /// # Errors
    /// [`Kind::Platform`] once the owner is gone.
    pub async fn send(&self, message: FromExecutor) -> Result<(), Error> {
        let Err(full) = self.events.try_send(message) else { return Ok(()) };
        match full {
            TrySendError::Full(message) => self.events.send(message).await.map_err(|_| gone()),
            TrySendError::Closed(_) => Err(gone()),
        }
    }

    /// Sends a message if the owner is not behind; else it comes back.
    pub fn try_send(&self, message: FromExecutor) -> Option<FromExecutor> {
        match self.events.try_send(message) {
            Err(TrySendError::Full(message)) => Some(message),
            Ok(()) | Err(TrySendError::Closed(_)) => None,
        }
    }

    /// Waits until all of `on` are made or failed. The answer has every position.
    ///
    /// # Errors
    /// As [`Owner::send`].
    pub async fn all(&mut self, on: Vec<PartitionId>) -> Result<Ready, Error> {
        let wait = self.unrecorded();
        let count = on.len() as u32;
        self.wait(FromExecutor::Wait { attempt: self.attempt, wait, on, count, timeout_ms: None }, wait).await
    }

    /// Waits until `count` of `on` are made or failed, or `timeout_ms` have passed.
    ///
    /// # Errors
    /// As [`Owner::send`].
    pub async fn some(
        &mut self,
        on: Vec<PartitionId>,
        count: u32,
        timeout_ms: Option<u64>,
    ) -> Result<Ready, Error> {
        self.wait = (self.wait / RECORDED + 1) * RECORDED;
        let wait = self.wait;
        self.wait(FromExecutor::Wait { attempt: self.attempt, wait, on, count, timeout_ms }, wait).await
    }

    fn unrecorded(&mut self) -> u64 {
        self.wait += 1;
        self.wait
    }

    async fn wait(&self, message: FromExecutor, wait: u64) -> Result<Ready, Error> {
        match self.ask(wait, message).await? {
            Answer::Woken(ready) => Ok(ready),
            Answer::Next(_) => Err(mixed_up()),
        }
    }

    /// Waits for output number `output` of a generator; `None` after its last.
    ///
    /// # Errors
    /// As [`Owner::send`], and the generator's failure.
    pub async fn next(&mut self, generator: TaskId, output: u32) -> Result<Option<PartitionId>, Error> {
        // What a generator yields does not depend on when it is asked, so the answer needs no place in the record.
        let wait = self.unrecorded();
        match self.ask(wait, FromExecutor::Next { attempt: self.attempt, wait, generator, output }).await? {
            Answer::Next(result) => result,
            Answer::Woken(_) => Err(mixed_up()),
        }
    }

    async fn ask(&self, wait: u64, message: FromExecutor) -> Result<Answer, Error> {
        let answer = self.control.expect(wait);
        let _blocked = self.control.block();
        self.send(message).await?;
        answer.await.map_err(|_| gone())
    }

    /// Waits until output number `output` of this generator may be yielded.
    pub async fn until_may_yield(&self, output: u32) {
        self.control.until_may_yield(output).await;
    }
}

fn gone() -> Error {
    Error::new(Kind::Platform, Code::Cancelled, "the owner of this job is gone: it goes on under another one")
}

fn mixed_up() -> Error {
    Error::internal("the owner answered a wait with something else")
}
