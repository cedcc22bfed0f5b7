//! From calls and manifests to task specifications.
//!
//! The root's one argument is the invocation's input, inline whatever its size: an input is at most 8 MiB, is in the
//! owner's memory anyway when the task starts, and is shared, not copied, on its way to an executor in the same
//! process. A guest reads it with `data.open` like any value. (A large input of a recorded job is an object of its own
//! in the store until then, never a journal entry.)

use fanfold_protocol::{
    Code, Error, Kind, TaskId,
    call::{Call, Durability, TaskSpec, Terms},
    custom::custom_fault,
    function::FunctionVersion,
    limit,
    record::Accepted,
    value::{Payload, Value},
};

use super::live::retry;

/// Attempts that a call may ask for: more would be a loop.
const ATTEMPTS_MAX: u32 = 1000;
/// Least memory of an attempt, as for a manifest.
const MEMORY_MIN: u64 = 1 << 16;

/// The root task of a job. Its outputs are made durable before it commits, so that they can be read after a restart
/// (of a recorded job) and by the gateway (of any job).
pub(super) fn root(
    accepted: &Accepted,
    function: &FunctionVersion,
    input: Payload,
    recorded: bool,
) -> TaskSpec {
    let retry = retry(accepted, function);
    let terms = Terms {
        entry: accepted.entry.clone(),
        outputs: 1,
        // A synchronous call runs at most once.
        attempts: if recorded { retry.attempts } else { 1 },
        backoff_ms: retry.backoff,
        deadline_at_ms: recorded.then(|| accepted.at_ms.saturating_add(retry.max_age)),
        durability: Durability::Eager,
        ..of_manifest(function)
    };
    TaskSpec { id: TaskId::root(accepted.job), parent: None, args: vec![Value::Inline(input)], terms }
}

/// The task that a driver called, once its function is known.
///
/// # Errors
/// `invalid` / `call` for options out of bounds.
pub(super) fn child(
    parent: TaskId,
    task: TaskId,
    call: Call,
    function: &FunctionVersion,
    now_ms: u64,
) -> Result<TaskSpec, Error> {
    check(&call)?;
    let base = of_manifest(function);
    let options = call.options;
    check_memo(options.memo, call.generator, function)?;
    // What answers other calls is copied in the object store.
    let durability = if options.memo { Durability::Eager } else { options.durability };
    let memory = options.memory.unwrap_or(base.memory);
    let terms = Terms {
        entry: call.entry,
        outputs: call.outputs,
        generator: call.generator,
        cpu_millis: options.cpu_millis.unwrap_or(base.cpu_millis),
        memory,
        memory_max: base.memory_max.max(memory),
        gpu: options.gpu.unwrap_or(base.gpu),
        custom: base.custom.into_iter().chain(options.custom).collect(),
        placement: options.placement,
        attempts: options.attempts.unwrap_or(base.attempts),
        deadline_at_ms: options.deadline_ms.map(|after| now_ms.saturating_add(after)),
        durability,
        memo: options.memo,
        ..base
    };
    Ok(TaskSpec { id: task, parent: Some(parent), args: call.args, terms })
}

fn check_memo(memo: bool, generator: bool, function: &FunctionVersion) -> Result<(), Error> {
    let why = match (memo, generator, function.deterministic()) {
        (true, true, _) => String::from("a generator cannot be memoised: call it without `memo`"),
        (true, _, false) => format!(
            "`{}` is not deterministic, so another run's outputs will not do: call it without `memo`",
            function.name
        ),
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Invalid, Code::Call, why))
}

fn of_manifest(function: &FunctionVersion) -> Terms {
    let manifest = &function.manifest;
    let resources = &manifest.resources;
    Terms {
        version: function.version,
        entry: String::new(),
        outputs: 0,
        generator: false,
        // The manifest was checked: above 0 and at most 1024 cpus.
        cpu_millis: ((resources.cpu * 1000.0).round() as u32).max(1),
        memory: resources.memory,
        memory_max: resources.memory_max.unwrap_or(resources.memory),
        gpu: resources.gpu,
        custom: resources.custom.clone(),
        placement: fanfold_protocol::call::Placement::default(),
        attempts: manifest.retry.attempts,
        backoff_ms: manifest.retry.backoff,
        timeout_ms: manifest.timeout,
        deadline_at_ms: None,
        deterministic: function.deterministic(),
        durability: Durability::default(),
        memo: false,
    }
}

fn check(call: &Call) -> Result<(), Error> {
    let options = &call.options;
    let fault = custom_fault(&options.custom);
    let inline: usize = call.args.iter().map(inline_bytes).sum();
    let inline_max = call.args.iter().map(inline_bytes).max().unwrap_or(0);
    let why = if call.outputs > limit::OUTPUTS_MAX {
        format!("{} outputs: a call may ask for {}; use blocks for more", call.outputs, limit::OUTPUTS_MAX)
    } else if call.args.len() > limit::CALL_ARGS_MAX {
        let max = limit::CALL_ARGS_MAX;
        format!("{} arguments: a call may have {max}; put more into a partition", call.args.len())
    } else if inline > limit::CALL_BYTES_MAX {
        let max = limit::CALL_BYTES_MAX;
        format!("{inline} bytes of arguments: at most {max} travel with a call; `put` some of them")
    } else if inline_max > limit::INLINE_BYTES_MAX {
        format!(
            "an argument of {inline_max} bytes: at most {} travel inline; `put` it",
            limit::INLINE_BYTES_MAX
        )
    } else if options.attempts.is_some_and(|n| !(1..=ATTEMPTS_MAX).contains(&n)) {
        format!("attempts out of bounds: ask for 1 to {ATTEMPTS_MAX}")
    } else if options.cpu_millis == Some(0) {
        String::from("no cpu: ask for at least one thousandth")
    } else if options.memory.is_some_and(|bytes| bytes < MEMORY_MIN) {
        format!("too little memory: ask for at least {MEMORY_MIN} bytes")
    } else if let Some(why) = fault {
        why
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Invalid, Code::Call, why))
}

fn inline_bytes(value: &Value) -> usize {
    match value {
        Value::Inline(payload) => payload.bytes.len(),
        Value::Partition(_) | Value::Blocks { .. } | Value::Object(_) => 0,
    }
}
