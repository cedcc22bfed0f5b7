//! What the tests of this crate share: a gpu with real worker processes, sessions on it, and kernels.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::time::Duration;

use fanfold_gpu::{
    Gpu, Owner, Session, Settings, Software,
    message::{Binding, Command, Dispatch, Handle, PipelineSpec, Usage, Workgroups},
};
use fanfold_protocol::{Code, Error, Kind};

/// Settings with this crate's worker. Budgets are short enough for a test and long enough for a busy machine.
pub fn settings(workers: usize) -> Settings {
    let command = vec![env!("CARGO_BIN_EXE_fanfold-gpu-worker").into()];
    let memory = 64 << 20;
    Settings { memory, submission: Duration::from_secs(20), ..Settings::new(command, workers) }
}

/// A gpu, and the name of its adapter on standard error: it matters which one ran.
pub async fn gpu(settings: Settings) -> Gpu {
    let gpu = Gpu::new(settings);
    let adapter =
        gpu.adapter().await.expect("there is an adapter: `cargo xtask test` installs one in software");
    eprintln!("adapter: {} ({})", adapter.name, adapter.driver);
    gpu
}

pub async fn open(gpu: &Gpu, owner: &str) -> Session {
    gpu.open(&Owner(owner.into()), Software::Allow).await.expect("a session")
}

/// Every usage but those that exclude others.
pub const STORAGE: Usage =
    Usage { copy_src: true, copy_dst: true, storage: true, uniform: false, indirect: false };

/// Doubles each number.
pub const DOUBLE: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @compute @workgroup_size(64)
    fn double(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&data) { data[id.x] = data[id.x] * 2u; }
    }";

/// Never ends with [`FOR_EVER`] workgroups.
pub const ENDLESS: &str = include_str!("../../../../functions/misbehave/src/endless.wgsl");
pub const FOR_EVER: Workgroups = Workgroups::Direct([65535, 65535, 1]);

pub fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

pub fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

pub fn spec(shader: Handle, entry: &str) -> PipelineSpec {
    PipelineSpec { shader, entry: entry.to_owned(), layout: None, constants: Vec::new() }
}

pub fn whole(binding: u32, buffer: Handle) -> Binding {
    Binding { binding, buffer, offset: 0, size: None }
}

pub fn dispatch(pipeline: Handle, groups: Vec<Handle>, workgroups: Workgroups) -> Command {
    Command::Pass { timed: false, dispatches: vec![Dispatch { pipeline, groups, workgroups }] }
}

/// A kernel on one buffer, ready to run.
pub struct Kernel {
    pub buffer: Handle,
    pub shader: Handle,
    pub pipeline: Handle,
    pub group: Handle,
}

impl Kernel {
    /// `entry` of a shader that binds one storage buffer, here of `size` bytes.
    pub async fn new(session: &mut Session, wgsl: &str, entry: &str, size: u64) -> Result<Self, Error> {
        let buffer = session.create_buffer("data", size, STORAGE).await?;
        let (shader, _) = session.create_shader(entry, wgsl).await?;
        let (pipeline, _) = session.create_pipeline(spec(shader, entry)).await?;
        let group = session.create_bind_group(pipeline, 0, vec![whole(0, buffer)]).await?;
        Ok(Self { buffer, shader, pipeline, group })
    }

    pub fn run_for_ever(&self) -> Command {
        dispatch(self.pipeline, vec![self.group], FOR_EVER)
    }

    pub fn run(&self, x: u32) -> Command {
        dispatch(self.pipeline, vec![self.group], Workgroups::Direct([x, 1, 1]))
    }
}

/// That the gpu still works: doubles some numbers in a session.
pub async fn check_healthy(session: &mut Session) {
    let kernel = Kernel::new(session, DOUBLE, "double", 256).await.expect("a kernel");
    let input: Vec<u32> = (0..64).collect();
    session.write(kernel.buffer, 0, bytes(&input).into()).await.expect("written");
    let submission = session.submit(vec![kernel.run(1)]).await.expect("submitted");
    session.wait(submission).await.expect("done");
    let output = session.read(kernel.buffer, 0, 256).await.expect("read");
    assert_eq!(numbers(&output), input.iter().map(|n| n * 2).collect::<Vec<_>>());
    for handle in [kernel.group, kernel.pipeline, kernel.shader, kernel.buffer] {
        session.drop_handle(handle).await.expect("dropped");
    }
}

/// That a call failed with this kind and code, and a message that has `part` in it.
#[track_caller]
pub fn fails<T>(result: Result<T, Error>, kind: Kind, code: Code, part: &str) {
    match result {
        Ok(_) => panic!("succeeded; expected {kind:?}, {code:?}, {part}"),
        Err(error) => assert!(
            error.kind == kind && error.code == code && error.message.contains(part),
            "{error:?}; expected {kind:?}, {code:?}, {part}"
        ),
    }
}
