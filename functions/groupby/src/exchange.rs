//! The group-by as an exchange: maps aggregate what they read, reducers merge.

use std::marker::PhantomData;

use fanfold::{Result, raw::ObjectRange};
use fanfold_shuffle::{
    Blocks, Buffers, Column, Columns, Exchange, column_of,
    kernel::aggregate::{Accumulator, Aggregator, encode, hash},
    split::Split,
};
use serde::{Deserialize, Serialize};

use crate::{
    Spec,
    columns::{Rows, Value},
    input,
    result::{self, Row},
};

/// Groups that a map holds before it sends them on and starts again: what bounds its memory.
const GROUPS_MAX: usize = 3 << 19;
/// Bytes that are read of a block at a time, at most.
const READ_BYTES: usize = 1 << 20;

/// One reducer's groups.
#[derive(Serialize, Deserialize)]
pub struct Reduced {
    /// How many.
    pub groups: u64,
    /// The sum of [`Row::hash`] over all of them.
    pub checksum: u64,
    /// The first of them.
    pub top: Vec<Row>,
    /// Objects written.
    pub objects: u32,
}

/// A group-by with states of type `A`.
pub struct GroupBy<'a, A> {
    spec: &'a Spec,
    states: PhantomData<A>,
}

impl<'a, A> GroupBy<'a, A> {
    /// As the specification says.
    pub fn new(spec: &'a Spec) -> Self {
        Self { spec, states: PhantomData }
    }
}

impl<A> Exchange for GroupBy<'_, A>
where
    A: Accumulator<Value: Value + arrow_buffer::ArrowNativeType>,
{
    type Split = Split;
    type Reduced = Reduced;

    fn map(&self, split: Split, out: &mut Blocks) -> Result<()> {
        let mut groups = Partial::<A>::new(out);
        for range in &split {
            input::each_batch(range, |batch| {
                groups.add(&Rows::of(batch, &self.spec.key, &self.spec.value)?)
            })?;
            out.read(length(range));
        }
        groups.finish(out)
    }

    fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()> {
        let number = column.number;
        let mut groups = Aggregator::<A>::default();
        out.took(gather(column, &mut groups)?);
        let (mut block, mut values) = (Vec::new(), 0);
        groups.each(|_, key, state| {
            values += state.totals().count;
            encode(key, state, &mut block);
        });
        out.gave(values);
        out.write(number, &block)
    }

    fn reduce(&self, reducer: u32, columns: &mut Columns) -> Result<Reduced> {
        let mut groups = Aggregator::<A>::default();
        let mut taken = 0;
        while let Some(column) = columns.next() {
            taken += gather(column, &mut groups)?;
        }
        columns.took(taken);
        let (mut rows, mut given) = (Vec::with_capacity(groups.groups()), 0);
        groups.each(|_, key, state| {
            let totals = state.totals();
            given += totals.count;
            rows.push(result::row(key, &totals, &self.spec.aggregates));
        });
        columns.gave(given);
        // Their order must not depend on how they came.
        let mut rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
        rows.sort_unstable_by_key(|row| row.key);
        self.finish(reducer, rows)
    }
}

impl<A> GroupBy<'_, A> {
    fn finish(&self, reducer: u32, rows: Vec<Row>) -> Result<Reduced> {
        let Spec { key, output, .. } = self.spec;
        let objects = match output {
            Some(prefix) => result::write(prefix, reducer, key, &self.spec.columns(), &rows)?,
            None => 0,
        };
        let checksum = rows.iter().fold(0u64, |sum, row| sum.wrapping_add(row.hash()));
        Ok(Reduced { groups: rows.len() as u64, checksum, top: result::top(rows, self.spec.top), objects })
    }
}

/// Bytes of a range that the driver cut, which always has a length.
fn length(range: &ObjectRange) -> u64 {
    range.length.unwrap_or(0)
}

/// Merges the blocks of a column, in the order of the maps; returns how many values are in them.
fn gather<A: Accumulator>(column: Column<'_>, groups: &mut Aggregator<A>) -> Result<u64> {
    let whole_entries = READ_BYTES - READ_BYTES % Aggregator::<A>::ENTRY_BYTES;
    let mut values = 0;
    for mut stream in column.streams {
        while let Some(chunk) = stream.chunk(whole_entries)? {
            values += groups.merge(&chunk)?;
        }
    }
    Ok(values)
}

/// What a map has aggregated so far.
struct Partial<A: Accumulator> {
    groups: Aggregator<A>,
    /// Rows since `groups` were last sent on.
    rows: usize,
    /// Aggregating has not made the data smaller: each row becomes an entry of its own.
    pass: bool,
    columns: u32,
    buffers: Buffers,
    /// Values read, and values in the entries that were sent.
    taken: u64,
    given: u64,
}

impl<A: Accumulator<Value: Value + arrow_buffer::ArrowNativeType>> Partial<A> {
    fn new(out: &Blocks) -> Self {
        let columns = out.columns().end;
        let (groups, buffers) = (Aggregator::default(), Buffers::of(out));
        Self { groups, rows: 0, pass: false, columns, buffers, taken: 0, given: 0 }
    }

    fn add(&mut self, rows: &Rows<A::Value>) -> Result<()> {
        let Rows { keys, values, valid } = rows;
        self.rows += keys.len();
        match valid {
            _ if self.pass => self.send_rows(rows)?,
            None => self.groups.add(keys, values),
            Some(valid) => {
                let there = |n: &usize| valid.is_valid(*n);
                let (some_keys, some_values): (Vec<_>, Vec<_>) =
                    (0..keys.len()).filter(there).map(|n| (keys[n], values[n])).unzip();
                self.groups.add(&some_keys, &some_values);
                (0..keys.len()).filter(|n| !there(n)).for_each(|n| self.groups.touch(keys[n]));
            }
        }
        self.taken += (keys.len() - valid.as_ref().map_or(0, |valid| valid.null_count())) as u64;
        if self.groups.groups() > GROUPS_MAX {
            self.pass = self.groups.groups() * 2 > self.rows;
            self.send()?;
        }
        Ok(())
    }

    /// Sends every group on.
    fn send(&mut self) -> Result<()> {
        let mut groups = std::mem::take(&mut self.groups);
        let mut sent = Ok(());
        groups.each(|hash, key, state| {
            if sent.is_ok() {
                sent = self.send_state(hash, key, state);
            }
        });
        self.rows = 0;
        sent
    }

    fn send_rows(&mut self, rows: &Rows<A::Value>) -> Result<()> {
        for (n, (key, value)) in rows.keys.iter().zip(rows.values.iter()).enumerate() {
            let mut state = A::NEW;
            if rows.valid.as_ref().is_none_or(|valid| valid.is_valid(n)) {
                state.add(*value);
            }
            self.send_state(hash(*key), *key, &state)?;
        }
        Ok(())
    }

    fn send_state(&mut self, hash: u64, key: i64, state: &A) -> Result<()> {
        self.given += state.totals().count;
        encode(key, state, self.buffers.column(column_of(hash, self.columns))?);
        Ok(())
    }

    fn finish(mut self, out: &mut Blocks) -> Result<()> {
        self.send()?;
        out.took(self.taken);
        out.gave(self.given);
        self.buffers.write(out)
    }
}
