//! Who may ask: one bearer token per gateway, or none.

use fanfold_protocol::{Code, Digest, Error, Kind};
use http::{HeaderMap, header};

/// The check of every request but the probes.
pub(crate) struct Auth {
    token: Option<Digest>,
}

impl Auth {
    /// Asks for `token`, or for nothing. Only its digest is kept.
    pub(crate) fn new(token: Option<&str>) -> Self {
        Self { token: token.map(|token| Digest::of(token.as_bytes())) }
    }

    /// Whether a request with these headers may go on.
    ///
    /// # Errors
    /// `unauthorized` / `token`.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Error> {
        let Some(wanted) = &self.token else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        match given {
            Some(token) if equal(&Digest::of(token), wanted) => Ok(()),
            Some(_) => Err(refuse("the bearer token is not this gateway's")),
            None => Err(refuse("send the gateway's token as `Authorization: Bearer TOKEN`")),
        }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Compares without an early end, so that the time taken tells nothing of where two digests differ.
fn equal(a: &Digest, b: &Digest) -> bool {
    std::hint::black_box(a.0.iter().zip(&b.0).fold(0, |differs, (x, y)| differs | (x ^ y))) == 0
}

fn refuse(why: &'static str) -> Error {
    Error::new(Kind::Unauthorized, Code::Token, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens() {
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        let auth = Auth::new(Some("s3cret"));
        assert!(auth.check(&with("Bearer s3cret")).is_ok());
        assert!(auth.check(&with("bearer s3cret")).is_ok());
        for bad in ["Bearer s3cre", "Bearer s3crets", "Basic s3cret", "", "Bear"] {
            assert_eq!(auth.check(&with(bad)).unwrap_err().code, Code::Token, "{bad}");
        }
        assert!(auth.check(&HeaderMap::new()).is_err());
        assert!(Auth::new(None).check(&HeaderMap::new()).is_ok());
    }
}
