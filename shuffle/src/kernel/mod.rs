//! Inner loops: what a sort or an aggregation does to bytes that are in memory. They call nothing of the platform, so
//! they are measured natively as well as in WebAssembly.
//!
//! Loops over many items do several in each turn ([`in_turns`]). A guest's code asks at the end of every turn whether it
//! is to be interrupted, which is a comparison and, rarely, a call; but because of that call compilers keep nearly all
//! values of the loop in memory between turns. Around a step of a few nanoseconds this costs as much as the step.

pub mod aggregate;
pub mod deal;
pub mod merge;
pub mod record;
pub mod sort;

/// Items of one turn: with more, large steps are no longer unrolled.
const TURN: usize = 8;

/// Calls `step` with each item, in order.
#[inline(always)]
fn in_turns<T>(items: &[T], mut step: impl FnMut(&T)) {
    let (turns, rest) = items.as_chunks::<TURN>();
    for turn in turns {
        turn.iter().for_each(&mut step);
    }
    rest.iter().for_each(step);
}

/// Calls `step` with each item and its place among the results: as many as there are of both.
#[inline(always)]
fn in_turns_to<T, U>(items: &[T], results: &mut [U], mut step: impl FnMut(&T, &mut U)) {
    let length = items.len().min(results.len());
    let (turns, rest) = items[..length].as_chunks::<TURN>();
    let (turns_to, rest_to) = results[..length].as_chunks_mut::<TURN>();
    for (turn, to) in turns.iter().zip(turns_to) {
        turn.iter().zip(to).for_each(|(item, to)| step(item, to));
    }
    rest.iter().zip(rest_to).for_each(|(item, to)| step(item, to));
}

/// Calls `step` with each item and its companion: as many as there are of both.
#[inline(always)]
fn in_turns_with<T, U>(items: &[T], companions: &[U], mut step: impl FnMut(&T, &U)) {
    let length = items.len().min(companions.len());
    let (turns, rest) = items[..length].as_chunks::<TURN>();
    let (turns_with, rest_with) = companions[..length].as_chunks::<TURN>();
    for (turn, with) in turns.iter().zip(turns_with) {
        turn.iter().zip(with).for_each(|(item, with)| step(item, with));
    }
    rest.iter().zip(rest_with).for_each(|(item, with)| step(item, with));
}
