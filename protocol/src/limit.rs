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
/// Calls within calls: bounds what walks up from a task to its root.
pub const TASK_DEPTH_MAX: u32 = 1000;
/// Futures in one `wait`.
pub const WAIT_FUTURES_MAX: usize = 1 << 20;
/// Yielded outputs that no consumer took before a generator is held back.
pub const GENERATOR_AHEAD_MAX: u32 = 16;
/// Bytes of one journal segment; a group commit closes at this size.
pub const SEGMENT_BYTES_MAX: usize = 4 << 20;
/// Least time between the beginnings of two segments on a shared store: at most twenty puts a second and shard, which S3
/// bills at 0.36 dollars an hour.
pub const COMMIT_INTERVAL_MS: u64 = 50;
/// Entries waiting for one group commit: bounds memory when the store is slow.
pub const JOURNAL_QUEUE_MAX: usize = 4096;
/// Bytes of entries waiting for a group commit, or for room on a full disk: sixteen whole segments.
pub const JOURNAL_QUEUE_BYTES_MAX: usize = 64 << 20;
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
/// Asynchronous invocations of one function that wait for a place, unless its manifest allows more: a burst of events
/// is taken in whole, at about 1 KB of memory each.
pub const ASYNC_WAITING_MAX: usize = 65_536;
/// Bytes of inputs that unfinished asynchronous invocations hold in the owner's memory; more is refused.
pub const ASYNC_INPUT_BYTES_MAX: usize = 256 << 20;
/// Requests waiting for the owner: each is a client's task that is suspended until its turn.
pub const OWNER_REQUESTS_MAX: usize = 1024;
/// Bytes of journal entries that wait while the journal is written; beyond it the owner stops reading executors.
pub const JOURNAL_WAITING_BYTES_MAX: usize = 64 << 20;
/// Buffers that a gpu's process keeps for its job: the weights of some models.
pub const GPU_BUFFERS_KEPT_MAX: usize = 256;
/// What a task says of how its job stands: a table of some dozen stages. The last one is kept of each running job, in memory.
pub const STATUS_BYTES_MAX: usize = 8 << 10;
/// Time between two looks at what running attempts have written: four a second is what an eye can follow.
pub const LOG_INTERVAL_MS: u64 = 250;
/// Captured logs of one job, over all its attempts; later lines are dropped and counted.
pub const JOB_LOG_BYTES_MAX: usize = 4 << 20;
/// Bytes of ended invocations (outputs, identities) an owner keeps in memory; beyond it the oldest go before their time.
pub const RESULTS_KEPT_BYTES_MAX: usize = 512 << 20;
/// How long a dead letter is kept for somebody to look at it.
pub const DEAD_LETTER_KEPT_MS: u64 = 14 * 24 * 3_600_000;
/// Bytes of answers kept for idempotency keys; when full, calls with new keys are refused before they run.
pub const ANSWERS_KEPT_BYTES_MAX: usize = 256 << 20;
/// Jobs that ended lately whose progress by stage is still shown.
pub const HISTORY_JOBS_MAX: usize = 1000;
/// Tasks of these jobs of which the owner knows the job without being told: about 16 MB.
pub const HISTORY_TASKS_MAX: usize = 200_000;
/// How long the outputs of a memoised call answer equal ones.
pub const MEMO_KEPT_MS: u64 = 24 * 3_600_000;
/// Memoised calls that one shard knows; beyond it the oldest go. A checkpoint writes all of them.
pub const MEMO_ENTRIES_MAX: usize = 10_000;
/// Bytes of their inline outputs, which are in memory and in every checkpoint.
pub const MEMO_INLINE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of their other outputs, in the object store: a month of it costs a dollar and a half on S3.
pub const MEMO_STORED_BYTES_MAX: u64 = 64 << 30;
/// Entries whose data is copied or removed at the same time; a further commit makes no entry.
pub const MEMO_WORK_MAX: usize = 64;
/// How long a Redis keeps what was told of a job and has not changed: takeover is a matter of seconds.
pub const MIRROR_KEPT_MS: u64 = 3_600_000;
/// Bytes of a Redis that one gateway fills with its jobs; beyond it the oldest go.
pub const MIRROR_BYTES_MAX: u64 = 256 << 20;
/// Tasks of one job that are told: as many as its graph shows.
pub const MIRROR_TASKS_MAX: u64 = 10_000;
/// How long changes gather before they are told: one pipeline for all of them.
pub const MIRROR_INTERVAL_MS: u64 = 100;
/// Changes told at once; further ones are left out until the next time.
pub const MIRROR_CHANGES_MAX: usize = 20_000;
/// Batches that wait for a slow Redis; further ones are dropped.
pub const MIRROR_BATCHES_MAX: usize = 4;
/// Segments after which a checkpoint is written, as long as it is not longer than what it saves a restart from reading.
pub const CHECKPOINT_SEGMENTS: u64 = 1000;
/// Bytes of entries after which a checkpoint is written, under the same condition.
pub const CHECKPOINT_BYTES: u64 = 64 << 20;
/// Time between two updates of a watched job: ten a second is what an eye can follow.
pub const WATCH_INTERVAL_MS: u64 = 100;

