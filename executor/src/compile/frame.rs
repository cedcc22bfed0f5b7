//! The compile child's answer: the length of a JSON head (4 bytes, little-endian), the head, and the compiled code.

use bytes::{Buf, Bytes};
use fanfold_protocol::Error;
use serde::{Deserialize, Serialize};

use super::Compiled;
use crate::admit::Admitted;

#[derive(Serialize, Deserialize)]
enum Head {
    Compiled { engine: String, admitted: Admitted },
    Refused(Error),
}

/// The head of the answer and the code that follows it.
pub(super) fn encode(compiled: &Result<Compiled, Error>) -> (Vec<u8>, &[u8]) {
    let (head, code) = match compiled {
        Ok(Compiled { admitted, engine, code }) => {
            (Head::Compiled { engine: engine.clone(), admitted: admitted.clone() }, code.as_ref())
        }
        Err(error) => (Head::Refused(error.clone()), &[][..]),
    };
    // These types have no maps with non-string keys: writing them cannot fail.
    let json = serde_json::to_vec(&head).unwrap_or_default();
    let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&json);
    (bytes, code)
}

/// What the child answered. The outer error is ours: the answer makes no sense.
pub(super) fn decode(answer: Vec<u8>) -> Result<Result<Compiled, Error>, Error> {
    let mut rest = Bytes::from(answer);
    let nonsense = || Error::internal("the compiler's answer is cut off or not its own");
    let length = rest.try_get_u32_le().map_err(|_| nonsense())? as usize;
    if rest.len() < length {
        return Err(nonsense());
    }
    let head = rest.split_to(length);
    match serde_json::from_slice(&head).map_err(|_| nonsense())? {
        Head::Compiled { engine, admitted } => Ok(Ok(Compiled { admitted, engine, code: rest })),
        Head::Refused(error) => Ok(Err(error)),
    }
}
