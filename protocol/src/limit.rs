//! Every bound in the platform, with the reason for its size.

/// Characters in a function, alias or trigger name: one DNS label.
pub const NAME_LEN_MAX: usize = 63;
/// Bytes of an uploaded component. Python and JavaScript components are 12 to 18 MB; compile time grows with size.
pub const COMPONENT_BYTES_MAX: u64 = 50 << 20;
/// Functions in one component, over all its modules: bounds the compiler's memory.
pub const COMPONENT_FUNCTIONS_MAX: u32 = 100_000;
/// Bytes of one function body: Cranelift's time is super-linear in it.
pub const FUNCTION_BODY_BYTES_MAX: u32 = 1 << 20;
/// Locals of one function: each costs the register allocator.
pub const FUNCTION_LOCALS_MAX: u32 = 10_000;
/// Core modules in one component.
pub const CORE_MODULES_MAX: u32 = 64;
/// Imports of one component.
pub const IMPORTS_MAX: u32 = 256;
/// Processor time of one compilation, in the child process.
pub const COMPILE_CPU_SECONDS_MAX: u64 = 60;
/// Address space of one compilation, in the child process.
pub const COMPILE_MEMORY_BYTES_MAX: u64 = 4 << 30;
/// A value at most this long travels inside messages and records; a longer one is a partition of its own.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// One `read` or `write` host call: bounds host memory per call and keeps copies in cache.
pub const HOST_CALL_BYTES_MAX: usize = 1 << 20;
/// Bytes of a manifest.
pub const MANIFEST_BYTES_MAX: usize = 64 << 10;
/// Body of an HTTP function's request or response when the manifest does not say.
pub const BODY_BYTES_DEFAULT: u64 = 100 << 20;
/// Body of a task-world or asynchronous invocation; more goes in as an object.
pub const INPUT_BYTES_MAX: u64 = 8 << 20;
/// Captured stdout, stderr and log calls of one attempt; more fails it with `log-overflow`.
pub const LOG_BYTES_MAX: usize = 1 << 20;
/// One object written through `PUT /v1/objects`: the largest S3 single PUT.
pub const OBJECT_BYTES_MAX: u64 = 5 << 30;
/// Outputs a call may ask for; a fan-out beyond this uses blocks, which have no keys.
pub const OUTPUTS_MAX: u32 = 1 << 16;
/// Unfinished tasks of one job; a driver's `submit` waits beyond it.
pub const JOB_TASKS_PENDING_MAX: usize = 100_000;
/// Futures in one `wait`.
pub const WAIT_FUTURES_MAX: usize = 1 << 20;
/// Yielded outputs that no consumer took before a generator is held back.
pub const GENERATOR_AHEAD_MAX: u32 = 16;
/// Bytes of one journal segment; a group commit closes at this size.
pub const SEGMENT_BYTES_MAX: usize = 4 << 20;
/// Entries waiting for one group commit: bounds memory when the store is slow.
pub const JOURNAL_QUEUE_MAX: usize = 4096;
/// Messages waiting between an executor and an owner, each way.
pub const MESSAGE_QUEUE_MAX: usize = 4096;
/// Bytes of one problem's message: an error never becomes a payload.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 4 << 10;
/// How long a finished invocation's result is kept, and an idempotency key remembered.
pub const RESULT_KEPT_MS: u64 = 24 * 3_600_000;
/// How long segments outlive the checkpoint that covers them (a paused stale owner must not find its number free).
pub const SEGMENT_KEPT_MS: u64 = 24 * 3_600_000;
/// An owner silent for this long re-reads its epoch after the next write and before it acknowledges.
pub const EPOCH_TRUSTED_MS: u64 = 60_000;

const _: () = assert!(INLINE_BYTES_MAX <= HOST_CALL_BYTES_MAX);
const _: () = assert!(INLINE_BYTES_MAX * 2 <= SEGMENT_BYTES_MAX);
