//! The checks, each of one promise of the interface.

use std::{
    io::{BufRead, Read, Write},
    time::Duration,
};

use fanfold::{ErrorKind, ObjectRange, Partition, Placement, Result, objects};

use crate::{expect, tasks::*};

type Check = fn() -> Result<()>;

/// Every check by name.
pub const ALL: &[(&str, Check)] = &[
    ("values_are_passed_and_returned", values_are_passed_and_returned),
    ("futures_are_arguments", futures_are_arguments),
    ("large_values_are_partitions", large_values_are_partitions),
    ("blocks_have_addresses", blocks_have_addresses),
    ("readers_stream_and_seek", readers_stream_and_seek),
    ("put_values_are_shared", put_values_are_shared),
    ("references_nest", references_nest),
    ("results_are_forwarded", results_are_forwarded),
    ("outputs_are_many", outputs_are_many),
    ("generators_yield", generators_yield),
    ("generators_fail_at_the_end", generators_fail_at_the_end),
    ("errors_are_the_functions", errors_are_the_functions),
    ("failures_pass_through_dependants", failures_pass_through_dependants),
    ("unknown_callees_are_failed_tasks", unknown_callees_are_failed_tasks),
    ("waiting_counts", waiting_counts),
    ("results_come_as_completed", results_come_as_completed),
    ("objects_are_read_and_written", objects_are_read_and_written),
    ("objects_are_written_piece_by_piece", objects_are_written_piece_by_piece),
    ("object_ranges_are_pinned", object_ranges_are_pinned),
    ("wishes_are_accepted", wishes_are_accepted),
    ("memoised_calls_return_the_same", memoised_calls_return_the_same),
    ("labels_are_for_people", labels_are_for_people),
    ("the_context_is_known", the_context_is_known),
    ("retries_are_attempts", retries_are_attempts),
    ("a_deadline_ends_a_task", a_deadline_ends_a_task),
    ("waiting_times_out", waiting_times_out),
    ("cancelled_tasks_fail", cancelled_tasks_fail),
];

fn equal<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<()> {
    expect(found == wanted, || format!("found {found:?}, wanted {wanted:?}"))
}

