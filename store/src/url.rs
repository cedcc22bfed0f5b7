//! Where a store is, as people write it: a directory, a bucket, or the memory of this process.

use std::{fmt, path::PathBuf, str::FromStr};

use fanfold_protocol::Error;

/// The place of a store.
///
/// | written | is |
/// |---|---|
/// | `/var/lib/fanfold`, `data`, `file:///var/lib/fanfold` | a directory of a local disk |
/// | `s3://bucket`, `s3://bucket/some/prefix` | a bucket, or the part of it below a prefix |
/// | `memory://` | this process's memory, for tests |
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreUrl {
    /// A directory of a local disk.
    Directory(PathBuf),
    /// A bucket of S3 or of a server that speaks its protocol.
    S3(Bucket),
    /// Lives and dies with the process.
    Memory,
}

/// A bucket and where in it a store begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// What every key begins with, without a `/` at either end; may be empty.
    pub prefix: String,
}

impl Bucket {
    /// The user's key of what the bucket has under `key`; `None`: it is no object of the store that begins here.
    pub(crate) fn object_key<'a>(&self, key: &'a str) -> Option<&'a str> {
        let below = key.strip_prefix(&self.prefix)?;
        let below = if self.prefix.is_empty() { below } else { below.strip_prefix('/')? };
        below.strip_prefix("objects/")
    }
}

impl StoreUrl {
    /// Whether other processes may use the same store at the same time.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::S3(_))
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    /// # Errors
    /// `invalid`, saying which forms there are.
    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() {
                Err(refuse(text, "it is empty"))
            } else {
                Ok(Self::Directory(text.into()))
            };
        };
        match scheme {
            "file" if rest.starts_with('/') => Ok(Self::Directory(rest.into())),
            "file" => Err(refuse(text, "a `file` URL has three slashes and a whole path")),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(refuse(text, "memory has no path")),
            "s3" => Bucket::parse(rest).map(Self::S3).map_err(|what| refuse(text, what)),
            _ => Err(refuse(text, "its scheme is unknown")),
        }
    }
}

impl Bucket {
    fn parse(rest: &str) -> Result<Self, &'static str> {
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // S3's rule for names, the older underscores and capitals left out: they are not host names.
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if !(3..=63).contains(&name.len()) || !name.bytes().all(plain) {
            return Err("a bucket's name has 3 to 63 of `a-z`, `0-9`, `-` and `.`");
        }
        let prefix = prefix.trim_matches('/');
        let part =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !prefix.is_empty() && !prefix.split('/').all(|p| !matches!(p, "" | "." | "..") && part(p)) {
            return Err("the parts of a prefix have letters, digits, `-`, `_` and `.` only");
        }
        Ok(Self { name: name.to_owned(), prefix: prefix.to_owned() })
    }
}

fn refuse(text: &str, what: &str) -> Error {
    let shown: String = text.chars().take(200).flat_map(char::escape_debug).collect();
    Error::invalid(format!(
        "`{shown}` is no place for a store: {what}; write a directory, `file:///directory` or `s3://bucket/prefix`"
    ))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(dir) => dir.display().fmt(f),
            Self::S3(bucket) => bucket.fmt(f),
            Self::Memory => f.write_str("memory://"),
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.name)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_understood() {
        let s3 = |name: &str, prefix: &str| StoreUrl::S3(Bucket { name: name.into(), prefix: prefix.into() });
        for (text, wanted) in [
            ("data", StoreUrl::Directory("data".into())),
            ("/var/x", StoreUrl::Directory("/var/x".into())),
            ("file:///var/x", StoreUrl::Directory("/var/x".into())),
            ("memory://", StoreUrl::Memory),
            ("s3://bucket", s3("bucket", "")),
            ("s3://bucket/", s3("bucket", "")),
            ("s3://my.bucket-1/a/b_c/", s3("my.bucket-1", "a/b_c")),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "file://relative",
            "memory://x",
            "s3://",
            "s3://AB",
            "s3://bucket/a//b",
            "s3://bucket/../x",
            "gs://b",
        ] {
            let refused = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(refused.contains("s3://bucket/prefix"), "{text}: {refused}");
        }
        assert_eq!(s3("bucket", "a/b").to_string(), "s3://bucket/a/b");
    }

    #[test]
    fn objects_of_a_store_are_known_by_their_keys_in_the_bucket() {
        let below = |prefix: &str, key| {
            Bucket { name: "b".into(), prefix: prefix.into() }.object_key(key).map(String::from)
        };
        assert_eq!(below("", "objects/in/a b").as_deref(), Some("in/a b"));
        assert_eq!(below("x/y", "x/y/objects/a").as_deref(), Some("a"));
        for key in ["objects/a", "x/yobjects/a", "x/y/journal/1", "x/y/objects"] {
            assert_eq!(below("x/y", key), None, "{key}");
        }
    }
}
