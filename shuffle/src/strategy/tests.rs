//! All strategies over one exchange: equal results, and stages that lose something are named.

use std::ops::Range;

use fanfold::{Call, Durability, ErrorKind, Inputs, Outputs, Partition, Result};

use crate::{
    Blocks, Buffers, Column, Columns, Exchange, Layout, Output, Shuffled, Tally, Tasks,
    strategy::{
        auto::{Facts, Plan, Spill, Strategy},
        epochs, merge as riffle, push, push_star, simple, streaming,
    },
    tasks::Made,
};

/// Numbers of four bytes, dealt by hash, sorted by the reducer. Told to, a stage cheats.
#[derive(Clone, Default)]
pub(crate) struct Numbers {
    cheat: String,
}

impl Numbers {
    fn cheats(&self, how: &str) -> bool {
        self.cheat == how
    }
}

impl Exchange for Numbers {
    type Split = Vec<u32>;
    type Reduced = Vec<u32>;
    const WHOLE: bool = true;

    fn map(&self, numbers: Vec<u32>, out: &mut Blocks) -> Result<()> {
        let mut buffers = Buffers::of(out);
        let lost = usize::from(self.cheats("map loses") && numbers.contains(&77));
        for number in &numbers[lost..] {
            buffers.of_key(&number.to_le_bytes(), out.columns().end)?.extend(number.to_le_bytes());
        }
        out.read(4 * numbers.len() as u64);
        out.took(numbers.len() as u64);
        out.gave((numbers.len() - lost) as u64);
        buffers.write(out)
    }

    fn merge(&self, mut column: Column<'_>, out: &mut Blocks) -> Result<()> {
        if self.cheats("merge leaves out") && column.number == 3 {
            column.streams.pop();
        }
        if self.cheats("merge writes twice") && column.number == 3 {
            out.write(column.number, &[1; 4])?;
        }
        column.concatenate(4, out)
    }

    fn reduce(&self, reducer: u32, columns: &mut Columns) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        while let Some(column) = columns.next() {
            for mut stream in column.streams {
                while let Some(chunk) = stream.chunk(12)? {
                    numbers.extend(chunk.as_chunks().0.iter().map(|n| u32::from_le_bytes(*n)));
                }
            }
        }
        columns.took(numbers.len() as u64);
        if self.cheats("reduce drops") && reducer == 1 {
            numbers.pop();
        }
        columns.gave(numbers.len() as u64);
        numbers.sort_unstable();
        Ok(numbers)
    }
}

#[fanfold::task]
fn map(cheat: String, split: Vec<u32>, columns: u32) -> Result<Output> {
    crate::map(&Numbers { cheat }, split, columns)
}

#[fanfold::task]
fn merge(cheat: String, columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    crate::merge(&Numbers { cheat }, columns, &inputs)
}

#[fanfold::task]
fn reduce(
    cheat: String,
    reducer: u32,
    columns: Range<u32>,
    inputs: Inputs<Partition>,
) -> Result<Outputs<(Vec<u32>, Tally)>> {
    crate::reduce(&Numbers { cheat }, reducer, columns, &inputs)
}

impl Tasks for Numbers {
    type Split = Vec<u32>;
    type Reduced = Vec<u32>;

    fn map(&self, _: u32, split: Vec<u32>, columns: u32) -> Call<Output> {
        map::call(&self.cheat, split, columns)
    }

    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
        merge::call(&self.cheat, columns, inputs)
    }

    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Vec<u32>, Tally)>> {
        reduce::call(&self.cheat, reducer, columns, inputs)
    }
}

/// The output of a map of one number, over four columns.
pub(crate) fn made(number: u32) -> Made {
    Made::submit(map::call("", vec![number], 4)).unwrap()
}

const BOUNDS: push_star::Bounds = push_star::Bounds { maps: 4, factor: 3, mergers: 2, groups: 3 };
const ROUNDS: push::Rounds = push::Rounds { maps: 4, groups: 3, durability: Durability::Lazy };

