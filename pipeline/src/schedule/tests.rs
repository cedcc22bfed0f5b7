//! The modes against each other, and the promises, in virtual time.

use super::{
    Limits, Mode, Shape, Slice,
    sim::{self, Ran, Work},
};

const MODES: [Mode; 5] = [Mode::Full, Mode::Staged, Mode::Static, Mode::NoRepartition, Mode::NoAdaptive];
/// Those that split what a task makes.
const SPLITTING: [Mode; 4] = [Mode::Full, Mode::Staged, Mode::Static, Mode::NoAdaptive];
const MB: u64 = 1_000_000;
/// What the benchmark takes at least: 160 × (0.5 + 0.25) s on 8 slots.
const BOUND_SECONDS: f64 = 15.0;

fn shape(name: &str, needs: [u32; 2]) -> Shape {
    Shape { name: name.into(), needs: needs.into(), batch: 1, stateful: false, rows_max: None, sink: false }
}

fn limits(mode: Mode, memory_bytes: u64) -> Limits {
    let capacity = vec![8, 4];
    Limits { mode, memory_bytes, target_bytes: 10 * MB, capacity, keyed: false, ordered: false }
}

/// The published memory benchmark, scaled by ten: loads of 0.5 s that make 500 rows of 100 KB, then 0.05 s a hundred
/// rows on a processor and as much on one of 4 accelerators.
fn benchmark() -> Vec<Work> {
    let work = |name, needs, row_us, row_bytes| Work {
        shape: shape(name, needs),
        row_us,
        start_us: 0,
        row_bytes,
        fan: 1,
    };
    let mut last = work("infer", [0, 1], 500, |_, _| 8);
    last.shape.batch = 100;
    vec![work("load", [1, 0], 1000, |_, _| 100_000), work("transform", [1, 0], 500, |_, _| 100_000), last]
}

fn run(works: &[Work], limits: Limits) -> Ran {
    sim::run(works, limits, 160, 500).unwrap_or_else(|stuck| panic!("{stuck:?}"))
}

fn rows(left: &[Slice]) -> u64 {
    left.iter().map(|slice| slice.rows.end).sum()
}

#[test]
fn the_benchmark_is_near_its_bound_and_every_ablation_is_visibly_worse() {
    for (megabytes, whole_least) in [(600, 1.3), (800, 1.1), (1000, 1.05), (1600, 1.05)] {
        let [full, staged, fixed, whole, greedy] = MODES.map(|mode| {
            let ran = run(&benchmark(), limits(mode, megabytes * MB));
            assert_eq!(rows(&ran.left), 160 * 500, "{mode:?} at {megabytes} MB");
            ran.seconds / BOUND_SECONDS
        });
        println!("{megabytes} MB: {full:.2} {staged:.2} {fixed:.2} {whole:.2} {greedy:.2}");
        assert!(full < 1.03, "full at {megabytes} MB: {full}");
        assert!(staged > 1.5, "staged at {megabytes} MB: {staged}");
        assert!(fixed > 1.3, "static at {megabytes} MB: {fixed}");
        assert!(whole > whole_least, "no-repartition at {megabytes} MB: {whole}");
        assert!(greedy > 1.3, "no-adaptive at {megabytes} MB: {greedy}");
    }
}

/// The balanced pipeline of `functions/pipeline-balance`: connections, slots and accelerators each have 12 s of work. One stage
/// at a time is three times as slow, and waits for the last task of each stage in every wave.
#[test]
fn three_balanced_resources_at_once_are_two_and_a_half_times_as_fast_as_one_after_the_other() {
    let work = |name, needs: [u32; 3], row_us, row_bytes| Work {
        shape: Shape { needs: needs.into(), ..shape(name, [0, 0]) },
        row_us,
        start_us: 0,
        row_bytes,
        fan: 1,
    };
    let mut infer = work("infer", [0, 1, 0], 1000, |_, _| 8);
    (infer.shape.batch, infer.shape.stateful, infer.start_us) = (100, true, 25_000);
    let works = [
        work("fetch", [0, 0, 1], 4000, |_, _| 10_000),
        work("decode", [1, 0, 0], 2000, |_, _| 10_000),
        infer,
    ];
    let [full, staged] = [Mode::Full, Mode::Staged].map(|mode| {
        let limits = Limits { target_bytes: MB, capacity: vec![4, 2, 8], ..limits(mode, 60 * MB) };
        let ran = sim::run(&works, limits, 120, 200).unwrap_or_else(|stuck| panic!("{stuck:?}"));
        assert_eq!(rows(&ran.left), 120 * 200, "{mode:?}");
        ran.seconds
    });
    println!("full {full:.2} s, staged {staged:.2} s of at least 12 s: {:.2}", staged / full);
    assert!(staged >= 2.5 * full, "{staged} and {full}");
}

