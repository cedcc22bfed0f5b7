//! An owner without a scheduler: it runs every task at once, answers every wait as soon as it can, and commits what
//! comes first.

use std::collections::HashMap;

use fanfold_executor::Executor;
use fanfold_protocol::{
    AttemptId, Error, PartitionId,
    message::{Argument, Assignment, FromExecutor, ToExecutor, Usage},
    value::{Output, StoredKey, Value},
};
use futures::FutureExt as _;
use tokio::sync::mpsc;

/// An attempt's end.
#[derive(Debug)]
pub struct End {
    pub attempt: AttemptId,
    pub result: Result<Vec<Output>, Error>,
    pub usage: Usage,
    pub logs: bytes::Bytes,
}

pub struct Owner {
    executor: Executor,
    events: mpsc::Receiver<FromExecutor>,
    made: HashMap<PartitionId, Result<Output, Error>>,
    running: HashMap<AttemptId, Assignment>,
    /// Open waits: who, which number, for what, and for how many.
    waits: Vec<(AttemptId, u64, Vec<PartitionId>, u32)>,
    /// Everything that was said, if it is kept.
    pub heard: Option<Vec<FromExecutor>>,
}

impl Owner {
    pub fn new(executor: Executor, events: mpsc::Receiver<FromExecutor>) -> Self {
        let (made, running) = (HashMap::new(), HashMap::new());
        Self { executor, events, made, running, waits: Vec::new(), heard: None }
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
        self.executor.send(ToExecutor::Free(vec![key])).await.unwrap();
    }

    async fn assign(&mut self, assignment: Assignment) {
        self.running.insert(assignment.attempt, assignment.clone());
        self.executor.send(ToExecutor::Run(Box::new(assignment))).await.unwrap();
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
            FromExecutor::Wait { attempt, wait, on, count, .. } => {
                self.waits.push((attempt, wait, on, count));
                self.answer().await;
            }
            FromExecutor::Put { attempt, output, value } | FromExecutor::Yield { attempt, output, value } => {
                self.made.insert(PartitionId { task: attempt.task, output }, Ok(value));
            }
            FromExecutor::Drop { futures, .. } => {
                for id in futures {
                    if let Some(Ok(Output::Stored(stored))) = self.made.remove(&id) {
                        self.executor.send(ToExecutor::Free(vec![stored.key])).await.unwrap();
                    }
                }
            }
            FromExecutor::Finished { attempt, result, usage, logs } => {
                self.running.remove(&attempt).unwrap();
                self.commit(attempt, &result);
                self.answer().await;
                return Some(End { attempt, result, usage, logs });
            }
            FromExecutor::Next { .. }
            | FromExecutor::Cancel { .. }
            | FromExecutor::Lost { .. }
            | FromExecutor::Durable(_) => {}
        }
        None
    }

    fn commit(&mut self, attempt: AttemptId, result: &Result<Vec<Output>, Error>) {
        let id = |output: usize| PartitionId { task: attempt.task, output: output as u32 };
        match result {
            Ok(outputs) => {
                for (number, output) in outputs.iter().enumerate() {
                    let output = self.resolved(output.clone());
                    self.made.insert(id(number), Ok(output));
                }
            }
            Err(error) => drop(self.made.insert(id(0), Err(error.clone()))),
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

    async fn answer(&mut self) {
        let mut open = std::mem::take(&mut self.waits);
        open.retain(|(attempt, wait, on, count)| {
            let ready = |(n, id): (usize, &PartitionId)| Some((n as u32, self.made.get(id)?.clone()));
            // Most waits are looked at long before they can be answered.
            if on.iter().filter(|id| self.made.contains_key(id)).count() < *count as usize {
                return true;
            }
            let ready = on.iter().enumerate().filter_map(ready).collect();
            let woken = ToExecutor::Woken { attempt: *attempt, wait: *wait, ready };
            // An executor takes a message without waiting.
            self.executor.send(woken).now_or_never().unwrap().unwrap();
            false
        });
        self.waits = open;
    }
}
