//! Origins: scheme, host and port, in one form, so that two spellings of one origin are equal.

use std::fmt;

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    /// Whether the scheme is `https`.
    pub secure: bool,
    /// Lower case; an IPv6 literal without its brackets.
    pub host: String,
    /// The scheme's where the URI gives none.
    pub port: u16,
}

impl Origin {
    /// An entry of `egress.allow`; `None` where it is no origin, which then allows nothing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: http::Uri = text.parse().ok()?;
        let bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        if bare { Self::of(&uri) } else { None }
    }

    /// The origin of an absolute `http` or `https` URI without user information.
    pub(super) fn of(uri: &http::Uri) -> Option<Self> {
        let secure = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        // A trailing dot names the same host.
        let host = host.strip_suffix('.').unwrap_or(&host).to_owned();
        // A port that is there and is no number must not become the default one.
        let port = match authority.as_str().rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => port.parse().ok()?,
            _ if secure => 443,
            _ => 80,
        };
        (!host.is_empty()).then_some(Self { secure, host, port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}:{}", if self.secure { "s" } else { "" }, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_origin_are_equal() {
        let parse = |text| Origin::parse(text);
        assert_eq!(parse("http://Example.com"), parse("http://example.com.:80/"));
        assert_ne!(parse("http://example.com"), parse("https://example.com"));
        assert_ne!(parse("http://example.com"), parse("http://example.com:8080"));
        assert_eq!(parse("http://[::1]:8080").map(|o| (o.host, o.port)), Some(("::1".to_owned(), 8080)));
        assert_eq!(parse("http://[::1]").map(|o| o.port), Some(80));
        for bad in
            ["example.com", "ftp://example.com", "http://user@example.com", "http://example.com/path", "*"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
