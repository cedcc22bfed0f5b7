//! Guests that mean harm: each gets a typed error, its worker or the next one is healthy afterwards, and a neighbour does not notice.

mod common;

use std::time::Duration;

use common::*;
use fanfold_gpu::{
    Owner, Session, Software,
    message::{
        Binding, BindingKind, Command, Dispatch, Handle, LayoutEntry, PipelineSpec, Usage, Workgroups,
    },
};
use fanfold_protocol::{Code, Error, Kind, limit};

const INVALID: (Kind, Code) = (Kind::Invalid, Code::Gpu);
const SHADER: (Kind, Code) = (Kind::Invalid, Code::Shader);
const MEMORY: (Kind, Code) = (Kind::Limit, Code::GpuMemory);

/// A session with things to abuse, and one of a neighbour that must not notice.
struct Bench {
    session: Session,
    neighbour: Session,
    kernel: Kernel,
    /// 64 bytes, only to be copied to.
    sink: Handle,
    /// 64 bytes, only for shaders.
    closed: Handle,
}

impl Bench {
    async fn new() -> Self {
        let gpu = gpu(settings(2)).await;
        let neighbour = open(&gpu, "neighbour").await;
        let mut session = open(&gpu, "hostile").await;
        let kernel = Kernel::new(&mut session, DOUBLE, "double", 256).await.expect("a kernel");
        let sink = Usage { copy_dst: true, ..Usage::default() };
        let sink = session.create_buffer("sink", 64, sink).await.expect("a buffer");
        let closed = Usage { storage: true, ..Usage::default() };
        let closed = session.create_buffer("closed", 64, closed).await.expect("a buffer");
        Self { session, neighbour, kernel, sink, closed }
    }

    /// That `call` fails as `expected`, without harm to anybody.
    async fn refuses<T>(
        &mut self,
        (kind, code): (Kind, Code),
        part: &str,
        call: impl AsyncFnOnce(&mut Session) -> Result<T, Error>,
    ) {
        fails(call(&mut self.session).await, kind, code, part);
        check_healthy(&mut self.session).await;
        check_healthy(&mut self.neighbour).await;
    }

    /// The same for a submission, up to its end.
    async fn refuses_commands(&mut self, part: &str, commands: Vec<Command>) {
        let call = async move |session: &mut Session| {
            let submission = session.submit(commands).await?;
            session.wait(submission).await
        };
        self.refuses(INVALID, part, call).await;
    }
}

#[tokio::test]
async fn buffers_out_of_bounds() {
    let mut bench = Bench::new().await;
    let (data, sink, closed) = (bench.kernel.buffer, bench.sink, bench.closed);
    let max = u64::MAX;
    bench.refuses(INVALID, "over 0", async |s| s.create_buffer("a", 0, STORAGE).await).await;
    bench.refuses(INVALID, "multiple of 4", async |s| s.create_buffer("a", 6, STORAGE).await).await;
    bench.refuses(INVALID, "usage", async |s| s.create_buffer("a", 4, Usage::default()).await).await;
    bench.refuses(MEMORY, "device memory", async |s| s.create_buffer("a", max - 3, STORAGE).await).await;
    bench.refuses(MEMORY, "device memory", async |s| s.create_buffer("a", 65 << 20, STORAGE).await).await;
    bench.refuses(INVALID, "a name of", async |s| s.create_buffer(&"a".repeat(257), 4, STORAGE).await).await;
    // Reads.
    bench.refuses(INVALID, "do not fit", async |s| s.read(data, 252, 8).await).await;
    bench.refuses(INVALID, "do not fit", async |s| s.read(data, max - 3, 8).await).await;
    bench.refuses(INVALID, "too many|at once", async |s| s.read(data, 4, max).await.map_err(either)).await;
    bench.refuses(INVALID, "multiples of 4", async |s| s.read(data, 2, 4).await).await;
    bench.refuses(INVALID, "copy-src", async |s| s.read(sink, 0, 4).await).await;
    bench.refuses(INVALID, "at once", async |s| s.read(data, 0, 1 << 40).await).await;
    // Writes.
    let piece = || bytes::Bytes::from(vec![1; 128]);
    bench.refuses(INVALID, "do not fit", async |s| s.write(data, 132, piece()).await).await;
    bench.refuses(INVALID, "do not fit", async |s| s.write(data, max - 3, piece()).await).await;
    bench.refuses(INVALID, "multiples of 4", async |s| s.write(data, 1, piece()).await).await;
    // Pieces behind the largest offset are not written at the smallest.
    let words = || futures::stream::iter((0..4).map(|_| Ok(bytes::Bytes::from(vec![1; 4]))));
    bench.refuses(INVALID, "do not fit", async |s| s.load(data, max - 3, words()).await).await;
    assert_eq!(bench.session.read(data, 0, 16).await.expect("read"), vec![0; 16]);
    bench.refuses(INVALID, "copy-dst", async |s| s.write(closed, 0, piece().slice(..4)).await).await;
}

