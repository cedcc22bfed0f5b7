//! Whole pipelines in one process: the same rows in every mode, what happens to rows that fail, order, limits, and going on
//! where an earlier run ended.

use std::{cell::RefCell, collections::BTreeSet};

use fanfold::{Call, ErrorKind, Inputs, Partition, Result, objects};
use serde::{Deserialize, Serialize};

use crate::{
    Mode, Needs, OnError, Output, Pipeline, Report, Rows, Settings, Tasks, Work, dead_letter, run,
    schedule::{Engine, Input},
    task::Given,
};

const MODES: [Mode; 5] = [Mode::Full, Mode::Staged, Mode::Static, Mode::NoRepartition, Mode::NoAdaptive];

/// What the tests ask for; a split is a run of numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Spec {
    /// Rows are this long, except one.
    row_bytes: usize,
    /// This number's row is this long.
    giant: Option<(u32, usize)>,
    /// The middle step fails on multiples of this.
    fails: Option<u32>,
    skip: Option<u64>,
    limit: Option<u64>,
    write: Option<String>,
}

type Split = (u32, u32);

impl Spec {
    fn row(&self, n: u32) -> Vec<u8> {
        let length = self.giant.filter(|giant| giant.0 == n).map_or(self.row_bytes, |giant| giant.1);
        let mut row = n.to_le_bytes().to_vec();
        row.resize(length.max(4), n as u8);
        row
    }

    /// Odd numbers twice, those under a hundred not at all; then, in batches of 7, with the numbers' size as their state.
    fn pipeline(&self) -> Pipeline<Split> {
        let (spec, fails) = (self.clone(), self.fails);
        let pipeline = Pipeline::read(Needs::cpu(1000), move |&(from, to): &Split, row| {
            let spec = spec.clone();
            Ok(Box::new((from + row as u32..to).map(move |n| Ok(spec.row(n)))))
        })
        .filter("large", |row| Ok(number(row) >= 100))
        .flat_map("twice", move |row| {
            let n = number(row);
            match fails {
                Some(of) if n.is_multiple_of(of) => Err(fanfold::Error::guest(format!("{n} will not do"))),
                _ => Ok(vec![row.to_vec(); 1 + n as usize % 2]),
            }
        })
        .needs(Needs::cpu(10).gpu(1))
        .map_batches(
            "cut",
            7,
            || Ok(4),
            |size: &mut usize, rows| Ok(rows.iter().map(|row| row[..*size].to_vec()).collect()),
        )
        .on_error(self.skip.map_or(OnError::Fail, OnError::Skip));
        let pipeline = match self.limit {
            Some(rows) => pipeline.limit(rows),
            None => pipeline,
        };
        match &self.write {
            Some(prefix) => {
                pipeline.needs(Needs::cpu(1000)).map("keep", |row| Ok(row.to_vec())).write(prefix)
            }
            None => pipeline,
        }
    }
}

fn number(row: &[u8]) -> u32 {
    row.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[fanfold::task]
fn stage(spec: Spec, work: Work<Split>, inputs: Inputs<Partition>) -> Result<Output> {
    CALLS.with_borrow_mut(|calls| *calls += 1);
    if CALLS.with_borrow(|calls| *calls) > DIES_AFTER.with_borrow(|after| *after) {
        return Err(fanfold::Error::guest("the test ends here"));
    }
    spec.pipeline().run(&work, &inputs)
}

thread_local! {
    static CALLS: RefCell<u64> = const { RefCell::new(0) };
    static DIES_AFTER: RefCell<u64> = const { RefCell::new(u64::MAX) };
}

struct Calls<'a>(&'a Spec);

impl Tasks for Calls<'_> {
    type Split = Split;

    fn stage(&self, work: Work<Split>, inputs: Vec<Partition>) -> Call<Output> {
        stage::call(self.0, work, inputs)
    }
}

const SPLITS: [Split; 4] = [(0, 150), (150, 151), (151, 151), (151, 500)];