const _: () = assert!(INLINE_BYTES_MAX <= HOST_CALL_BYTES_MAX);
const _: () = assert!(INLINE_BYTES_MAX * 2 <= SEGMENT_BYTES_MAX);

// What one task may hold through its host calls. Each bounds the host memory that a guest can claim.

/// Arguments of one call.
pub const CALL_ARGS_MAX: usize = 1 << 16;
/// Inline bytes and names of one call, all arguments together: a call is one message.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Partitions named in one payload.
pub const PAYLOAD_REFS_MAX: usize = 1 << 16;
/// Handles to futures a task holds at once: as many as fit in one `wait`.
pub const FUTURES_HELD_MAX: usize = WAIT_FUTURES_MAX;
/// Open readers of one task: a merge reads one per input.
pub const READERS_MAX: usize = 1 << 16;
/// Unfinished writers of one task.
pub const WRITERS_MAX: usize = 1 << 10;
/// Objects that one task writes at a time: each may hold two parts of 16 MiB, one of them on its way to a server.
pub const OBJECT_WRITERS_MAX: usize = 64;
/// Generators whose outputs a task takes at once.
pub const GENERATORS_MAX: usize = 1 << 10;
/// Blocks of one partition: its index is read and kept as a whole.
pub const BLOCKS_MAX: u32 = 1 << 20;
/// Bytes of answers that a driver's executor keeps for a later `get`; beyond it they are asked for again.
pub const ANSWERS_HELD_BYTES_MAX: usize = 16 << 20;
/// Dropped futures that wait for the next message of their driver.
pub const DROPS_HELD_MAX: usize = 64;
/// Times one `read` has a lost partition made again before it gives up.
pub const RECOVERIES_MAX: u32 = 4;
/// Bytes that one task has fetched and not yet read, over all its readers that read in order.
pub const READ_AHEAD_BYTES_MAX: usize = 64 << 20;
/// The same of all tasks of an executor together, and no more than half as much as it has memory for partitions. A reader for which
/// there is no room fetches little, and nothing ahead.
pub const READ_AHEAD_ALL_BYTES_MAX: usize = 256 << 20;
/// A partition at most this long is read from elsewhere as a whole and kept in memory for its other readers.
pub const LOAD_WHOLE_BYTES_MAX: u64 = 8 << 20;
/// The same where only some of its blocks are wanted: a reducer of a shuffle wants a few of each of hundreds of partitions, which
/// together are all of the data.
pub const LOAD_FOR_BLOCKS_BYTES_MAX: u64 = 1 << 20;
/// Memory of an executor for indexes of partitions that are elsewhere and read range by range, about 24 bytes a block: those of 1,000
/// maps for 700 reducers.
pub const KNOWN_INDEXES_BYTES_MAX: usize = 16 << 20;
/// Which of the two it is.
pub const fn load_bytes_max(for_blocks: bool) -> u64 {
    if for_blocks { LOAD_FOR_BLOCKS_BYTES_MAX } else { LOAD_WHOLE_BYTES_MAX }
}
/// Bytes of an object's key: as in S3.
pub const OBJECT_KEY_BYTES_MAX: usize = 1024;
/// Bytes of one object that a function puts in one call, which passes through the executor's memory in one piece; a longer
/// one is written piece by piece.
pub const FUNCTION_OBJECT_BYTES_MAX: usize = 64 << 20;
/// Objects on one page of a listing.
pub const LIST_PAGE_MAX: usize = 1000;
/// Partitions that one message has an executor fetch at once: enough to keep a connection busy while another one waits.
pub const PREFETCHES_MAX: usize = 4;
/// Partitions that are uploaded at once by one executor.
pub const UPLOADS_MAX: usize = 4;
/// Partitions that one executor writes to its disk at once: two keep a disk busy, more would move more than is needed.
pub const SPILLS_MAX: usize = 2;
/// How long a lazily stored partition waits for its upload: most temporaries of a job are freed before.
pub const LAZY_UPLOAD_DELAY_MS: u64 = 3_000;
const _: () = assert!(SEGMENT_BYTES_MAX <= JOURNAL_QUEUE_BYTES_MAX);

// What a function may do with a gpu. Each bounds what its process, or the executor on the way to it, holds.

