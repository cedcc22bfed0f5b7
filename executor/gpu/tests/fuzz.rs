//! Requests at random: a worker answers each, and is there afterwards.

mod common;

use common::*;
use fanfold_gpu::{
    Session,
    message::{
        Binding, BindingKind, Command, Dispatch, Handle, LayoutEntry, PipelineSpec, Usage, Workgroups,
    },
};
use fanfold_protocol::{Error, Kind};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// What a session may be asked for. Handles are places among those that were made before, or nonsense.
#[derive(Clone, Debug)]
enum Call {
    Buffer(u64, Usage),
    Write(usize, u64, usize),
    Read(usize, u64, u64),
    Shader(String),
    Pipeline(usize, Option<Vec<Vec<LayoutEntry>>>, Vec<(String, f64)>),
    Group(usize, u32, Vec<(u32, usize, u64, Option<u64>)>),
    /// And whether its end is waited for.
    Submit(Vec<Step>, bool),
    Drop(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Run(bool, usize, Vec<usize>, [u32; 3]),
    Indirect(usize, Vec<usize>, usize, u64),
    Copy(usize, u64, usize, u64, u64),
    Zero(usize, u64, u64),
}

const SHADERS: &[&str] = &[
    "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
     @compute @workgroup_size(4) fn f(@builtin(global_invocation_id) i: vec3<u32>) { d[i.x * 7u] = i.y / d[i.z]; }",
    "@group(0) @binding(1) var<uniform> u: vec4<u32>; @group(1) @binding(0) var<storage> a: array<f32>;
     @group(1) @binding(3) var<storage, read_write> b: array<f32>;
     @compute @workgroup_size(8, 2) fn f(@builtin(global_invocation_id) i: vec3<u32>) { b[i.x] = a[u[i.y]] * 2.0; }",
    "override k: u32 = 4; @group(2) @binding(9) var<storage, read_write> d: array<atomic<i32>>;
     @compute @workgroup_size(k) fn f(@builtin(local_invocation_id) i: vec3<u32>) { atomicAdd(&d[i.x], 1 << i.x); }",
    "@compute @workgroup_size(1) fn f() {}",
    "fn",
];

/// Numbers that are likely to matter.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..1024,
        (0u64..64).prop_map(|n| n * 4),
        (0u64..4).prop_map(|n| n * 256),
        any::<u64>(),
        Just(u64::MAX - 3)
    ]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![9 => 0u32..5, 1 => any::<u32>()]
}

fn usage() -> impl Strategy<Value = Usage> {
    (any::<[bool; 3]>(), 0..4u8).prop_map(|([copy_src, copy_dst, storage], n)| Usage {
        copy_src,
        copy_dst,
        storage,
        uniform: n == 1,
        indirect: n == 2,
    })
}