/// The budget: where accelerators are scarce, more input before them makes nothing faster and fills the memory.
#[test]
fn memory_is_not_filled_where_that_makes_nothing_faster() {
    let mut works = benchmark();
    works[2].row_us *= 3;
    let bound = 160.0 * 500.0 * 1500e-6 / 4.0;
    let [full, greedy] = [Mode::Full, Mode::NoAdaptive].map(|mode| run(&works, limits(mode, 1600 * MB)));
    assert!(
        full.seconds / bound < 1.02 && full.peak_bytes < 500 * MB,
        "{} {}",
        full.seconds,
        full.peak_bytes
    );
    assert!(greedy.peak_bytes > 1500 * MB, "{}", greedy.peak_bytes);
}

/// Rows of 150 MB, fifteen times what a task is granted, at each stage.
#[test]
fn a_row_larger_than_its_share_gets_through_and_one_larger_than_the_memory_is_named() {
    for stage in 0..3 {
        for mode in SPLITTING {
            for ordered in [false, true] {
                let mut works = benchmark();
                let small = [100_000, 100_000, 8][stage];
                works[stage].row_bytes = match small {
                    8 => |split, row| if (split, row) == (7, 33) { 150 * MB } else { 8 },
                    _ => |split, row| if (split, row) == (7, 33) { 150 * MB } else { 100_000 },
                };
                let keyed = Limits { keyed: true, ordered, ..limits(mode, 600 * MB) };
                let ran = sim::run(&works, keyed.clone(), 20, 500);
                let ran = ran.unwrap_or_else(|stuck| panic!("{mode:?}, stage {stage}: {stuck:?}"));
                assert_eq!(rows(&ran.left), 20 * 500, "{mode:?}, stage {stage}");
                let stuck =
                    sim::run(&works, Limits { memory_bytes: 140 * MB, ..keyed }, 20, 500).unwrap_err();
                assert!(stuck.wants_bytes > 140 * MB, "{mode:?}, stage {stage}: {stuck:?}");
            }
        }
    }
}

/// Each row of the input becomes 30 of as many bytes: output is split within a row.
#[test]
fn expanding_stages_stay_below_the_limit_and_lose_nothing() {
    for mode in SPLITTING {
        let mut works = benchmark();
        works[1].fan = 30;
        works[1].row_bytes = |_, _| MB;
        let ran = sim::run(&works, limits(mode, 300 * MB), 4, 100).unwrap();
        assert_eq!(rows(&ran.left), 4 * 100 * 30, "{mode:?}");
    }
}

/// Every row of the input becomes one of a quarter of the memory, which nobody knows before.
#[test]
fn a_stage_whose_rows_are_all_large_gets_through() {
    for mode in SPLITTING {
        let mut works = benchmark();
        works[1].row_bytes = |_, _| 150 * MB;
        let ran = sim::run(&works, limits(mode, 600 * MB), 20, 20);
        let ran = ran.unwrap_or_else(|stuck| panic!("{mode:?}: {stuck:?}"));
        assert_eq!(rows(&ran.left), 20 * 20, "{mode:?}");
    }
}

/// Batches of 20 MB where the target is 10 MB: no second one is tried with less.
#[test]
fn batches_larger_than_the_target_raise_the_grant() {
    let mut works = benchmark();
    works[1].shape.batch = 200;
    let ran = run(&works, limits(Mode::Full, 400 * MB));
    assert_eq!(rows(&ran.left), 160 * 500);
    // 800 loads, 400 transforms, 400 inferences, and as many tries as transforms ran at once before the first one said so.
    assert!(ran.tasks <= 1600 + 8, "{}", ran.tasks);
    assert!(ran.seconds < 1.05 * BOUND_SECONDS, "{}", ran.seconds);
}

