//! The direct lane over an in-memory store.

mod http;
mod program;

use fanfold_protocol::{Code, Error, Kind, direct::Reply};

fn fails(result: Result<Reply, Error>, kind: Kind, code: Code, part: &str) {
    let error = result.map(|reply| reply.response.status()).unwrap_err();
    assert_eq!((error.kind, error.code), (kind, code), "{error}");
    assert!(error.message.contains(part), "{error}");
}