/// Every strategy, over columns that are finer than reducers.
fn all(numbers: &Numbers, splits: &[Vec<u32>]) -> Vec<Result<Shuffled<Vec<u32>>>> {
    let layout = Layout::with_columns(12, 5).unwrap();
    let splits = || splits.to_vec();
    let facts =
        Facts { bytes: 1000, maps: 10, reducers: 5, memory_bytes: 100, spill: Spill::Store, slots: 2 };
    vec![
        simple::run(numbers, splits(), layout),
        riffle::run(numbers, splits(), layout, 4),
        push::run(numbers, splits(), layout, ROUNDS),
        push_star::run(numbers, splits(), layout, BOUNDS),
        streaming::run(numbers, splits(), layout, streaming::Rounds { first: 1, most: 4 }, |_| Ok(())),
        Plan::of(Strategy::PushStar, &facts).run(numbers, splits(), layout),
    ]
}

#[test]
fn every_strategy_gives_the_same_result_and_counts_every_record_once() {
    for maps in [0, 1, 3, 10] {
        let splits: Vec<Vec<u32>> = (0..maps).map(|n| (n * 100..n * 100 + n * 31 % 97).collect()).collect();
        let count = splits.iter().map(Vec::len).sum::<usize>() as u64;
        let runs: Vec<_> = all(&Numbers::default(), &splits).into_iter().map(Result::unwrap).collect();
        for run in &runs {
            assert_eq!(run.reduced, runs[0].reduced, "{} of {maps} maps", run.report.strategy);
            assert_eq!((run.report.maps, run.report.reduces), (maps, 5));
            assert_eq!((run.report.mapped.records_in, run.report.reduced.records_out), (count, count));
            assert!(run.report.reducer_bytes_max <= 4 * count);
        }
        let mut whole = runs[0].reduced.concat();
        whole.sort_unstable();
        assert_eq!(whole, splits.concat());
    }
}

#[test]
fn a_stage_that_loses_or_repeats_something_is_named() {
    let splits: Vec<Vec<u32>> = (0..10).map(|n| (n * 50..n * 50 + 50).collect()).collect();
    for (cheat, message) in [
        ("map loses", "the map stage lost some of the records"),
        ("reduce drops", "the reduce stage lost some of the records"),
        ("merge leaves out", "the merge stage lost some of the bytes of its blocks"),
        ("merge writes twice", "the merge stage counted twice some of the bytes"),
    ] {
        let runs = all(&Numbers { cheat: cheat.into() }, &splits);
        // Without merges nobody cheats at one.
        for run in runs.into_iter().skip(usize::from(cheat.starts_with("merge"))) {
            let error = run.unwrap_err();
            assert!(error.kind == ErrorKind::Guest && error.message.contains(message), "{cheat}: {error:?}");
        }
    }
}

#[test]
fn partial_results_grow_into_the_whole() {
    let splits: Vec<Vec<u32>> = (0..20).map(|n| vec![n]).collect();
    let mut seen = Vec::new();
    let rounds = streaming::Rounds { first: 1, most: 8 };
    let layout = Layout::new(3).unwrap();
    let whole = streaming::run(&Numbers::default(), splits, layout, rounds, |partial| {
        let mut numbers = partial.reduced.concat();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..partial.maps).collect::<Vec<_>>());
        seen.push((partial.round, partial.maps));
        Ok(())
    });
    assert_eq!(seen, [(1, 1), (2, 3), (3, 7), (4, 15)]);
    assert_eq!(whole.unwrap().reduced.concat().len(), 20);
}

#[test]
fn every_epoch_has_every_record() {
    let splits: Vec<Vec<u32>> = (0..4).map(|n| (n * 10..n * 10 + 10).collect()).collect();
    let tasks = |_| Numbers::default();
    let epochs = epochs::start(tasks, splits, Layout::new(2).unwrap(), 3).unwrap();
    let mut numbers = Vec::new();
    for epoch in epochs {
        let epoch = epoch.unwrap();
        let parts = fanfold::wait_all(epoch.parts()).unwrap();
        numbers.push(epoch.number);
        assert_eq!(parts.concat().len(), 40);
        assert_eq!(epoch.finish().unwrap().reduced.records_out, 40);
    }
    assert_eq!(numbers, [0, 1, 2]);
}
