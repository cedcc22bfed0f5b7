//! What a gpu computes, against the processor; and what stays from one session to the next.

mod common;

use common::*;
use fanfold_gpu::{
    KeptKey, Owner, Session, Software,
    message::{Binding, BindingKind, Command, Dispatch, LayoutEntry, PipelineSpec, Usage, Workgroups},
};
use fanfold_protocol::{Code, Digest, Error, Kind};

/// Tiled multiplication of two `n` × `n` matrices; `n` is a multiple of the tile.
const MATMUL: &str = "
    override tile: u32 = 16;
    struct Size { n: u32 }
    @group(0) @binding(0) var<uniform> size: Size;
    @group(0) @binding(1) var<storage, read> a: array<f32>;
    @group(0) @binding(2) var<storage, read> b: array<f32>;
    @group(1) @binding(0) var<storage, read_write> c: array<f32>;
    var<workgroup> left: array<array<f32, 16>, 16>;
    var<workgroup> right: array<array<f32, 16>, 16>;
    @compute @workgroup_size(16, 16)
    fn multiply(@builtin(global_invocation_id) at: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
        var sum = 0.0;
        for (var t = 0u; t < size.n / tile; t++) {
            left[local.y][local.x] = a[at.y * size.n + t * tile + local.x];
            right[local.y][local.x] = b[(t * tile + local.y) * size.n + at.x];
            workgroupBarrier();
            for (var k = 0u; k < tile; k++) { sum += left[local.y][k] * right[k][local.x]; }
            workgroupBarrier();
        }
        c[at.y * size.n + at.x] = sum;
    }";

fn floats(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn float_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

async fn storage(session: &mut Session, data: &[u8]) -> Result<u64, Error> {
    let buffer = session.create_buffer("matrix", data.len() as u64, STORAGE).await?;
    session.write(buffer, 0, data.to_vec().into()).await?;
    Ok(buffer)
}

#[tokio::test]
async fn a_matrix_product_equals_the_processors() {
    const N: usize = 128;
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "matmul").await;
    let (a, b) = (floats(N * N, 1), floats(N * N, 2));
    let product = async |session: &mut Session| -> Result<Vec<f32>, Error> {
        let uniform = Usage { uniform: true, copy_dst: true, ..Usage::default() };
        let size = session.create_buffer("size", 16, uniform).await?;
        session.write(size, 0, (N as u32).to_le_bytes().to_vec().into()).await?;
        let (left, right) =
            (storage(session, &float_bytes(&a)).await?, storage(session, &float_bytes(&b)).await?);
        let output = session.create_buffer("product", (N * N * 4) as u64, STORAGE).await?;
        let (shader, entries) = session.create_shader("matmul", MATMUL).await?;
        assert_eq!(entries, ["multiply"]);
        let entry = |binding, kind| LayoutEntry { binding, kind };
        let inputs = vec![
            entry(0, BindingKind::Uniform),
            entry(1, BindingKind::ReadOnlyStorage),
            entry(2, BindingKind::ReadOnlyStorage),
        ];
        let layout = Some(vec![inputs, vec![entry(0, BindingKind::Storage)]]);
        let constants = vec![(String::from("tile"), 16.0)];
        let spec = PipelineSpec { layout, constants, ..spec(shader, "multiply") };
        let (pipeline, _) = session.create_pipeline(spec).await?;
        let inputs = vec![whole(0, size), whole(1, left), whole(2, right)];
        let inputs = session.create_bind_group(pipeline, 0, inputs).await?;
        let outputs = session.create_bind_group(pipeline, 1, vec![whole(0, output)]).await?;
        let groups = Workgroups::Direct([(N / 16) as u32, (N / 16) as u32, 1]);
        let timed = session.adapter().timestamps;
        let dispatches = vec![Dispatch { pipeline, groups: vec![inputs, outputs], workgroups: groups }];
        let submission = session.submit(vec![Command::Pass { timed, dispatches }]).await?;
        let times = session.wait(submission).await?;
        assert_eq!(times.len(), usize::from(timed));
        assert!(times.iter().all(|[begin, end]| begin <= end), "{times:?}");
        let bytes = session.read(output, 0, (N * N * 4) as u64).await?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
    };
    let found = product(&mut session).await.expect("a product");
    for (at, found) in found.iter().enumerate() {
        let (row, column) = (at / N, at % N);
        let sum: f64 = (0..N).map(|k| f64::from(a[row * N + k]) * f64::from(b[k * N + column])).sum();
        // Sums of 128 products of numbers below 1: an error of 2⁻²⁴ each.
        assert!((f64::from(*found) - sum).abs() < 1e-4, "{row}, {column}: {found}, not {sum}");
    }
}