/// Any of the two messages that a length beyond all lengths may get.
fn either(mut error: Error) -> Error {
    if ["too many", "at once"].iter().any(|part| error.message.contains(part)) {
        error.message = "too many|at once".into();
    }
    error
}

#[tokio::test]
async fn handles_of_nothing() {
    let mut bench = Bench::new().await;
    let Kernel { buffer, shader, pipeline, group } = bench.kernel;
    for handle in [0, 1, u64::MAX, shader, pipeline, group, buffer ^ 1 << 24, buffer + 1000] {
        bench.refuses(INVALID, "no such buffer", async |s| s.read(handle, 0, 4).await).await;
    }
    bench.refuses(INVALID, "no such shader", async |s| s.create_pipeline(spec(buffer, "double")).await).await;
    bench.refuses(INVALID, "no such pipeline", async |s| s.create_bind_group(shader, 0, vec![]).await).await;
    // Use after free, also by what still refers to it.
    let spare = bench.session.create_buffer("spare", 64, STORAGE).await.expect("a buffer");
    let bound = vec![whole(0, spare)];
    let orphan = bench.session.create_bind_group(pipeline, 0, bound.clone()).await.expect("a group");
    bench.session.drop_handle(spare).await.expect("dropped");
    bench.session.drop_handle(spare).await.expect("twice is as good as once");
    bench.refuses(INVALID, "no such buffer", async |s| s.read(spare, 0, 4).await).await;
    bench.refuses(INVALID, "no such buffer", async |s| s.create_bind_group(pipeline, 0, bound).await).await;
    let run = |groups| vec![dispatch(pipeline, groups, Workgroups::Direct([1, 1, 1]))];
    bench.refuses_commands("estroyed", run(vec![orphan])).await;
    bench.refuses_commands("no such bind group", run(vec![buffer])).await;
    bench.refuses(INVALID, "no submission", async |s| s.wait(u64::MAX).await).await;
    bench.refuses(INVALID, "no submission", async |s| s.wait(0).await).await;
    // A neighbour's handle is nobody's here, even where the numbers are the same.
    let theirs = bench.neighbour.create_buffer("theirs", 64, STORAGE).await.expect("a buffer");
    bench.neighbour.write(theirs, 0, vec![9; 64].into()).await.expect("written");
    if let Ok(data) = bench.session.read(theirs, 0, 64).await {
        assert!(data.iter().all(|byte| *byte != 9), "a neighbour's data was read");
    }
}

#[tokio::test]
async fn bindings_that_do_not_fit() {
    let mut bench = Bench::new().await;
    let Kernel { buffer, shader, pipeline, .. } = bench.kernel;
    let sink = bench.sink;
    let part = |offset, size| vec![Binding { binding: 0, buffer, offset, size }];
    let cases = [
        ("the pipeline's layout has 1", 1, vec![whole(0, buffer)]),
        ("the pipeline's layout has 1", u32::MAX, vec![whole(0, buffer)]),
        ("has none of it", 0, vec![whole(7, buffer)]),
        ("entries of a bind group", 0, vec![whole(0, buffer); 300]),
        ("creating a bind group", 0, vec![]),
        ("creating a bind group", 0, vec![whole(0, buffer), whole(0, buffer)]),
        ("without the usage storage", 0, vec![whole(0, sink)]),
        ("do not fit", 0, part(0, Some(260))),
        ("do not fit", 0, part(u64::MAX - 3, Some(8))),
        ("must be a multiple", 0, part(4, Some(8))),
        ("a part of 0 bytes", 0, part(0, Some(0))),
        ("a part of 0 bytes", 0, part(256, None)),
    ];
    for (message, group, entries) in cases {
        let call = async |s: &mut Session| s.create_bind_group(pipeline, group, entries).await;
        bench.refuses(INVALID, message, call).await;
    }
    let entry = |binding, kind| LayoutEntry { binding, kind };
    let layouts = [
        // Not what the shader has.
        vec![vec![entry(0, BindingKind::Uniform)]],
        vec![vec![entry(1, BindingKind::Storage)]],
        vec![],
        // Twice the same, too many, none at all.
        vec![vec![entry(0, BindingKind::Storage); 2]],
        vec![(0..200).map(|binding| entry(binding, BindingKind::Storage)).collect()],
        vec![vec![entry(u32::MAX, BindingKind::Storage)]],
        vec![vec![entry(0, BindingKind::Storage)]; 100],
    ];
    for layout in layouts {
        let spec = PipelineSpec { layout: Some(layout.clone()), ..spec(shader, "double") };
        let refused = bench.session.create_pipeline(spec).await.expect_err("a layout that does not fit");
        assert_eq!(refused.kind, Kind::Invalid, "{layout:?}: {refused:?}");
        check_healthy(&mut bench.session).await;
    }
    check_healthy(&mut bench.neighbour).await;
}

