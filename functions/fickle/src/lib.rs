//! Does something else when it is run again, as a function does that looks at the world: an object that is not there at
//! first. `{"what": "call", "key": "…", "nap_ms": 2000}`.

use std::time::Duration;

use fanfold::{Durability, Result, objects};
use serde::Deserialize;

/// What is not the same the second time.
#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// The driver's first call.
    Call,
    /// The bytes that a task makes.
    Output,
    /// Nothing.
    Nothing,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    what: What,
    /// The object that is looked at.
    key: String,
    /// Between the first task and the second.
    nap_ms: u64,
}

#[fanfold::function(tasks(made, nap, length))]
fn fickle(request: Request) -> Result<u64> {
    let Request { what, key, nap_ms } = request;
    let seen = u8::from(what == What::Call && objects::head(&key).is_ok());
    let look = if what == What::Output { key } else { String::new() };
    let data = made::call(seen, look).durability(Durability::None).submit()?;
    fanfold::wait(&[&data], 1, None)?;
    nap::submit(nap_ms)?.get()?;
    length::submit(&data)?.get()
}

/// More bytes than fit into a message; they differ once the object is there.
#[fanfold::task]
fn made(first: u8, look: String) -> Vec<u8> {
    let seen = !look.is_empty() && objects::head(&look).is_ok();
    let mut bytes = vec![first; 100_000];
    bytes[99_999] = u8::from(seen);
    bytes
}

#[fanfold::task]
fn nap(millis: u64) {
    #[allow(clippy::disallowed_methods, reason = "a time in which a test does something")]
    std::thread::sleep(Duration::from_millis(millis));
}

#[fanfold::task]
fn length(data: Vec<u8>) -> u64 {
    data.len() as u64
}
