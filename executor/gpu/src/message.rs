//! What an executor and a gpu worker say to each other. Names and meaning follow WebGPU.
//!
//! Every request has one answer, in order. `Done` comes whenever a submission has ended.

use fanfold_protocol::Error;
use serde::{Deserialize, Serialize};

/// Requests on their way at a time: the next chunk of data is sent while the last is taken in.
pub(crate) const REQUESTS_AHEAD: usize = 4;

/// Names one thing that a session made: its place in a table and how often that place was used before. Never a pointer.
pub type Handle = u64;

/// What a buffer may be used for, as in `GPUBufferUsage`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Source of copies, reads and partitions made from it.
    pub copy_src: bool,
    /// Target of copies, writes, zeroing and partitions loaded into it.
    pub copy_dst: bool,
    /// A storage buffer of shaders.
    pub storage: bool,
    /// A uniform buffer of shaders.
    pub uniform: bool,
    /// Holds the counts of an indirect dispatch.
    pub indirect: bool,
}

/// How a shader sees a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum BindingKind {
    /// `var<uniform>`.
    Uniform,
    /// `var<storage, read>`.
    ReadOnlyStorage,
    /// `var<storage, read_write>`.
    Storage,
}

/// One entry of a bind group's layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LayoutEntry {
    /// `@binding` of the variable.
    pub binding: u32,
    /// What it is.
    pub kind: BindingKind,
}

/// One entry of a bind group: a part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Binding {
    /// `@binding` of the variable.
    pub binding: u32,
    /// The buffer.
    pub buffer: Handle,
    /// First byte.
    pub offset: u64,
    /// Bytes; to the buffer's end where `None`.
    pub size: Option<u64>,
}

/// A compute pipeline that is wanted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PipelineSpec {
    /// The shader.
    pub shader: Handle,
    /// Name of one of its compute entry points.
    pub entry: String,
    /// Bind group layouts in the order of `@group`; taken from the shader where `None`.
    pub layout: Option<Vec<Vec<LayoutEntry>>>,
    /// Values of `override` declarations, by name or by `@id`.
    pub constants: Vec<(String, f64)>,
}

/// How many workgroups run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Workgroups {
    /// As many along x, y and z.
    Direct([u32; 3]),
    /// As the three 32-bit numbers at `offset` of a buffer say when it comes to it.
    Indirect {
        /// A buffer with the usage `indirect`.
        buffer: Handle,
        /// Its byte, a multiple of 4.
        offset: u64,
    },
}

/// One dispatch of a compute pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dispatch {
    /// What runs.
    pub pipeline: Handle,
    /// Its bind groups, in the order of `@group`.
    pub groups: Vec<Handle>,
    /// How often.
    pub workgroups: Workgroups,
}

/// One command of a submission. They take effect in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// A compute pass.
    Pass {
        /// Whether its beginning and end are wanted as timestamps.
        timed: bool,
        /// What runs in it, in order.
        dispatches: Vec<Dispatch>,
    },
    /// Copies between two buffers.
    Copy {
        /// From there.
        source: Handle,
        /// First byte in the source, a multiple of 4.
        source_offset: u64,
        /// To there; another buffer.
        target: Handle,
        /// First byte in the target, a multiple of 4.
        target_offset: u64,
        /// Bytes, a multiple of 4.
        length: u64,
    },
    /// Fills a part of a buffer with zeros.
    Zero {
        /// Which.
        buffer: Handle,
        /// First byte, a multiple of 4.
        offset: u64,
        /// Bytes, a multiple of 4.
        length: u64,
    },
}

/// What an executor asks of a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first message of all: limits for the process, set before a driver is loaded. Answered by [`Reply::Ready`].
    Start {
        /// Bytes that buffers may have in all.
        memory: u64,
    },
    /// A buffer of zeros.
    CreateBuffer {
        /// For error messages.
        label: String,
        /// Bytes, a multiple of 4 over 0.
        size: u64,
        /// What it may be used for.
        usage: Usage,
    },
    /// Data for a buffer follows the message; its last word is filled up with zeros.
    Write {
        /// Which.
        buffer: Handle,
        /// First byte, a multiple of 4.
        offset: u64,
    },
    /// Data of a buffer, which follows the answer; what was submitted before has its effect.
    Read {
        /// Which.
        buffer: Handle,
        /// First byte, a multiple of 4.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Parses and validates WGSL.
    CreateShader {
        /// For error messages.
        label: String,
        /// The source.
        wgsl: String,
    },
    /// Compiles a pipeline, or finds it among those compiled before.
    CreatePipeline(PipelineSpec),
    /// Binds parts of buffers to a group of a pipeline's layout.
    CreateBindGroup {
        /// Whose layout.
        pipeline: Handle,
        /// `@group`.
        group: u32,
        /// One for each entry of the layout.
        entries: Vec<Binding>,
    },
    /// Hands commands to the device.
    Submit(Vec<Command>),
    /// The session's buffer, which has all its data, is only read from now on and stays when the session ends. Answered by a handle
    /// of its own kind, which outlives the session.
    Keep(Handle),
    /// A buffer that was kept, for this session.
    Use {
        /// Which.
        kept: Handle,
        /// For error messages.
        label: String,
    },
    /// Frees a buffer that was kept, and that the session does not use.
    Forget(Handle),
    /// Gives a handle back. Buffers are freed once nothing submitted uses them.
    Drop(Handle),
    /// Ends the session: drops everything it made and did not keep once its submissions have ended.
    Close,
}