#[tokio::test]
async fn commands_take_effect_in_order_and_buffers_begin_as_zeros() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "order").await;
    let kernel = Kernel::new(&mut session, DOUBLE, "double", 1024).await.expect("a kernel");
    let other = session.create_buffer("other", 1024, STORAGE).await.expect("a buffer");
    assert!(session.read(other, 0, 1024).await.expect("read").iter().all(|byte| *byte == 0));
    let input: Vec<u32> = (1..=256).collect();
    session.write(kernel.buffer, 0, bytes(&input).into()).await.expect("written");
    let (source, target) = (kernel.buffer, other);
    let copy = Command::Copy { source, source_offset: 0, target, target_offset: 512, length: 512 };
    let zero = Command::Zero { buffer: source, offset: 0, length: 512 };
    let commands = vec![kernel.run(4), kernel.run(4), copy, zero, kernel.run(4)];
    session.submit(commands).await.expect("submitted");
    // A read waits for what was submitted.
    let quadrupled = numbers(&session.read(other, 0, 1024).await.expect("read"));
    assert_eq!(quadrupled[..128], [0; 128]);
    assert_eq!(quadrupled[128..], input[..128].iter().map(|n| n * 4).collect::<Vec<_>>());
    let rest = numbers(&session.read(source, 0, 1024).await.expect("read"));
    assert_eq!(rest[..128], [0; 128]);
    assert_eq!(rest[128..], input[128..].iter().map(|n| n * 8).collect::<Vec<_>>());
}

#[tokio::test]
async fn counts_on_the_device_decide_an_indirect_dispatch() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "indirect").await;
    let kernel = Kernel::new(&mut session, DOUBLE, "double", 1024).await.expect("a kernel");
    let usage = Usage { indirect: true, copy_dst: true, ..Usage::default() };
    let counts = session.create_buffer("counts", 16, usage).await.expect("a buffer");
    session.write(counts, 4, bytes(&[2, 1, 1]).into()).await.expect("written");
    session.write(kernel.buffer, 0, bytes(&[1; 256]).into()).await.expect("written");
    let workgroups = Workgroups::Indirect { buffer: counts, offset: 4 };
    let submission = session.submit(vec![dispatch(kernel.pipeline, vec![kernel.group], workgroups)]).await;
    session.wait(submission.expect("submitted")).await.expect("done");
    let output = numbers(&session.read(kernel.buffer, 0, 1024).await.expect("read"));
    assert_eq!(output, [[2; 128], [1; 128]].concat());
    // Larger counts than the adapter takes run nothing, and the end of the submission says so.
    session.write(counts, 4, bytes(&[1, u32::MAX, 1]).into()).await.expect("written");
    let submission = session.submit(vec![dispatch(kernel.pipeline, vec![kernel.group], workgroups)]).await;
    let end = session.wait(submission.expect("submitted")).await;
    fails(end, Kind::Invalid, Code::Gpu, "indirect dispatch 0 of the submission ran nothing");
    let output = numbers(&session.read(kernel.buffer, 0, 1024).await.expect("read"));
    assert_eq!(output, [[2; 128], [1; 128]].concat());
}