fn settings(mode: Mode, memory_bytes: u64) -> Settings {
    let capacity = Needs::cpu(4000).gpu(1);
    Settings { mode, target_bytes: memory_bytes / 20, ..Settings::new(memory_bytes, capacity) }
}

/// Runs it; what comes out, in the order in which it does.
fn numbers(spec: &Spec, settings: &Settings) -> Result<(Vec<u32>, Report)> {
    let mut numbers = Vec::new();
    let report = run(&Calls(spec), &spec.pipeline(), &SPLITS, settings, |piece| {
        piece.open()?.try_for_each(|row| {
            numbers.push(number(&row?));
            Ok(())
        })
    })?;
    assert!(report.peak_bytes <= settings.memory_bytes);
    Ok((numbers, report))
}

fn expected() -> Vec<u32> {
    (100..500).flat_map(|n| vec![n; 1 + n as usize % 2]).collect()
}

#[test]
fn all_modes_make_the_same_rows_and_ordered_ones_in_order() {
    let spec = Spec { row_bytes: 1000, ..Spec::default() };
    for mode in MODES {
        let (mut made, report) = numbers(&spec, &settings(mode, 1_000_000)).unwrap();
        made.sort_unstable();
        assert_eq!(made, expected(), "{mode:?}");
        assert_eq!(report.rows, expected().len() as u64);
        let names: Vec<&str> = report.stages.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["read+large+twice", "cut"], "steps with equal needs are one stage");
        let ordered = Settings { ordered: true, ..settings(mode, 1_000_000) };
        assert_eq!(numbers(&spec, &ordered).unwrap().0, expected(), "{mode:?}");
    }
}

