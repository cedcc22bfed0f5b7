//! The tasks that the checks call.

use std::{io::Write, time::Duration};

use fanfold::{
    Error, ErrorKind, Future, Inputs, Outputs, Partition, Reader, Result, Writer, Yielder, objects,
};
use serde::{Deserialize, Serialize};

#[fanfold::task]
pub fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[fanfold::task]
pub fn sum(numbers: Inputs<i64>) -> i64 {
    numbers.iter().sum()
}

/// `length` bytes that count up.
#[fanfold::task]
pub fn blob(length: u64) -> Vec<u8> {
    (0..length).map(|n| n as u8).collect()
}

#[fanfold::task]
pub fn length(data: Reader) -> (u64, usize) {
    (data.size(), data.blocks().len())
}

/// A partition with one block a text, some of which may be empty.
#[fanfold::task]
pub fn blocks(texts: Vec<String>) -> Result<Partition> {
    let mut writer = Writer::new()?;
    for text in &texts {
        writer.write_all(text.as_bytes())?;
        writer.end_block()?;
    }
    writer.finish()
}

#[fanfold::task]
pub fn concat(parts: Inputs<Partition>) -> Result<String> {
    let texts = parts.iter().map(|part| Ok(String::from_utf8(part.open()?.bytes()?)?));
    Ok(texts.collect::<Result<Vec<_>>>()?.join("|"))
}

#[fanfold::task]
pub fn divide(a: i64, b: i64) -> Outputs<(i64, i64)> {
    Outputs((a / b, a % b))
}

/// Its outputs are their numbers.
#[fanfold::task]
pub fn numbered() -> Outputs<Vec<u32>> {
    Outputs((0..fanfold::context().outputs).collect())
}

#[fanfold::generator]
pub fn numbers(out: &mut Yielder<i64>, upto: i64, fail: bool) -> Result<()> {
    (0..upto).try_for_each(|n| out.send(n))?;
    if fail { Err(Error::guest("asked to fail at the end")) } else { Ok(()) }
}

/// A value with references in it.
#[derive(Serialize, Deserialize)]
pub struct Parcel {
    pub label: String,
    pub sum: Future<i64>,
    pub texts: Vec<Partition>,
}

#[fanfold::task]
pub fn parcel(label: String) -> Result<Parcel> {
    let sum = add::submit(20, 22)?;
    let texts = blocks::submit(vec!["left".to_owned(), "right".to_owned()])?.as_partition();
    Ok(Parcel { label, sum, texts: vec![texts.block(1)?, texts] })
}

#[fanfold::task]
pub fn unpack(parcel: Parcel) -> Result<String> {
    let texts = parcel.texts.iter().map(|text| Ok(String::from_utf8(text.open()?.bytes()?)?));
    let texts = texts.collect::<Result<Vec<_>>>()?.join(",");
    Ok(format!("{} {} {texts}", parcel.label, parcel.sum.get()?))
}

/// Its result is another task's, for which it does not wait.
#[fanfold::task]
pub fn forward(n: i64) -> Result<Future<i64>> {
    if n == 0 { add::submit(1, 1) } else { forward::submit(n - 1) }
}

#[fanfold::task]
pub fn fail(kind: String) -> Result<i64> {
    match kind.as_str() {
        "guest" => Err(Error::guest("asked to fail")),
        "platform" => Err(Error::new(ErrorKind::Platform, "asked to look like the platform")),
        "not-found" => Err(Error::new(ErrorKind::NotFound, "nothing there")),
        "conflict" => Err(Error::new(ErrorKind::Conflict, "something else is there")),
        other => Err(Error::invalid(format!("no kind `{other}`"))),
    }
}

/// Fails, but may be tried again, on its first attempt; returns how many there were. An object under this key
/// remembers them: only side effects outlive an attempt.
#[fanfold::task]
pub fn eventually(key: String) -> Result<u32> {
    let key = format!("{key}/{}", fanfold::context().job);
    match objects::head(&key) {
        Ok(_) => Ok(2),
        Err(_) => {
            objects::put(&key, b"once")?;
            Err(Error::guest("the first attempt fails").retryable(true))
        }
    }
}

#[fanfold::task]
pub fn sleep(millis: u64) {
    #[allow(clippy::disallowed_methods, reason = "a task that takes its time")]
    std::thread::sleep(Duration::from_millis(millis));
}
