//! An owner without a scheduler: it runs every task at once, answers every wait as soon as it can, and commits what
//! comes first.

use std::{collections::HashMap, sync::Arc};

use fanfold_executor::Session;
use fanfold_protocol::{
    AttemptId, Error, PartitionId,
    message::{Argument, Assignment, FromExecutor, Spent, ToExecutor, Usage},
    value::{Output, StoredKey, Value},
};
use tokio::sync::mpsc;

/// An attempt's end.
#[derive(Debug)]
pub struct End {
    pub attempt: AttemptId,
    pub result: Result<Vec<Output>, Error>,
    pub usage: Usage,
    pub spent: Spent,
    pub logs: bytes::Bytes,
}

/// An open wait.
struct Wait {
    number: u64,
    on: Vec<PartitionId>,
    /// How many more have to be made.
    missing: usize,
}

pub struct Owner {
    session: Arc<Session>,
    events: mpsc::Receiver<FromExecutor>,
    made: HashMap<PartitionId, Result<Output, Error>>,
    running: HashMap<AttemptId, Assignment>,
    waits: HashMap<AttemptId, Wait>,
    /// Who waits for a partition that is not made yet.
    awaited: HashMap<PartitionId, Vec<AttemptId>>,
    /// Everything that was said, if it is kept.
    pub heard: Option<Vec<FromExecutor>>,
}

impl Owner {
    pub fn new(session: Arc<Session>, events: mpsc::Receiver<FromExecutor>) -> Self {
        let (made, running, waits, awaited) = Default::default();
        Self { session, events, made, running, waits, awaited, heard: None }
    }

    /// Runs a task and all that it calls to its end.
    pub async fn run(&mut self, assignment: Assignment) -> End {
        let root = assignment.attempt;
        self.assign(assignment).await;
        let mut batch = Vec::new();
        loop {
            self.events.recv_many(&mut batch, 256).await;
            for message in batch.drain(..) {
                if let Some(heard) = &mut self.heard {
                    heard.push(message.clone());
                }
                if let Some(end) = self.hear(message).await.filter(|end| end.attempt == root) {
                    return end;
                }
            }
        }
    }

    /// Frees a partition.
    pub async fn free(&self, key: StoredKey) {
        self.session.send(ToExecutor::Free(vec![key])).unwrap();
    }

    async fn assign(&mut self, assignment: Assignment) {
        self.running.insert(assignment.attempt, assignment.clone());
        self.session.send(ToExecutor::Run(Box::new(assignment))).unwrap();
    }

    async fn hear(&mut self, message: FromExecutor) -> Option<End> {
        match message {
            FromExecutor::Submit { attempt, index, call } => {
                let driver = &self.running[&attempt];
                let task = attempt.task.child(index);
                let output = |value: &Value| value.needs().map(|id| self.made[&id].clone().unwrap());
                let args = call.args.into_iter().map(|value| Argument { output: output(&value), value });
                let assignment = Assignment {
                    attempt: AttemptId { task, ..attempt },
                    entry: call.entry,
                    args: args.collect(),
                    outputs: call.outputs,
                    generator: call.generator,
                    durability: call.options.durability,
                    ..driver.clone()
                };
                self.assign(assignment).await;
            }
            FromExecutor::Wait { attempt, wait, on, count, .. } => self.wait(attempt, wait, on, count).await,
            FromExecutor::Put { attempt, output, value } | FromExecutor::Yield { attempt, output, value } => {
                self.made.insert(PartitionId { task: attempt.task, output }, Ok(value));
            }
            FromExecutor::Drop { futures, .. } => {
                for id in futures {
                    if let Some(Ok(Output::Stored(stored))) = self.made.remove(&id) {
                        self.session.send(ToExecutor::Free(vec![stored.key])).unwrap();
                    }
                }
            }
            FromExecutor::Finished { attempt, result, usage, spent, logs } => {
                self.running.remove(&attempt).unwrap();
                self.commit(attempt, &result).await;
                return Some(End { attempt, result, usage, spent, logs });
            }
            FromExecutor::Next { .. }
            | FromExecutor::Cancel { .. }
            | FromExecutor::Lost { .. }
            | FromExecutor::Durable(_)
            | FromExecutor::Spent { .. }
            | FromExecutor::Status { .. }
            | FromExecutor::Logs { .. }
            | FromExecutor::Wrote { .. }
            | FromExecutor::Offer(_)
            | FromExecutor::Leaving
            | FromExecutor::Left => {}
        }
        None
    }

    async fn commit(&mut self, attempt: AttemptId, result: &Result<Vec<Output>, Error>) {
        let results = match result {
            Ok(outputs) => outputs.iter().map(|output| Ok(self.resolved(output.clone()))).collect(),
            Err(error) => vec![Err(error.clone())],
        };
        for (output, result) in results.into_iter().enumerate() {
            let id = PartitionId { task: attempt.task, output: output as u32 };
            self.made.insert(id, result);
            for waiter in self.awaited.remove(&id).unwrap_or_default() {
                let Some(wait) = self.waits.get_mut(&waiter) else { continue };
                wait.missing = wait.missing.saturating_sub(1);
                if wait.missing == 0 {
                    self.answer(waiter).await;
                }
            }
        }
    }

    /// Follows one alias, which is as far as the guests here go.
    fn resolved(&self, output: Output) -> Output {
        match &output {
            Output::Alias(value) => match value.needs().and_then(|id| self.made.get(&id)) {
                Some(Ok(other)) => other.clone(),
                _ => output,
            },
            _ => output,
        }
    }

    async fn wait(&mut self, attempt: AttemptId, number: u64, on: Vec<PartitionId>, count: u32) {
        let mut missing = count as usize;
        for id in &on {
            if self.made.contains_key(id) {
                missing = missing.saturating_sub(1);
            } else {
                self.awaited.entry(*id).or_default().push(attempt);
            }
        }
        self.waits.insert(attempt, Wait { number, on, missing });
        if missing == 0 {
            self.answer(attempt).await;
        }
    }

    async fn answer(&mut self, attempt: AttemptId) {
        let Some(Wait { number, on, .. }) = self.waits.remove(&attempt) else { return };
        let ready = |(n, id): (usize, &PartitionId)| Some((n as u32, self.made.get(id)?.clone()));
        let ready = on.iter().enumerate().filter_map(ready).collect();
        self.session.send(ToExecutor::Woken { attempt, wait: number, ready }).unwrap();
    }
}