fn layout() -> impl Strategy<Value = Vec<Vec<LayoutEntry>>> {
    let kinds = [BindingKind::Uniform, BindingKind::Storage, BindingKind::ReadOnlyStorage];
    let entry = (count(), prop::sample::select(kinds.to_vec()));
    vec(vec(entry.prop_map(|(binding, kind)| LayoutEntry { binding, kind }), 0..4), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0usize..12;
    prop_oneof![
        (any::<bool>(), 0usize..12, vec(0usize..12, 0..4), [count(), count(), count()])
            .prop_map(|(timed, pipeline, groups, counts)| Step::Run(timed, pipeline, groups, counts)),
        (0usize..12, vec(0usize..12, 0..3), 0usize..12, number())
            .prop_map(|(pipeline, groups, buffer, offset)| Step::Indirect(pipeline, groups, buffer, offset)),
        (place.clone(), number(), place.clone(), number(), number())
            .prop_map(|(from, a, to, b, length)| Step::Copy(from, a, to, b, length)),
        (place, number(), number()).prop_map(|(buffer, offset, length)| Step::Zero(buffer, offset, length)),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let constant = (prop::sample::select(vec![String::from("k"), String::from("x")]), any::<f64>());
    let binding = (count(), 0usize..12, number(), prop::option::of(number()));
    prop_oneof![
        3 => (number(), usage()).prop_map(|(size, usage)| Call::Buffer(size, usage)),
        3 => (0u64..32).prop_map(|n| Call::Buffer(n * 256, STORAGE)),
        1 => (0usize..12, number(), 0usize..600).prop_map(|(b, offset, length)| Call::Write(b, offset, length)),
        1 => (0usize..12, number(), number()).prop_map(|(b, offset, length)| Call::Read(b, offset, length)),
        2 => prop::sample::select(SHADERS).prop_map(|wgsl| Call::Shader(wgsl.to_owned())),
        3 => (0usize..12, prop::option::weighted(0.3, layout()), vec(constant, 0..2))
            .prop_map(|(shader, layout, constants)| Call::Pipeline(shader, layout, constants)),
        6 => (0usize..12, count(), vec(binding, 0..4))
            .prop_map(|(pipeline, group, entries)| Call::Group(pipeline, group, entries)),
        3 => (vec(step(), 0..6), any::<bool>()).prop_map(|(steps, waits)| Call::Submit(steps, waits)),
        1 => (0usize..12).prop_map(Call::Drop),
    ]
}

/// Handles that were made, the latest of each kind.
#[derive(Default)]
struct Made {
    buffers: Vec<Handle>,
    shaders: Vec<Handle>,
    pipelines: Vec<Handle>,
    groups: Vec<Handle>,
}

fn pick(made: &[Handle], place: usize) -> Handle {
    made.iter().rev().nth(place).copied().unwrap_or(place as u64)
}

impl Made {
    async fn ask(&mut self, session: &mut Session, call: Call) -> Result<(), Error> {
        match call {
            Call::Buffer(size, usage) => self.buffers.push(session.create_buffer("b", size, usage).await?),
            Call::Write(buffer, offset, length) => {
                session.write(pick(&self.buffers, buffer), offset, vec![3; length].into()).await?;
            }
            Call::Read(buffer, offset, length) => {
                session.read(pick(&self.buffers, buffer), offset, length).await?;
            }
            Call::Shader(wgsl) => self.shaders.push(session.create_shader("s", &wgsl).await?.0),
            Call::Pipeline(shader, layout, constants) => {
                let spec = PipelineSpec { layout, constants, ..spec(pick(&self.shaders, shader), "f") };
                self.pipelines.push(session.create_pipeline(spec).await?.0);
            }
            Call::Group(pipeline, group, entries) => {
                let bind = |(binding, buffer, offset, size)| Binding {
                    binding,
                    buffer: pick(&self.buffers, buffer),
                    offset,
                    size,
                };
                let entries = entries.into_iter().map(bind).collect();
                let pipeline = pick(&self.pipelines, pipeline);
                self.groups.push(session.create_bind_group(pipeline, group, entries).await?);
            }
            Call::Submit(steps, waits) => {
                let commands = steps.into_iter().map(|step| self.command(step)).collect();
                let submission = session.submit(commands).await?;
                if waits {
                    session.wait(submission).await?;
                }
            }
            Call::Drop(buffer) => session.drop_handle(pick(&self.buffers, buffer)).await?,
        }
        Ok(())
    }

    fn command(&self, step: Step) -> Command {
        let run = |timed, pipeline, groups: Vec<usize>, workgroups| {
            let groups = groups.into_iter().map(|group| pick(&self.groups, group)).collect();
            let dispatch = Dispatch { pipeline: pick(&self.pipelines, pipeline), groups, workgroups };
            Command::Pass { timed, dispatches: vec![dispatch] }
        };
        let buffer = |place| pick(&self.buffers, place);
        match step {
            Step::Run(timed, pipeline, groups, counts) => {
                run(timed, pipeline, groups, Workgroups::Direct(counts))
            }
            Step::Indirect(pipeline, groups, counts, offset) => {
                run(false, pipeline, groups, Workgroups::Indirect { buffer: buffer(counts), offset })
            }
            Step::Copy(source, source_offset, target, target_offset, length) => {
                let (source, target) = (buffer(source), buffer(target));
                Command::Copy { source, source_offset, target, target_offset, length }
            }
            Step::Zero(place, offset, length) => Command::Zero { buffer: buffer(place), offset, length },
        }
    }
}

#[tokio::test]
async fn no_request_ends_a_worker() {
    let gpu = gpu(settings(1)).await;
    // The same every time: what fails once fails again.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut asked, mut accepted) = (0, 0);
    for round in 0..60 {
        let calls = vec(call(), 40..120).new_tree(&mut runner).expect("calls").current();
        let mut session = open(&gpu, "fuzz").await;
        let mut made = Made::default();
        for call in calls {
            let shown = format!("{call:?}");
            let answer = made.ask(&mut session, call).await;
            asked += 1;
            accepted += usize::from(answer.is_ok());
            if let Err(error) = answer {
                let typed = matches!(error.kind, Kind::Invalid | Kind::Limit);
                assert!(typed, "round {round}: {shown}: {error:?}");
            }
        }
        if round % 2 == 0 {
            check_healthy(&mut session).await;
        }
        // Every other time with whatever still runs.
        session.close().await;
    }
    eprintln!("{accepted} of {asked} requests were accepted");
    assert!(accepted * 5 > asked, "hardly anything was accepted: the requests do not reach far");
}
