//! The path of a synchronous call: `/function/NAME[:SELECTOR][/PATH]`.

/// What a path names. Nothing is decoded or copied but an escaped colon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target<'a> {
    /// The function's name, not checked.
    pub(crate) name: &'a str,
    /// What follows the colon, not checked.
    pub(crate) selector: Option<&'a str>,
    /// The path below the function, with its slash; empty if there is none.
    pub(crate) rest: &'a str,
}

/// Where asynchronous invocations live; what follows is the same.
pub(crate) const ASYNC_PREFIX: &str = "/async-function/";
/// Where synchronous calls live.
pub(crate) const PREFIX: &str = "/function/";

impl<'a> Target<'a> {
    /// The target of a request path below `prefix`; `None` where it is not below it.
    pub(crate) fn of_path(path: &'a str, prefix: &str) -> Option<Self> {
        let called = path.strip_prefix(prefix)?;
        let (reference, rest) = match called.find('/') {
            Some(slash) => called.split_at(slash),
            None => (called, ""),
        };
        Some(Self { rest, ..Self::of_reference(reference) })
    }

    /// The target of `NAME[:SELECTOR]`.
    fn of_reference(reference: &'a str) -> Self {
        let split = reference.split_once(':').or_else(|| {
            // Some clients escape the colon; names and selectors hold no other character that needs it.
            reference.split_once("%3A").or_else(|| reference.split_once("%3a"))
        });
        match split {
            Some((name, selector)) => Self { name, selector: Some(selector), rest: "" },
            None => Self { name: reference, selector: None, rest: "" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let check = |path, name, selector, rest| {
            assert_eq!(Target::of_path(path, PREFIX), Some(Target { name, selector, rest }), "{path}");
        };
        check("/function/hello", "hello", None, "");
        check("/function/hello/", "hello", None, "/");
        check("/function/hello:prod/a/b:c", "hello", Some("prod"), "/a/b:c");
        check("/function/hello%3Aprod", "hello", Some("prod"), "");
        check("/function/a/../../v1", "a", None, "/../../v1");
        check("/function/", "", None, "");
        check("/function//x", "", None, "/x");
        check("/function/a:", "a", Some(""), "");
        assert_eq!(Target::of_path("/functions/a", PREFIX), None);
        assert_eq!(Target::of_path("/function", PREFIX), None);
    }
}