#[tokio::test]
async fn commands_that_do_not_fit() {
    let mut bench = Bench::new().await;
    let Kernel { buffer, pipeline, group, .. } = bench.kernel;
    let (sink, closed) = (bench.sink, bench.closed);
    let max = u64::MAX;
    let copy = |source, source_offset, target, target_offset, length| {
        vec![Command::Copy { source, source_offset, target, target_offset, length }]
    };
    bench.refuses_commands("copying from: 128 bytes at 192", copy(buffer, 192, sink, 0, 128)).await;
    bench.refuses_commands("copying to: 128 bytes at 0", copy(buffer, 0, sink, 0, 128)).await;
    bench.refuses_commands("do not fit", copy(buffer, max - 3, sink, 0, 8)).await;
    bench.refuses_commands("do not fit", copy(buffer, 4, sink, 0, max - 3)).await;
    bench.refuses_commands("multiples of 4", copy(buffer, 0, sink, 0, 7)).await;
    bench.refuses_commands("copy-src", copy(sink, 0, buffer, 0, 4)).await;
    bench.refuses_commands("copy-dst", copy(buffer, 0, closed, 0, 4)).await;
    bench.refuses_commands("within one buffer", copy(buffer, 0, buffer, 128, 64)).await;
    let zero = |buffer, offset, length| vec![Command::Zero { buffer, offset, length }];
    bench.refuses_commands("do not fit", zero(buffer, 128, max - 127)).await;
    bench.refuses_commands("copy-dst", zero(closed, 0, 4)).await;
    let run = |groups: Vec<Handle>, workgroups| vec![dispatch(pipeline, groups, workgroups)];
    bench.refuses_commands("workgroups", run(vec![group], Workgroups::Direct([1, u32::MAX, 1]))).await;
    bench.refuses_commands("0 bind groups", run(vec![], Workgroups::Direct([1, 1, 1]))).await;
    bench.refuses_commands("3 bind groups", run(vec![group; 3], Workgroups::Direct([1, 1, 1]))).await;
    let indirect = |buffer, offset| run(vec![group], Workgroups::Indirect { buffer, offset });
    bench.refuses_commands("the usage indirect", indirect(buffer, 0)).await;
    let usage = Usage { indirect: true, copy_dst: true, ..Usage::default() };
    let counts = bench.session.create_buffer("counts", 12, usage).await.expect("a buffer");
    bench.refuses_commands("do not fit", indirect(counts, 4)).await;
    bench.refuses_commands("multiples of 4", indirect(counts, 1)).await;
    bench.session.write(counts, 0, bytes(&[1 << 30, 1, 1]).into()).await.expect("written");
    bench.refuses_commands("ran nothing", indirect(counts, 0)).await;
    bench.refuses_commands("at most 4096", vec![zero(buffer, 0, 4).remove(0); 4097]).await;
    let dispatches =
        vec![Dispatch { pipeline, groups: vec![group], workgroups: Workgroups::Direct([1, 1, 1]) }];
    let pass = Command::Pass { timed: false, dispatches: vec![dispatches[0].clone(); 4000] };
    bench.refuses_commands("at most 4096", vec![pass]).await;
    if !bench.session.adapter().timestamps {
        bench.refuses_commands("no timestamps", vec![Command::Pass { timed: true, dispatches }]).await;
    }
}