#[tokio::test]
async fn pieces_of_any_length_arrive_whole() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "pieces").await;
    let data: Vec<u8> = (0..20_000_003u32).map(|n| (n % 251) as u8).collect();
    let buffer = session.create_buffer("data", 20_000_016, STORAGE).await.expect("a buffer");
    let mut rest = bytes::Bytes::from(data.clone());
    let mut pieces = Vec::new();
    for length in
        [1, 2, 1, 3, 7, 0, 1 << 20, (1 << 20) + 1, 9 << 20].into_iter().chain(std::iter::repeat(999_999))
    {
        if rest.is_empty() {
            break;
        }
        pieces.push(Ok(rest.split_to(length.min(rest.len()))));
    }
    let loaded = session.load(buffer, 8, futures::stream::iter(pieces)).await.expect("loaded");
    assert_eq!(loaded, data.len() as u64);
    let mut found = Vec::new();
    while found.len() < data.len() {
        let length = (data.len() - found.len()).min(3_000_000) as u64;
        found.extend_from_slice(&session.read(buffer, 8 + found.len() as u64, length).await.expect("read"));
    }
    assert!(found == data, "the data came back changed");
    // A source that fails leaves a session that goes on.
    let failing = futures::stream::iter([Ok(bytes::Bytes::from(vec![1; 64])), Err(Error::internal("torn"))]);
    fails(session.load(buffer, 0, failing).await, Kind::Platform, Code::Internal, "torn");
    check_healthy(&mut session).await;
}

#[tokio::test]
async fn compiled_pipelines_stay_and_data_does_not() {
    let gpu = gpu(settings(2)).await;
    let mut first = open(&gpu, "job").await;
    let kernel = Kernel::new(&mut first, DOUBLE, "double", 1 << 20).await.expect("a kernel");
    first.write(kernel.buffer, 0, vec![7; 1 << 20].into()).await.expect("written");
    first.close().await;
    let mut second = open(&gpu, "job").await;
    // Handles of the first mean nothing, and its memory is zero again.
    fails(second.read(kernel.buffer, 0, 16).await, Kind::Invalid, Code::Gpu, "no such buffer");
    let (shader, _) = second.create_shader("double", DOUBLE).await.expect("a shader");
    let (_, cached) = second.create_pipeline(spec(shader, "double")).await.expect("a pipeline");
    assert!(cached, "the pipeline was compiled again");
    for _ in 0..8 {
        let fresh = second.create_buffer("fresh", 1 << 20, STORAGE).await.expect("a buffer");
        assert!(second.read(fresh, 0, 1 << 20).await.expect("read").iter().all(|byte| *byte == 0));
    }
    // Another job has a process of its own.
    let mut other = open(&gpu, "another job").await;
    let (shader, _) = other.create_shader("double", DOUBLE).await.expect("a shader");
    let (_, cached) = other.create_pipeline(spec(shader, "double")).await.expect("a pipeline");
    assert!(!cached, "another job's process was used");
    let constants = vec![(String::from("nothing"), 1.0)];
    let odd = PipelineSpec { constants, ..spec(shader, "double") };
    fails(other.create_pipeline(odd).await, Kind::Invalid, Code::Shader, "double");
    second.close().await;
    other.close().await;
    gpu.stop().await;
    let stopped = gpu.open(&Owner("job".into()), Software::Allow).await;
    fails(stopped, Kind::Overloaded, Code::Draining, "stopping");
}

#[tokio::test]
async fn software_is_used_only_where_it_will_do() {
    let gpu = gpu(settings(1)).await;
    if gpu.adapter().await.is_ok_and(|adapter| adapter.software) {
        let refused = gpu.open(&Owner("strict".into()), Software::Refuse).await;
        fails(refused, Kind::Conflict, Code::GpuAdapter, "gpu.software");
        check_healthy(&mut open(&gpu, "easy").await).await;
    } else {
        let mut session = gpu.open(&Owner("strict".into()), Software::Refuse).await.expect("hardware");
        check_healthy(&mut session).await;
    }
}