/// Bytes of one shader's WGSL: ten times the longest kernels in use; parsing and translating it costs a hundred times as much memory.
pub const GPU_SHADER_BYTES_MAX: usize = 256 << 10;
/// Brackets of all kinds within one another in a shader: what parses them calls itself for each.
pub const GPU_SHADER_DEPTH_MAX: usize = 64;
/// Operators in one expression of a shader, and branches in one chain of `else if`: each is one level more of a tree that is walked
/// by calls within calls.
pub const GPU_SHADER_CHAIN_MAX: usize = 512;
/// Bytes of one read or write on their way between executor and gpu process: long enough that a round trip is cheap beside its copy.
pub const GPU_CHUNK_BYTES_MAX: usize = 4 << 20;
/// Bytes of one message to or from a gpu process without such data: a shader, or a submission of as many commands as there may be.
pub const GPU_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Buffers, shaders, pipelines and bind groups that one attempt holds, each kind.
pub const GPU_HANDLES_MAX: usize = 1 << 14;
/// Bytes of a label, or of the name of an entry point or constant.
pub const GPU_NAME_BYTES_MAX: usize = 256;
/// Entries of a bind group or of its layout, groups of a layout, and constants of a pipeline: more than adapters take.
pub const GPU_ENTRIES_MAX: usize = 256;
/// Commands of one submission.
pub const GPU_COMMANDS_MAX: usize = 4096;
/// Command encoders of one attempt that it has not submitted: what they record is memory of the executor, at most half a megabyte each.
pub const GPU_ENCODERS_MAX: usize = 16;
/// Submissions of one attempt that have not ended; a further one is refused.
pub const GPU_SUBMISSIONS_MAX: usize = 64;
/// Compiled pipelines that one gpu process keeps for its next attempts: some hundred kilobytes each.
pub const GPU_PIPELINES_KEPT_MAX: usize = 256;
/// How long one submission may take, from being handed over to its end, unless the executor was told otherwise.
pub const GPU_SUBMISSION_MS: u64 = 10_000;
/// How long any other call to a gpu process may take: compiling a large pipeline does take seconds.
pub const GPU_CALL_MS: u64 = 60_000;
/// How long a gpu process has to find its adapter: cold drivers on busy machines were seen to take seconds.
pub const GPU_START_MS: u64 = 60_000;
/// How long a gpu process without work is kept for the same job.
pub const GPU_IDLE_MS: u64 = 60_000;
/// The longest pause before another gpu process is started where the last ones did not get as far as their adapter.
pub const GPU_BACKOFF_MS_MAX: u64 = 10_000;
/// Memory of a gpu process beside the buffers it may have: drivers, compilers, code.
pub const GPU_PROCESS_MEMORY_BYTES: u64 = 4 << 30;
/// Bytes of all buffers of one job at a time, unless the executor was told otherwise.
pub const GPU_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
const _: () = assert!(GPU_SHADER_BYTES_MAX < GPU_MESSAGE_BYTES_MAX);

// What the gateway keeps or takes, beside the above.

/// Names of custom resources that an owner tells apart; a handful describes a cluster, and each costs every task four
/// bytes.
pub const CUSTOM_RESOURCES_MAX: usize = 8;

/// Changes of functions and aliases that wait for the journal; a further one waits at the door.
pub const REGISTRY_CHANGES_MAX: usize = 64;
/// Versions that one alias is spread over.
pub const ALIAS_TARGETS_MAX: usize = 16;
/// Bytes of an `Idempotency-Key`: a UUID has 36.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Synchronous calls whose logs are kept in memory.
pub const RECENT_LOGS_CALLS_MAX: usize = 1024;
/// Bytes of these logs in all: sixteen calls that logged as much as they may.
pub const RECENT_LOGS_BYTES_MAX: usize = 16 << 20;
/// The longest a status request waits for an invocation's end; a client asks again.
pub const WAIT_MS_MAX: u64 = 60_000;

// Triggers.

/// Events of one batch: their keys are in one journal record.
pub const BATCH_EVENTS_MAX: u32 = 10_000;
/// Age of the oldest event of a batch that waits: more is a schedule's business.
pub const BATCH_WINDOW_MS_MAX: u64 = 3_600_000;
/// Bytes of one event that is held for its batch; a longer one is refused there, and has a run of its own elsewhere.
pub const HELD_EVENT_BYTES_MAX: usize = INLINE_BYTES_MAX;
/// Bytes of all events that are held: they are in memory and in every checkpoint.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Events of one request: a notification of S3 has one, and a batch of CloudEvents must fit in a body anyway.
pub const EVENTS_MAX: usize = 10_000;
/// Runs within runs, as far as events tell: a chain that is longer is taken for a loop.
pub const HOPS_MAX: u32 = 8;
/// Scheduled times that are made up for after a time in which nobody could fire.
pub const MISSED_RUNS_MAX: usize = 100;
/// How late a scheduled run may be without counting as missed: longer than another gateway takes to take over.
pub const MISSED_AFTER_MS: u64 = 60_000;
/// Shortest interval: for less there are loops inside of functions.
pub const INTERVAL_MS_MIN: u64 = 1_000;
/// Time between two listings of a trigger that does not say.
pub const LISTING_EVERY_MS: u64 = 3_600_000;
/// Shortest time between two listings: each costs a request for a thousand objects.
pub const LISTING_EVERY_MS_MIN: u64 = 1_000;
/// Longest: what two listings find within the time that keys are remembered, runs once.
pub const LISTING_EVERY_MS_MAX: u64 = RESULT_KEPT_MS / 2;
/// Triggers in all: each event is compared with each of them.
pub const TRIGGERS_MAX: usize = 1_000;