#[tokio::test]
async fn shaders_that_mean_harm() {
    let mut bench = Bench::new().await;
    let body = |body: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> d: array<u32>; @compute @workgroup_size(1) fn f() {{ {body} }}"
        )
    };
    let chain = |what: &str, count| body(&format!("d[0] = d[1]{};", what.repeat(count)));
    let cases = [
        ("brackets", body(&"{".repeat(100_000))),
        ("brackets", body(&format!("d[0] = {}1u{};", "(".repeat(10_000), ")".repeat(10_000)))),
        ("operators", chain(" + d[2]", 10_000)),
        ("operators", body(&format!("d[0] = {}d[0];", "~".repeat(100_000)))),
        ("angle brackets", format!("var<private> a: {}u32{};", "t<1,".repeat(600), ">".repeat(600))),
        ("branches", body(&format!("if d[0] == 1u {{}} {}", "else if d[0] == 2u {} ".repeat(10_000)))),
        ("bytes of WGSL", " ".repeat(limit::GPU_SHADER_BYTES_MAX + 1)),
        ("expected", String::from("fn {")),
        ("expected global item", String::from("\u{0}\u{ffff}\u{202e}")),
        ("no definition", body("nothing();")),
        (
            "cyclic",
            String::from("fn f() { g(); } fn g() { f(); } @compute @workgroup_size(1) fn h() { f(); }"),
        ),
        (
            "no compute entry point",
            String::from("@vertex fn v() -> @builtin(position) vec4<f32> { return vec4(0.0); }"),
        ),
        (
            "only buffers",
            String::from(
                "@group(0) @binding(0) var t: texture_storage_2d<rgba8unorm, write>;
             @compute @workgroup_size(1) fn f() { textureStore(t, vec2(0, 0), vec4(0.0)); }",
            ),
        ),
        (
            "@group(4000000000)",
            String::from(
                "@group(4000000000) @binding(0) var<storage, read_write> d: u32;
             @compute @workgroup_size(1) fn f() { d = 1u; }",
            ),
        ),
        ("shader `harm`", String::from("var<workgroup> w: array<u32, 4000000000>;")),
    ];
    for (message, wgsl) in cases {
        let refused = bench.session.create_shader("harm", &wgsl).await.map(drop);
        let error = refused.expect_err(message);
        assert!(error.message.contains("shader `harm`") && error.message.len() < 5000, "{error:?}");
        fails(Err::<(), _>(error), SHADER.0, SHADER.1, message);
        check_healthy(&mut bench.session).await;
    }
    check_healthy(&mut bench.neighbour).await;
}

#[tokio::test]
async fn pipelines_that_mean_harm() {
    let mut bench = Bench::new().await;
    let entry = |attributes: &str, body: &str| {
        format!(
            "override k: u32 = 1; var<workgroup> w: array<u32, 1000000>; @compute {attributes} fn f() {{ {body} }}"
        )
    };
    let cases = [
        ("f", vec![], entry("@workgroup_size(100000)", "")),
        ("f", vec![], entry("@workgroup_size(1)", "w[0] = 1u;")),
        ("g", vec![], entry("@workgroup_size(1)", "")),
        ("", vec![], entry("@workgroup_size(1)", "")),
        ("f", vec![("k", f64::NAN)], entry("@workgroup_size(k)", "")),
        ("f", vec![("k", f64::INFINITY)], entry("@workgroup_size(k)", "")),
        ("f", vec![("k", -1.0)], entry("@workgroup_size(k)", "")),
        ("f", vec![("k", 0.0)], entry("@workgroup_size(k)", "")),
        ("f", vec![("k", 1e9)], entry("@workgroup_size(k)", "")),
        ("f", vec![("unknown", 1.0)], entry("@workgroup_size(1)", "")),
    ];
    for (name, constants, wgsl) in cases {
        // Some of it is found out already when the shader is read.
        let made: Result<(), Error> = async {
            let (shader, _) = bench.session.create_shader("harm", &wgsl).await?;
            let constants = constants.iter().map(|(name, value)| (String::from(*name), *value)).collect();
            let spec = PipelineSpec { constants, ..spec(shader, name) };
            bench.session.create_pipeline(spec).await.map(drop)
        }
        .await;
        let error = made.expect_err(&format!("{name} {constants:?} {wgsl}"));
        assert_eq!((error.kind, error.code), SHADER, "{error:?}");
        check_healthy(&mut bench.session).await;
    }
    check_healthy(&mut bench.neighbour).await;
}