#[tokio::test]
async fn parts_of_buffers_are_bound_as_asked() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "parts").await;
    let alignment = u64::from(session.adapter().limits.min_storage_buffer_offset_alignment);
    let kernel = Kernel::new(&mut session, DOUBLE, "double", 4 * alignment).await.expect("a kernel");
    let words = (4 * alignment / 4) as usize;
    session.write(kernel.buffer, 0, bytes(&vec![1; words]).into()).await.expect("written");
    let part = Binding { binding: 0, buffer: kernel.buffer, offset: alignment, size: Some(alignment) };
    let group = session.create_bind_group(kernel.pipeline, 0, vec![part]).await.expect("a group");
    let run = dispatch(kernel.pipeline, vec![group], Workgroups::Direct([words as u32, 1, 1]));
    session.submit(vec![run]).await.expect("submitted");
    let found = numbers(&session.read(kernel.buffer, 0, 4 * alignment).await.expect("read"));
    let quarter = words / 4;
    assert_eq!(found, [vec![1; quarter], vec![2; quarter], vec![1; 2 * quarter]].concat());
}

/// Numbers of 16 bits as the adapter computes them, and as every adapter packs them into words.
#[tokio::test]
async fn numbers_of_16_bits_are_computed_where_the_adapter_has_them() {
    let halve = "enable f16;
        @group(0) @binding(0) var<storage, read_write> data: array<vec2<f16>>;
        @compute @workgroup_size(64) fn halve(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = data[id.x] * 0.5h; }
        }";
    let packed = "
        @group(0) @binding(0) var<storage, read_write> data: array<u32>;
        @compute @workgroup_size(64) fn halve(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&data) { data[id.x] = pack2x16float(unpack2x16float(data[id.x]) * 0.5); }
        }";
    // 1 and 1.5 in each word; half of them is one less in the exponent.
    let (input, output) = (vec![0x3e00_3c00; 64], vec![0x3a00_3800; 64]);
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "f16").await;
    for wgsl in [halve, packed] {
        let kernel = Kernel::new(&mut session, wgsl, "halve", 256).await;
        if wgsl == halve && !session.adapter().f16 {
            fails(kernel, Kind::Invalid, Code::Shader, "f16");
            continue;
        }
        let kernel = kernel.expect("a kernel");
        session.write(kernel.buffer, 0, bytes(&input).into()).await.expect("written");
        session.submit(vec![kernel.run(1)]).await.expect("submitted");
        assert_eq!(numbers(&session.read(kernel.buffer, 0, 256).await.expect("read")), output, "{wgsl}");
    }
}

fn weights(usage: Usage) -> KeptKey {
    KeptKey { source: Digest::of(b"weights"), offset: 0, length: WEIGHTS, usage }
}

const WEIGHTS: u64 = 24 << 20;
const READ: Usage = Usage { copy_src: true, copy_dst: false, storage: true, uniform: false, indirect: false };
const SUM: &str = "
    @group(0) @binding(0) var<storage, read> weights: array<u32>;
    @group(0) @binding(1) var<storage, read_write> sum: array<u32>;
    @compute @workgroup_size(1) fn add() { sum[0] = weights[0] + weights[arrayLength(&weights) - 1u]; }";

/// The kept weights, and whether they had to be read.
async fn keep_weights(session: &mut Session) -> Result<(u64, bool), Error> {
    let key = weights(READ);
    if let Some(found) = session.kept(&key, "weights").await? {
        return Ok((found, false));
    }
    let usage = Usage { copy_dst: true, ..READ };
    let buffer = session.create_buffer("weights", WEIGHTS, usage).await?;
    session.write(buffer, 0, vec![1; WEIGHTS as usize].into()).await?;
    session.keep(buffer, key).await?;
    Ok((buffer, true))
}

