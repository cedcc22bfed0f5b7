//! The whole SDK, macros included, on its native host.

use std::io::{BufRead, Read, Write};

use fanfold::{
    Entry, Error, ErrorKind, Future, Inputs, ObjectRange, Outputs, Partition, Reader, Result, Writer,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Point {
    x: i64,
    y: i64,
}

#[fanfold::task]
fn echo(input: Vec<u8>) -> Vec<u8> {
    input
}

#[fanfold::task]
fn length(bytes: &[u8], label: &str) -> String {
    format!("{label}: {}", bytes.len())
}

#[fanfold::task]
fn mirror(point: Point) -> std::result::Result<Point, String> {
    if point.x == 0 { Err("x is zero".into()) } else { Ok(Point { x: -point.x, y: point.y }) }
}

#[fanfold::task]
fn nothing() {}

#[fanfold::task]
fn read(mut reader: Reader) -> Result<(u64, usize, String)> {
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    Ok((reader.size(), reader.blocks().len(), text))
}

/// One block per word.
#[fanfold::task]
fn words(text: &str) -> Result<Partition> {
    let mut writer = Writer::new()?;
    for word in text.split(' ') {
        writer.write_all(word.as_bytes())?;
        writer.end_block()?;
    }
    writer.finish()
}

#[fanfold::task]
fn join(parts: Inputs<Partition>) -> Result<String> {
    let parts = parts.iter().map(|part| Ok(String::from_utf8(part.open()?.bytes()?)?));
    Ok(parts.collect::<Result<Vec<_>>>()?.join("+"))
}

/// Hands a handle on without waiting for it.
#[derive(Serialize, Deserialize)]
struct Parcel {
    point: Future<Point>,
    words: Vec<Partition>,
}

#[fanfold::task]
fn wrap(x: i64) -> Result<Parcel> {
    let point = mirror::submit(Point { x, y: 1 })?;
    let words = words::submit("one two")?.as_partition();
    Ok(Parcel { point, words: vec![words.block(1)?, words] })
}

#[fanfold::task]
fn unwrap(parcel: Parcel) -> Result<Future<Point>> {
    assert_eq!(parcel.words[0].open()?.bytes()?, b"two");
    Ok(parcel.point)
}

#[fanfold::generator]
fn chunks(out: &mut fanfold::Yielder<Vec<u8>>, bytes: Vec<u8>, size: u64) -> Result<()> {
    for chunk in bytes.chunks(size as usize) {
        out.send(chunk.to_vec())?;
    }
    if size == 3 { Err(Error::guest("three is too much")) } else { Ok(()) }
}

fn invalid<T>(result: Result<T>) -> String {
    let error = result.err().expect("this must fail");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    error.message
}

#[test]
fn values_go_there_and_back() -> Result<()> {
    assert_eq!(echo::submit(b"\xff\0".as_slice())?.get()?, b"\xff\0");
    assert_eq!(mirror::submit(Point { x: 1, y: 2 })?.get()?, Point { x: -1, y: 2 });
    assert_eq!(length::submit(b"abc".as_slice(), "n")?.get()?, "n: 3");
    nothing::submit()?.get()?;
    // Passed by reference: the result of one is the argument of the next.
    assert_eq!(mirror::submit(&mirror::submit(Point { x: 5, y: 0 })?)?.get()?.x, 5);
    Ok(())
}

#[test]
fn large_values_become_partitions() -> Result<()> {
    let large: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    let echoed = echo::submit(&large)?;
    assert_eq!(echoed.get()?, large);
    let mut reader = echoed.as_partition().open()?;
    assert_eq!(reader.range(1_500_000..1_500_003)?, large[1_500_000..1_500_003]);
    assert_eq!(reader.range(2_999_999..9_000_000)?, large[2_999_999..]);
    assert!(reader.range(9_000_000..9_000_001)?.is_empty());
    reader.consume(0);
    let mut read = Vec::new();
    reader.read_to_end(&mut read)?;
    assert!(read == large);
    Ok(())
}

#[test]
fn blocks_are_read_by_reference() -> Result<()> {
    let first = words::submit("to be or")?.as_partition();
    let second = words::submit("not to be")?;
    let column = [first.block(2)?, second.as_partition().block(0)?, first.blocks(0..2)?];
    assert_eq!(join::submit(column)?.get()?, "or+not+tobe");
    assert_eq!(read::submit(&second)?.get()?, (7, 3, "nottobe".into()));
    assert!(invalid(first.blocks(0..2)?.block(2)).contains("2..3"));
    assert!(invalid(first.blocks(1..1)).contains("1..1"));
    let past = join::submit([first.block(3)?])?.get().expect_err("there is no block 3");
    assert!(past.message.contains("among 3"), "{past}");
    Ok(())
}

#[test]
fn references_travel_inside_values() -> Result<()> {
    let parcel = wrap::submit(7)?;
    assert_eq!(parcel.get()?.point.get()?, Point { x: -7, y: 1 });
    assert_eq!(unwrap::submit(&parcel)?.get()?.x, -7);
    assert_eq!(unwrap::submit(parcel.get()?)?.get()?.x, -7);
    let outside = serde_json::to_string(&parcel).expect_err("nothing would keep it alive");
    assert!(outside.to_string().contains("only in an argument or a result"));
    Ok(())
}

#[test]
fn objects_are_listed_and_read_in_ranges() -> Result<()> {
    for n in 0..2_500 {
        fanfold::objects::put(&format!("many/{n:04}"), format!("object {n}").as_bytes())?;
    }
    let keys = fanfold::objects::list("many/").map(|o| Ok(o?.key)).collect::<Result<Vec<_>>>()?;
    assert_eq!((keys.len(), keys[2_499].as_str()), (2_500, "many/2499"));
    let object = fanfold::objects::head("many/0042")?;
    let range = ObjectRange { key: object.key, etag: Some(object.etag), offset: 7, length: Some(100) };
    assert_eq!(read::submit(&range)?.get()?, (2, 1, "42".into()));
    fanfold::objects::put("many/0042", b"changed")?;
    assert_eq!(range.open().err().map(|e| e.kind), Some(ErrorKind::Conflict));
    assert_eq!(fanfold::objects::open("none").err().map(|e| e.kind), Some(ErrorKind::NotFound));
    Ok(())
}

#[test]
fn failures_name_what_failed_and_pass_through_dependants() -> Result<()> {
    let failed = mirror::submit(Point { x: 0, y: 0 })?;
    assert_eq!(failed.get(), Err(Error::guest("x is zero")));
    assert_eq!(mirror::submit(&failed)?.get(), Err(Error::guest("x is zero")));

    let point = fanfold::call::<Point>("mirror").arg(&"text").submit()?;
    assert_eq!(point.get().err().map(|e| e.kind), Some(ErrorKind::NotFound));
    let wrong = mirror::run(vec![fanfold::raw::Value::Inline(fanfold::raw::Payload {
        bytes: b"{\"x\": 1}".to_vec(),
        refs: Vec::new(),
    })]);
    let message = invalid(wrong);
    assert!(message.starts_with("entry `mirror`, argument 0 `point`: missing field `y`"), "{message}");
    assert_eq!(invalid(mirror::run(Vec::new())), "entry `mirror` takes 1 arguments, not 0");
    Ok(())
}

#[test]
fn generators_yield_then_end_or_fail() -> Result<()> {
    let mut parts = chunks::submit(b"abcde".as_slice(), 2)?;
    let first = parts.next().expect("there is a first")?;
    assert_eq!(first.get()?, b"ab");
    assert_eq!(parts.by_ref().count(), 2);
    assert!(parts.next().is_none());
    let outcomes: Vec<_> = chunks::submit(b"abcde".as_slice(), 3)?.map(|item| item.err()).collect();
    assert_eq!(outcomes, [None, None, Some(Error::guest("three is too much"))]);
    Ok(())
}

#[test]
fn calls_by_name_wait_and_log() -> Result<()> {
    fanfold::native::register::<mirror>("mirror");
    let point = fanfold::call::<Point>("mirror:latest").arg(&Point { x: 3, y: 0 }).submit()?;
    let again = fanfold::call::<Point>("mirror").arg_ref(&point).submit()?;
    assert_eq!(fanfold::wait(&[&point, &again], 2, None)?, [0, 1]);
    assert_eq!(fanfold::wait_all(&[point, again])?[1].x, 3);
    invalid(fanfold::wait(&[nothing::submit()?], 2, None));
    fanfold::warn!("{} left", 1);
    assert_eq!(fanfold::native::take_log(), [(fanfold::Level::Warn, "1 left".into())]);
    Ok(())
}

#[fanfold::task]
fn some() -> Outputs<Vec<u32>> {
    Outputs((0..fanfold::context().outputs).collect())
}

#[test]
fn the_caller_says_how_many_outputs() -> Result<()> {
    assert_eq!(fanfold::wait_all(&some::call().outputs(3).submit()?)?, [0, 1, 2]);
    assert!(invalid(some::submit()).contains("say how many"));
    Ok(())
}