fn fails<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind) -> Result<()> {
    match result {
        Err(error) if error.kind == kind => Ok(()),
        other => expect(false, || format!("found {other:?}, wanted {kind:?}")),
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn values_are_passed_and_returned() -> Result<()> {
    equal(add::submit(-2, 44)?.get()?, 42)?;
    equal(blob::submit(0)?.get()?, Vec::new())?;
    equal(sum::submit(Vec::<i64>::new())?.get()?, 0)
}

fn labels_are_for_people() -> Result<()> {
    fanfold::status("a label, and how it stands");
    equal(add::call(40, 2).label("a #sum").submit()?.get()?, 42)
}

fn futures_are_arguments() -> Result<()> {
    let one = add::submit(0, 1)?;
    let two = add::submit(&one, &one)?;
    equal(sum::submit([&one, &two, &two])?.get()?, 5)
}

fn large_values_are_partitions() -> Result<()> {
    for length in [65_535u64, 65_536, 65_537, 1 << 20, (3 << 20) + 1] {
        let made = blob::submit(length)?;
        let bytes = made.get()?;
        expect(bytes.len() as u64 == length && bytes.iter().enumerate().all(|(n, b)| *b == n as u8), || {
            format!("{length} bytes came back as {}", bytes.len())
        })?;
        // Back as an argument: by value, and by reference.
        let (size, _) = length::submit(Partition::from(&made))?.get()?;
        equal(size, length)?;
    }
    Ok(())
}

fn blocks_have_addresses() -> Result<()> {
    let first = blocks::submit(texts(&["a", "", "ccc", "dd"]))?;
    let second = blocks::submit(texts(&["x", "yy"]))?;
    let (one, two) = (first.as_partition(), second.as_partition());
    let column = [one.block(0)?, two.block(1)?, one.blocks(1..4)?, one.block(1)?];
    equal(concat::submit(column)?.get()?, "a|yy|cccdd|".into())?;
    equal(length::submit(&first)?.get()?, (6, 4))?;
    equal(one.blocks(2..4)?.open()?.blocks(), vec![0..3, 3..5])?;
    // Past its end: known only when it is opened.
    expect(concat::submit([one.block(4)?])?.get().is_err(), || "a block past the end was read".into())
}

fn readers_stream_and_seek() -> Result<()> {
    let blob = blob::submit(2_500_000)?;
    let mut reader = blob.as_partition().open()?;
    equal(reader.range(1_048_575..1_048_578)?, vec![255, 0, 1])?;
    equal(reader.range(2_499_999..9_999_999)?.len(), 1)?;
    let mut start = [0; 3];
    reader.read_exact(&mut start)?;
    equal(start, [0, 1, 2])?;
    let mut left = 0;
    loop {
        let chunk = reader.fill_buf()?.len();
        left += chunk;
        if chunk == 0 {
            return equal(left, 2_499_997);
        }
        reader.consume(chunk);
    }
}

fn put_values_are_shared() -> Result<()> {
    let large = fanfold::put(&vec![7i64; 100_000])?;
    equal(large.get()?.len(), 100_000)?;
    let five = fanfold::put(&5i64)?;
    equal(add::submit(&five, &five)?.get()?, 10)
}

fn references_nest() -> Result<()> {
    let made = parcel::submit("parcel")?;
    equal(unpack::submit(&made)?.get()?, "parcel 42 right,leftright".into())?;
    // Taken out, and passed on in a new value after everything else was dropped.
    let taken = made.get()?;
    drop(made);
    equal(taken.sum.get()?, 42)?;
    let again = Parcel { label: "again".into(), sum: taken.sum, texts: taken.texts };
    equal(unpack::submit(again)?.get()?, "again 42 right,leftright".into())
}

fn results_are_forwarded() -> Result<()> {
    equal(forward::submit(0)?.get()?, 2)?;
    equal(forward::submit(10)?.get()?, 2)?;
    equal(add::submit(&forward::submit(2)?, 1)?.get()?, 3)
}

fn outputs_are_many() -> Result<()> {
    let (quotient, remainder) = divide::submit(17, 5)?;
    equal((quotient.get()?, remainder.get()?), (3, 2))?;
    let many = numbered::call().outputs(1000).submit()?;
    equal(fanfold::wait_all(&many)?, (0..1000).collect())
}

fn generators_yield() -> Result<()> {
    let numbers = numbers::submit(100, false)?.map(|item| item?.get()).collect::<Result<Vec<i64>>>()?;
    equal(numbers, (0..100).collect())
}

fn generators_fail_at_the_end() -> Result<()> {
    let mut items = numbers::submit(3, true)?;
    let made = items.by_ref().take(3).map(|item| item?.get()).collect::<Result<Vec<i64>>>()?;
    equal(made, vec![0, 1, 2])?;
    match items.next() {
        Some(failed) => fails(failed, ErrorKind::Guest)?,
        None => return expect(false, || "the failure was lost".into()),
    }
    expect(items.next().is_none(), || "it went on after its failure".into())
}

/// A function may blame its caller; whatever other kind its error names, to its caller it is the function that failed.
fn errors_are_the_functions() -> Result<()> {
    fails_with(fail::submit("guest")?.get(), ErrorKind::Guest, "asked to fail")?;
    fails_with(fail::submit("platform")?.get(), ErrorKind::Guest, "asked to look like the platform")?;
    fails_with(fail::submit("not-found")?.get(), ErrorKind::NotFound, "nothing there")?;
    fails_with(fail::submit("conflict")?.get(), ErrorKind::Conflict, "something else is there")?;
    fails_with(fail::submit("?")?.get(), ErrorKind::Invalid, "no kind `?`")?;
    // An argument that the callee cannot decode is named.
    let itself = fanfold::context().function;
    let wrong = fanfold::call::<i64>(itself).entry("add").arg(&1).arg(&"two").submit()?;
    match wrong.get() {
        // The native host has no function of that name.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        Err(error) => expect(error.message.contains("`add`, argument 1 `b`"), || error.message),
        Ok(n) => expect(false, || format!("found {n}")),
    }
}

fn fails_with<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, message: &str) -> Result<()> {
    match result {
        Err(error) => equal((error.kind, error.message.as_str()), (kind, message)),
        Ok(value) => expect(false, || format!("found {value:?}, wanted the error `{message}`")),
    }
}

fn failures_pass_through_dependants() -> Result<()> {
    let dependant = add::submit(&fail::submit("not-found")?, 1)?;
    fails_with(sum::submit([&dependant])?.get(), ErrorKind::NotFound, "nothing there")
}

fn unknown_callees_are_failed_tasks() -> Result<()> {
    fails(fanfold::call::<i64>("no-such-function").submit()?.get(), ErrorKind::NotFound)
}

fn waiting_counts() -> Result<()> {
    let futures = (0..20).map(|n| add::submit(n, n)).collect::<Result<Vec<_>>>()?;
    let some = fanfold::wait(&futures, 5, None)?;
    expect(some.len() >= 5 && some.is_sorted() && some.iter().all(|n| *n < 20), || format!("{some:?}"))?;
    equal(fanfold::wait(&futures, 20, None)?, (0..20).collect())?;
    // A failed one is ready, too.
    equal(fanfold::wait(&[fail::submit("guest")?], 1, None)?, vec![0])?;
    fails(fanfold::wait(&futures, 21, None), ErrorKind::Invalid)
}

fn results_come_as_completed() -> Result<()> {
    let futures = (0..50).map(|n| add::submit(n, 100)).collect::<Result<Vec<_>>>()?;
    let mut seen = [false; 50];
    for (n, result) in fanfold::as_completed(futures) {
        equal(result?, n as i64 + 100)?;
        seen[n] = true;
    }
    equal(seen, [true; 50])
}

fn objects_are_read_and_written() -> Result<()> {
    for n in 0..3 {
        objects::put(&format!("conformance/list/{n}"), format!("object {n}").as_bytes())?;
    }
    let listed = objects::list("conformance/list/").map(|o| Ok(o?.key)).collect::<Result<Vec<_>>>()?;
    equal(listed, (0..3).map(|n| format!("conformance/list/{n}")).collect())?;
    equal(objects::head("conformance/list/1")?.bytes, 8)?;
    equal(objects::open("conformance/list/1")?.bytes()?, b"object 1".to_vec())?;
    fails(objects::head("conformance/none"), ErrorKind::NotFound)?;
    fails(objects::open("conformance/none").and_then(|reader| reader.bytes()), ErrorKind::NotFound)
}

fn objects_are_written_piece_by_piece() -> Result<()> {
    let key = "conformance/pieces";
    objects::put(key, b"before")?;
    let mut dropped = objects::create(key)?;
    dropped.write_all(&vec![1; 20 << 20])?;
    equal(objects::head(key)?.bytes, 6)?;
    drop(dropped);
    equal(objects::open(key)?.bytes()?, b"before".to_vec())?;

    // More than one part of an upload, in pieces that fit nothing.
    let line: Vec<u8> = (0..300_007u32).map(|n| (n % 251) as u8).collect();
    let mut writer = objects::create(key)?;
    for _ in 0..60 {
        writer.write_all(&line)?;
    }
    let written = writer.finish()?;
    equal((written.bytes, &written.etag), (60 * 300_007, &objects::head(key)?.etag))?;
    let reader = objects::open(key)?;
    for n in [0, 27, 28, 59] {
        expect(reader.range(n * 300_007..(n + 1) * 300_007)? == line, || format!("line {n} is another one"))?;
    }
    equal(objects::create("conformance/nothing")?.finish()?.bytes, 0)?;
    equal(objects::open("conformance/nothing")?.bytes()?, Vec::new())
}

fn object_ranges_are_pinned() -> Result<()> {
    let object = objects::put("conformance/pinned", b"0123456789")?;
    let range = ObjectRange { key: object.key, etag: Some(object.etag), offset: 4, length: Some(100) };
    equal(length::submit(&range)?.get()?, (6, 1))?;
    equal(range.open()?.bytes()?, b"456789".to_vec())?;
    objects::put("conformance/pinned", b"another one")?;
    fails(range.open().and_then(|reader| reader.bytes()), ErrorKind::Conflict)
}

fn wishes_are_accepted() -> Result<()> {
    let here = fanfold::context().executor;
    let near = add::submit(1, 1)?;
    for placement in [
        Placement::Local,
        Placement::Spread,
        Placement::Near(near.id()),
        Placement::OnExecutor(here),
        Placement::OnExecutorStrict(here),
    ] {
        let call = add::call(1, 2).cpu_millis(500).memory(48 << 20).attempts(2).placement(placement);
        equal(call.durability(fanfold::Durability::Eager).submit()?.get()?, 3)?;
    }
    Ok(())
}

fn memoised_calls_return_the_same() -> Result<()> {
    let long = blob::call(200_000).memo().submit()?;
    let bytes = long.get()?;
    expect(bytes.len() == 200_000 && bytes.iter().enumerate().all(|(n, b)| *b == n as u8), || {
        format!("other bytes came back, {} of them", bytes.len())
    })?;
    equal(length::call(Partition::from(&long)).memo().submit()?.get()?.0, 200_000)?;
    equal(add::call(&add::call(1, 2).memo().submit()?, 3).memo().submit()?.get()?, 6)?;
    fails(numbers::call(2, false).memo().submit().map(drop), ErrorKind::Invalid)
}

fn the_context_is_known() -> Result<()> {
    let context = fanfold::context();
    expect(context.attempt >= 1 && context.job.len() == 36 && context.entry.is_empty(), || {
        format!("{context:?}")
    })
}

fn retries_are_attempts() -> Result<()> {
    equal(eventually::call("conformance/second").attempts(2).submit()?.get()?, 2)?;
    fails(eventually::call("conformance/only").attempts(1).submit()?.get(), ErrorKind::Guest)
}

fn a_deadline_ends_a_task() -> Result<()> {
    fails(sleep::call(30_000).deadline(Duration::from_millis(50)).submit()?.get(), ErrorKind::Limit)
}

fn waiting_times_out() -> Result<()> {
    let long = sleep::submit(30_000)?;
    let ready = fanfold::wait(&[&long], 1, Some(Duration::from_millis(20)))?;
    long.cancel();
    equal(ready, Vec::new())
}

fn cancelled_tasks_fail() -> Result<()> {
    let long = sleep::submit(30_000)?;
    fanfold::cancel([&long]);
    fails(long.get(), ErrorKind::Platform)
}