impl Request {
    /// What a person calls this, for messages about a worker that died over it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Start { .. } => String::from("starting"),
            Self::CreateBuffer { .. } => String::from("creating a buffer"),
            Self::Write { .. } => String::from("writing a buffer"),
            Self::Read { .. } => String::from("reading a buffer"),
            Self::CreateShader { label, .. } => format!("compiling the shader `{label}`"),
            Self::CreatePipeline(spec) => format!("compiling a pipeline of the entry point `{}`", spec.entry),
            Self::CreateBindGroup { .. } => String::from("creating a bind group"),
            Self::Submit(_) => String::from("submitting commands"),
            Self::Keep(_) => String::from("keeping a buffer"),
            Self::Use { .. } => String::from("using a kept buffer"),
            Self::Forget(_) => String::from("freeing a kept buffer"),
            Self::Drop(_) => String::from("dropping a handle"),
            Self::Close => String::from("closing the session"),
        }
    }

    /// Whether a shader is compiled: what dies over it dies of the shader.
    pub(crate) fn compiles(&self) -> bool {
        matches!(self, Self::CreateShader { .. } | Self::CreatePipeline(_))
    }
}

/// What a worker says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The worker has its adapter, and this is it; or why it has none.
    Ready(Result<Adapter, Error>),
    /// The answer to the oldest request that has none.
    Answer(Result<Answer, Error>),
    /// A submission has ended.
    Done(Done),
}

/// What a request has for an answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Nothing,
    /// What was made.
    Handle(Handle),
    /// A shader, and its compute entry points.
    Shader(Handle, Vec<String>),
    /// A pipeline, and whether it had been compiled before.
    Pipeline(Handle, bool),
    /// The number of a submission; they count up by one.
    Submission(u64),
    /// The data that follows is what was asked for.
    Data,
}

/// How a submission ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// Its number.
    pub submission: u64,
    /// Beginning and end of its timed passes, in order, in nanoseconds of a clock of the device.
    pub timestamps: Vec<[u64; 2]>,
    /// What went wrong in it.
    pub error: Option<Error>,
}

/// An adapter, as its worker found it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// Its driver and that one's version.
    pub driver: String,
    /// Whether it computes on the processor.
    pub software: bool,
    /// Whether shaders may `enable f16`.
    pub f16: bool,
    /// Whether shaders may use subgroup operations.
    pub subgroups: bool,
    /// Whether passes can be timed.
    pub timestamps: bool,
    /// Its bounds.
    pub limits: Limits,
}

/// Bounds of an adapter; a name of WebGPU's is meant where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of one buffer.
    pub max_buffer_size: u64,
    /// Bytes of one storage binding.
    pub max_storage_buffer_binding_size: u64,
    /// Bytes of one uniform binding.
    pub max_uniform_buffer_binding_size: u64,
    /// What offsets of storage bindings are multiples of.
    pub min_storage_buffer_offset_alignment: u32,
    /// What offsets of uniform bindings are multiples of.
    pub min_uniform_buffer_offset_alignment: u32,
    /// Bind groups of a pipeline.
    pub max_bind_groups: u32,
    /// Storage buffers of a pipeline.
    pub max_storage_buffers_per_shader_stage: u32,
    /// Bytes of `var<workgroup>`.
    pub max_compute_workgroup_storage_size: u32,
    /// Invocations of one workgroup.
    pub max_compute_invocations_per_workgroup: u32,
    /// Invocations of one workgroup along x, y and z.
    pub max_compute_workgroup_size: [u32; 3],
    /// Workgroups along one dimension of a dispatch.
    pub max_compute_workgroups_per_dimension: u32,
}