#[tokio::test]
async fn memory_is_each_jobs_own_and_comes_back() {
    let gpu = gpu(settings(3)).await;
    let (mut one, mut two) = (open(&gpu, "greedy").await, open(&gpu, "greedy").await);
    let mut neighbour = open(&gpu, "neighbour").await;
    let first = one.create_buffer("half", 32 << 20, STORAGE).await.expect("half of the memory");
    let second = two.create_buffer("half", 32 << 20, STORAGE).await.expect("the other half");
    fails(one.create_buffer("more", 4, STORAGE).await, MEMORY.0, MEMORY.1, "device memory");
    fails(two.create_buffer("more", 4, STORAGE).await, MEMORY.0, MEMORY.1, "device memory");
    let own = neighbour.create_buffer("its own", 64 << 20, STORAGE).await.expect("another job's memory");
    neighbour.drop_handle(own).await.expect("dropped");
    one.drop_handle(first).await.expect("dropped");
    two.drop_handle(second).await.expect("dropped");
    for _ in 0..20 {
        let all = two.create_buffer("all", 64 << 20, STORAGE).await.expect("all of the memory");
        two.write(all, 0, vec![1; 1 << 20].into()).await.expect("written");
        two.drop_handle(all).await.expect("dropped");
    }
    // What a session leaves behind is free as well, whichever way it ends.
    one.create_buffer("all", 64 << 20, STORAGE).await.expect("all of the memory");
    drop(one);
    two.create_buffer("all", 64 << 20, STORAGE).await.expect("all of the memory");
    two.close().await;
    let mut three = open(&gpu, "greedy").await;
    three.create_buffer("all", 64 << 20, STORAGE).await.expect("all of the memory");
    check_healthy(&mut neighbour).await;
}

#[tokio::test]
async fn handles_are_counted() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "handles").await;
    for held in 0..limit::GPU_HANDLES_MAX {
        session.create_shader("none", "").await.unwrap_or_else(|e| panic!("{held} are held: {e:?}"));
    }
    fails(session.create_shader("none", "").await, MEMORY.0, MEMORY.1, "drop some");
    check_full_shaders(&mut session).await;
}

/// Other kinds have room.
async fn check_full_shaders(session: &mut Session) {
    let buffer = session.create_buffer("small", 4, STORAGE).await.expect("a buffer");
    assert_eq!(session.read(buffer, 0, 4).await.expect("read").len(), 4);
}

#[tokio::test]
async fn a_kernel_without_an_end_costs_its_own_session_only() {
    let settings = settings(2);
    let gpu = gpu(fanfold_gpu::Settings { submission: Duration::from_millis(500), ..settings }).await;
    let mut neighbour = open(&gpu, "neighbour").await;
    let mut session = open(&gpu, "hostile").await;
    let kernel = Kernel::new(&mut session, ENDLESS, "endless", 256).await.expect("a kernel");
    let submission = session.submit(vec![kernel.run_for_ever()]).await.expect("submitted");
    check_healthy(&mut neighbour).await;
    let end = session.wait(submission).await;
    assert!(end.as_ref().is_err_and(|error| error.retryable), "{end:?}");
    fails(end, Kind::Limit, Code::GpuTime, "submission 1 took over 0.5 s");
    // Every later call says the same.
    fails(session.read(kernel.buffer, 0, 4).await, Kind::Limit, Code::GpuTime, "submission 1");
    session.close().await;
    check_healthy(&mut neighbour).await;
    // A read that waits for such a kernel does not wait for ever, and nobody has to ask for the end.
    let mut again = open(&gpu, "hostile").await;
    let kernel = Kernel::new(&mut again, ENDLESS, "endless", 256).await.expect("a kernel");
    again.submit(vec![kernel.run_for_ever()]).await.expect("submitted");
    fails(again.read(kernel.buffer, 0, 4).await, Kind::Limit, Code::GpuTime, "submission");
    drop(again);
    check_healthy(&mut open(&gpu, "hostile").await).await;
    check_healthy(&mut neighbour).await;
    neighbour.close().await;
    gpu.stop().await;
}