#[test]
fn ordered_rows_leave_in_order_and_every_split_is_reported_done_once() {
    for memory in [200 * MB, 600 * MB] {
        let mut works = benchmark();
        works[1].fan = 3;
        let limits = Limits { keyed: true, ordered: true, ..limits(Mode::Full, memory) };
        let ran = sim::run(&works, limits, 12, 500).unwrap();
        assert!(ran.left.is_sorted_by(|a, b| a.key < b.key));
        assert_eq!(rows(&ran.left), 12 * 500 * 3);
        let mut done = ran.done_splits;
        done.sort_unstable();
        assert_eq!(done, (0..12).collect::<Vec<_>>());
    }
}

#[test]
fn a_limit_of_rows_ends_the_pipeline_early() {
    let mut works = benchmark();
    works[1].shape.rows_max = Some(1234);
    let ran = run(&works, limits(Mode::Full, 600 * MB));
    assert_eq!(rows(&ran.left), 1234);
    assert!(ran.tasks < 60, "{}", ran.tasks);
}

/// A stage that loads its state for a second is given much at a time where much waits.
#[test]
fn stateful_tasks_serve_many_inputs() {
    let mut works = benchmark();
    works[2].start_us = 1_000_000;
    let seconds = |stateful| {
        works[2].shape.stateful = stateful;
        run(&works, limits(Mode::Full, 1600 * MB)).seconds
    };
    let [fresh, served] = [false, true].map(seconds);
    assert!(served < fresh / 3.0, "{served} {fresh}");
}

/// Pipelines of all kinds, from a seed: nothing is lost, nothing is there twice, nothing waits for ever; that the limit
/// holds is checked at every step of the simulation.
#[test]
fn any_pipeline_passes_every_row_on_once() {
    let sizes: [fn(u64, u64) -> u64; 4] = [
        |_, _| 1_000,
        |split, row| 500 + (split * 31 + row * 17) % 3_000,
        |_, row| if row % 50 == 7 { 200_000 } else { 100 },
        |split, _| if split % 3 == 0 { 20_000 } else { 10 },
    ];
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for case in 0..600 {
        let stages = 1 + random(4) as usize;
        let work = |n: usize, random: &mut dyn FnMut(u64) -> u64| Work {
            shape: Shape {
                batch: [1, 1, 7, 20][random(4) as usize],
                stateful: random(3) == 0,
                ..shape(&n.to_string(), [[1, 0], [2, 0], [0, 1]][random(3) as usize])
            },
            row_us: 1 + random(1000),
            start_us: random(5000),
            row_bytes: sizes[random(4) as usize],
            fan: if n == 0 { 1 } else { [1, 1, 2, 3, 0][random(5) as usize] },
        };
        let works: Vec<Work> = (0..stages).map(|n| work(n, &mut random)).collect();
        let mode = SPLITTING[random(4) as usize];
        let keyed = random(2) == 0;
        let ordered = keyed && random(2) == 0;
        // The largest batch becomes 12 MB, of 4 MB: so little that it is more than its share.
        let memory = 26 * MB + random(60) * MB;
        let limits =
            Limits { target_bytes: 100_000 + random(3_000_000), keyed, ordered, ..limits(mode, memory) };
        let (splits, each) = (1 + random(9) as u32, random(120));
        let what = format!("case {case}: {mode:?}, keyed {keyed}, ordered {ordered}, {works:?}");
        let ran = sim::run(&works, limits, splits, each).unwrap_or_else(|stuck| panic!("{what}: {stuck:?}"));
        let fans: u64 = works.iter().map(|work| work.fan).product();
        assert_eq!(rows(&ran.left), u64::from(splits) * each * fans, "{what}");
        assert!(!ordered || ran.left.is_sorted_by(|a, b| a.key < b.key), "{what}");
        assert!(!keyed || ran.done_splits.len() == splits as usize, "{what}");
    }
}