#[test]
fn a_row_larger_than_a_partition_gets_through_and_one_larger_than_the_memory_is_named() {
    let spec = Spec { row_bytes: 1000, giant: Some((333, 300_000)), ..Spec::default() };
    for ordered in [false, true] {
        let settings = Settings { ordered, ..settings(Mode::Full, 1_000_000) };
        let mut made = numbers(&spec, &settings).unwrap().0;
        made.sort_unstable();
        assert_eq!(made, expected());
        let error = numbers(&spec, &Settings { memory_bytes: 250_000, ..settings }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        assert!(error.message.contains("stage `read+large+twice` needs 300004 bytes"), "{error}");
    }
}

#[test]
fn a_row_that_fails_is_named_or_given_up_with_its_reason() {
    let spec = Spec { row_bytes: 500, fails: Some(97), ..Spec::default() };
    let error = numbers(&spec, &settings(Mode::Full, 200_000)).unwrap_err();
    for part in
        ["stage `read+large+twice`, split 3 from row", "step `twice`, batch at row 43", "194 will not do"]
    {
        assert!(error.message.contains(part), "{error}");
    }
    let spec = Spec { skip: Some(4), ..spec };
    for ordered in [false, true] {
        let settings = Settings { ordered, ..settings(Mode::Full, 200_000) };
        let (mut made, report) = numbers(&spec, &settings).unwrap();
        made.sort_unstable();
        assert_eq!(made, expected().into_iter().filter(|n| n % 97 != 0).collect::<Vec<_>>());
        let mut dead = BTreeSet::new();
        for row in report.dead.iter().flat_map(|partition| Rows::open(partition, None).unwrap()) {
            let row = row.unwrap();
            let (reason, row) = dead_letter(&row).unwrap();
            assert_eq!((&*reason.step, reason.error), ("twice", format!("{} will not do", number(row))));
            assert!(dead.insert(number(row)), "once");
        }
        assert_eq!((report.skipped, dead), (4, BTreeSet::from([194, 291, 388, 485])));
    }
    let few = Spec { skip: Some(3), ..spec };
    assert!(numbers(&few, &settings(Mode::Full, 200_000)).unwrap_err().message.contains("at most 3"));
}

#[test]
fn a_limit_passes_on_so_many_rows() {
    let spec = Spec { row_bytes: 1000, limit: Some(123), ..Spec::default() };
    let made = numbers(&spec, &settings(Mode::Full, 200_000)).unwrap().0;
    assert_eq!(made.len(), 123);
    assert!(made.iter().all(|n| (100..500).contains(n)));
}

/// Written objects, one after the other by name.
fn written(prefix: &str) -> Vec<u32> {
    let objects: Vec<_> = objects::list(prefix).map(Result::unwrap).collect();
    let bytes = objects.iter().flat_map(|object| objects::open(&*object.key).unwrap().bytes().unwrap());
    bytes.collect::<Vec<_>>().as_chunks().0.iter().map(|row| u32::from_le_bytes(*row)).collect()
}

#[test]
fn a_pipeline_that_is_submitted_again_goes_on_where_it_ended() {
    let spec = Spec { row_bytes: 1000, write: Some("out/".into()), ..Spec::default() };
    let settings = Settings { checkpoint: Some("done/".into()), ..settings(Mode::Full, 400_000) };
    let calls = || CALLS.replace(0);
    numbers(&spec, &settings).unwrap();
    let all = calls();
    assert_eq!(written("out/"), expected());

    fanfold::native::reset();
    DIES_AFTER.set(all - 8);
    numbers(&spec, &settings).unwrap_err();
    DIES_AFTER.set(u64::MAX);
    calls();
    let report = numbers(&spec, &settings).unwrap().1;
    assert!(report.resumed >= 1 && report.splits + report.resumed == SPLITS.len() as u64, "{report:?}");
    assert!(calls() < all, "what was done was not done again");
    assert_eq!(written("out/"), expected(), "nothing is missing, nothing is there twice");

    let report = numbers(&spec, &settings).unwrap().1;
    assert_eq!((report.resumed, calls()), (SPLITS.len() as u64, 1));
    let other = Spec { row_bytes: 1000, write: Some("other/".into()), ..spec };
    assert_eq!(numbers(&other, &settings).unwrap().1.resumed, 0, "another pipeline's splits are not its own");
}

#[test]
fn what_cannot_be_is_refused() {
    let spec = Spec { row_bytes: 1000, ..Spec::default() };
    let settings = settings(Mode::Full, 1_000_000);
    let wrong = [
        (Settings { checkpoint: Some("done/".into()), ..settings.clone() }, "checkpoints are for"),
        (Settings { memory_bytes: 0, ..settings.clone() }, "needs memory"),
        (Settings { capacity: Needs::cpu(4000), ..settings }, "stage `cut` needs"),
    ];
    for (settings, why) in wrong {
        let error = numbers(&spec, &settings).unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.message.contains(why), "{error}");
    }
}

/// Bytes a task reports are those of its partition, so the account is of what there is.
#[test]
fn a_task_counts_the_bytes_it_makes_and_stays_within_its_grant() {
    let spec = Spec { row_bytes: 1000, ..Spec::default() };
    let pipeline = spec.pipeline();
    let shapes = pipeline.shapes(&[4000, 1], &[]).unwrap();
    let limits = crate::schedule::Limits {
        mode: Mode::Full,
        memory_bytes: 200_000,
        target_bytes: 10_500,
        capacity: vec![4000, 1],
        keyed: false,
        ordered: false,
    };
    let mut engine = Engine::new(shapes, limits, 0..1);
    let launch = engine.launch().unwrap();
    assert_eq!(launch.input, Input::Split { split: 0, row: 0, skip: 0 });
    let given = Given::Split((100, 500), 0);
    let work = Work { given, grant: launch.grant, ..Work::checkpoint("") };
    let (ended, made, _) = stage::call(&spec, work, Vec::<Partition>::new()).submit().unwrap();
    let outcome = ended.get().unwrap().outcome;
    assert_eq!(made.as_partition().open().unwrap().size(), outcome.bytes);
    assert!((9_000..=launch.grant).contains(&outcome.bytes), "{outcome:?}");
    // Numbers 100 to 105 are nine rows. Another two might not fit, so it does not look at what 106 becomes.
    let stop = outcome.stop.unwrap();
    assert_eq!((outcome.rows, stop.row, stop.skip), (9, 6, 0));
}