#[tokio::test]
async fn a_session_that_is_dropped_half_way_leaves_nothing() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "job").await;
    let kernel = Kernel::new(&mut session, ENDLESS, "endless", 256).await.expect("a kernel");
    session.submit(vec![kernel.run_for_ever()]).await.expect("submitted");
    let given_up = tokio::time::timeout(Duration::from_millis(50), session.read(kernel.buffer, 0, 4)).await;
    assert!(given_up.is_err(), "the kernel ended");
    drop(session);
    check_healthy(&mut open(&gpu, "job").await).await;
    gpu.stop().await;
}

#[tokio::test]
async fn what_a_session_leaves_running_is_not_held_against_the_next_one() {
    let budget = Duration::from_millis(400);
    let gpu = gpu(fanfold_gpu::Settings { submission: budget, ..settings(1) }).await;
    let mut first = open(&gpu, "job").await;
    let kernel = Kernel::new(&mut first, DOUBLE, "double", 256).await.expect("a kernel");
    first.submit(vec![kernel.run(65_535)]).await.expect("submitted");
    first.close().await;
    let mut next = open(&gpu, "job").await;
    fails(next.read(kernel.buffer, 0, 4).await, INVALID.0, INVALID.1, "no such buffer");
    let buffer = next.create_buffer("data", 64, STORAGE).await.expect("a buffer");
    let end = std::time::Instant::now() + 2 * budget;
    while std::time::Instant::now() < end {
        next.read(buffer, 0, 64).await.expect("the worker is there");
    }
}

#[tokio::test]
async fn ends_that_are_not_kept_are_not_made_up() {
    const MORE: u64 = 1024;
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "job").await;
    let buffer = session.create_buffer("data", 64, STORAGE).await.expect("a buffer");
    let zero = || vec![Command::Zero { buffer, offset: 0, length: 4 }];
    let first = session.submit(zero()).await.expect("submitted");
    let mut last = first;
    for _ in 0..MORE {
        last = session.submit(zero()).await.expect("submitted");
        session.wait(last).await.expect("done");
    }
    fails(session.wait(first).await, INVALID.0, INVALID.1, "not known any more");
    session.wait(last).await.expect("the last is known");
    check_healthy(&mut session).await;
}

#[tokio::test]
async fn submissions_without_an_end_do_not_pile_up() {
    let gpu = gpu(fanfold_gpu::Settings { submission: Duration::from_secs(2), ..settings(1) }).await;
    let mut session = open(&gpu, "job").await;
    let kernel = Kernel::new(&mut session, ENDLESS, "endless", 256).await.expect("a kernel");
    let mut accepted = 0;
    let refused = loop {
        match session.submit(vec![kernel.run_for_ever()]).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    // Some drivers queue them, until there are as many as there may be; for others a submission waits for the one before, until time
    // is up.
    assert_eq!((refused.kind, refused.code), (Kind::Limit, Code::GpuTime), "{refused:?}");
    assert!((1..=limit::GPU_SUBMISSIONS_MAX).contains(&accepted), "{accepted} were accepted");
    drop(session);
    check_healthy(&mut open(&gpu, "job").await).await;
    gpu.stop().await;
}

#[tokio::test]
async fn workers_that_do_not_start_are_errors() {
    let gpu = |command: &[&str]| {
        let command = command.iter().map(Into::into).collect();
        fanfold_gpu::Gpu::new(fanfold_gpu::Settings { command, ..settings(1) })
    };
    let open = async |gpu: fanfold_gpu::Gpu| gpu.open(&Owner("job".into()), Software::Allow).await;
    fails(open(gpu(&[])).await, Kind::Platform, Code::Internal, "no command");
    fails(open(gpu(&["/nonexistent"])).await, Kind::Platform, Code::Internal, "does not start");
    fails(
        open(gpu(&["sh", "-c", "echo last words >&2; exit 3"])).await,
        Kind::Lost,
        Code::GpuLost,
        "last words",
    );
    fails(open(gpu(&["sh", "-c", "kill -KILL $$"])).await, Kind::Lost, Code::GpuLost, "signal: 9");
    // Its socket is its standard input: this sends our own words back.
    fails(open(gpu(&["sh", "-c", "exec cat <&0 >&0"])).await, Kind::Lost, Code::GpuLost, "ended");
}