/// What the first and the last number of the weights are together.
async fn sum(session: &mut Session, weights: u64) -> Result<u32, Error> {
    let output = session.create_buffer("sum", 4, STORAGE).await?;
    let (shader, _) = session.create_shader("sum", SUM).await?;
    let (pipeline, _) = session.create_pipeline(spec(shader, "add")).await?;
    let group = session.create_bind_group(pipeline, 0, vec![whole(0, weights), whole(1, output)]).await?;
    session.submit(vec![dispatch(pipeline, vec![group], Workgroups::Direct([1, 1, 1]))]).await?;
    Ok(numbers(&session.read(output, 0, 4).await?)[0])
}

#[tokio::test]
async fn kept_buffers_are_read_once_by_their_job_and_by_no_other_one() {
    let gpu = gpu(settings(2)).await;
    for read in [true, false, false] {
        let mut session = open(&gpu, "mine").await;
        let (kept, was_read) = keep_weights(&mut session).await.expect("weights");
        assert_eq!(was_read, read);
        assert_eq!(sum(&mut session, kept).await.expect("a sum"), 0x0202_0202);
        // Dropped handles are this session's only.
        session.drop_handle(kept).await.expect("dropped");
        session.close().await;
    }
    let mut other = open(&gpu, "other").await;
    assert_eq!(other.kept(&weights(READ), "weights").await.expect("an answer"), None);
    // Its memory is its own as well: all of it is free.
    other.create_buffer("all", 64 << 20, STORAGE).await.expect("a buffer");
}

#[tokio::test]
async fn nobody_writes_to_a_kept_buffer() {
    let gpu = gpu(settings(1)).await;
    let mut session = open(&gpu, "readers").await;
    let (kept, _) = keep_weights(&mut session).await.expect("weights");
    let again = session.kept(&weights(READ), "again").await.expect("an answer").expect("it is there");
    let kernel = Kernel::new(&mut session, DOUBLE, "double", 256).await.expect("a kernel");
    for buffer in [kept, again] {
        let write = session.write(buffer, 0, vec![9; 4].into()).await;
        let zero = session.submit(vec![Command::Zero { buffer, offset: 0, length: 4 }]).await;
        let copy = Command::Copy {
            source: kernel.buffer,
            source_offset: 0,
            target: buffer,
            target_offset: 0,
            length: 4,
        };
        let copy = session.submit(vec![copy]).await;
        let bind = session.create_bind_group(kernel.pipeline, 0, vec![whole(0, buffer)]).await;
        let twice = session.keep(buffer, weights(Usage::default())).await;
        let refused = [write.err(), zero.err(), copy.err(), bind.err(), twice.err()];
        for (n, error) in refused.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("way {n} to write is open"));
            assert_eq!((error.kind, error.code), (Kind::Invalid, Code::Gpu), "way {n}: {error}");
        }
    }
    assert_eq!(sum(&mut session, again).await.expect("a sum"), 0x0202_0202);
}

#[tokio::test]
async fn kept_buffers_make_room_unless_they_are_in_use() {
    let gpu = gpu(settings(2)).await;
    let mut first = open(&gpu, "mine").await;
    keep_weights(&mut first).await.expect("weights");
    // 64 MiB in all, 24 of them in use.
    let error = first.create_buffer("large", 48 << 20, STORAGE).await.expect_err("there is no room");
    assert_eq!((error.kind, error.code), (Kind::Limit, Code::GpuMemory), "{error}");
    first.close().await;

    let mut session = open(&gpu, "mine").await;
    let large = session.create_buffer("large", 48 << 20, STORAGE).await.expect("a buffer");
    assert_eq!(session.kept(&weights(READ), "weights").await.expect("an answer"), None, "they had to go");
    session.drop_handle(large).await.expect("dropped");
    keep_weights(&mut session).await.expect("weights, again");
    // Kept by another, idle process of the job: that one ends.
    let mut second = open(&gpu, "mine").await;
    session.close().await;
    second.create_buffer("large", 64 << 20, STORAGE).await.expect("a buffer");
    check_healthy(&mut open(&gpu, "other").await).await;
}
