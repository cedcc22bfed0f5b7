//! Calls and tasks: what a driver asks for and what the scheduler places.

use serde::{Deserialize, Serialize};

use crate::{Digest, ExecutorId, PartitionId, TaskId, custom::Custom, value::Value};

/// What a driver asks for with `submit` or `generate`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// `name`, `name:alias` or `name:version`; `None`: the caller's own component and version.
    pub function: Option<String>,
    /// Which entry of the component; empty: its main one.
    pub entry: String,
    /// Arguments, in order.
    pub args: Vec<Value>,
    /// Outputs the task must return. For a generator, the number is open and this is 0.
    pub outputs: u32,
    /// Whether outputs appear one by one while it runs.
    pub generator: bool,
    /// Everything else.
    pub options: Options,
}

/// Wishes that differ from the function's manifest. `None`: what the manifest says.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// Slots, in thousandths of a cpu.
    pub cpu_millis: Option<u32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// GPUs.
    pub gpu: Option<u32>,
    /// Custom resources: these amounts instead of the manifest's of the same name.
    pub custom: Custom,
    /// Where to run.
    pub placement: Placement,
    /// Attempts in all.
    pub attempts: Option<u32>,
    /// Milliseconds from submission after which the task fails with `deadline`.
    pub deadline_ms: Option<u64>,
    /// When outputs go to the object store.
    pub durability: Durability,
    /// Whether the outputs of an equal call that committed before will do: what it returns follows from its arguments.
    #[serde(default)]
    pub memo: bool,
}

/// Where a task would like to run. A hint, except [`Placement::On`] with `strict`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Placement {
    /// Where most bytes of its arguments are.
    #[default]
    Local,
    /// On the executor with the most room.
    Spread,
    /// Where this partition is.
    Near(PartitionId),
    /// On this executor.
    On {
        /// Which.
        executor: ExecutorId,
        /// Wait for it rather than run elsewhere.
        strict: bool,
    },
}

/// When an output goes to the object store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// After the commit, when there is time or memory is short.
    #[default]
    Lazy,
    /// Before the commit.
    Eager,
    /// Never; a lost output is made again.
    None,
}

/// A task as the scheduler knows it: a call whose function has been resolved.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskSpec {
    /// The task.
    pub id: TaskId,
    /// The driver that called it; `None`: the root.
    pub parent: Option<TaskId>,
    /// Arguments.
    pub args: Vec<Value>,
    /// All else.
    pub terms: Terms,
}

/// What runs and how, whatever the arguments: most calls of a driver have the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Terms {
    /// Digest of the function version that runs it.
    pub version: Digest,
    /// Which entry.
    pub entry: String,
    /// Declared outputs (0 for a generator).
    pub outputs: u32,
    /// Whether it is a generator.
    pub generator: bool,
    /// Slots, in thousandths of a cpu.
    pub cpu_millis: u32,
    /// Bytes of memory of an attempt.
    pub memory: u64,
    /// Ceiling to which memory is doubled after an `out-of-memory` attempt.
    pub memory_max: u64,
    /// GPUs.
    pub gpu: u32,
    /// Custom resources.
    pub custom: Custom,
    /// Where to run.
    pub placement: Placement,
    /// Attempts in all.
    pub attempts: u32,
    /// Delay before the second attempt, doubled for each further one.
    pub backoff_ms: u64,
    /// Wall time of one attempt.
    pub timeout_ms: u64,
    /// Time (on the scheduler's clock) after which the task fails with `deadline`.
    pub deadline_at_ms: Option<u64>,
    /// Whether it may be run again after it committed (to recompute a lost output).
    pub deterministic: bool,
    /// When outputs go to the object store.
    pub durability: Durability,
    /// Whether the outputs of an equal task that committed before will do.
    pub memo: bool,
}

impl Terms {
    /// What must be equal when a replayed driver makes the call again; compared with the recorded one.
    pub fn fingerprint(&self, args: &[Value]) -> Digest {
        let identity = (self.version, &self.entry, args, self.outputs, self.generator);
        Digest::of(&rmp_serde::to_vec(&identity).unwrap_or_default())
    }
}
