//! `fanfold.toml`: what a function is called, what it may use and how it is retried. Unknown keys are errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Code, Error, FunctionName, Kind,
    custom::{Custom, custom_fault},
    limit,
    trigger::{self, Trigger},
};

/// A parsed and checked manifest. Sizes are bytes, times milliseconds.
///
/// In TOML, sizes are strings such as `"128MiB"` (or a whole number of bytes) and times strings such as `"30s"`
/// (or a whole number of milliseconds).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Manifest {
    /// The function's name.
    pub name: FunctionName,
    /// Path of the component, for the CLI; the gateway ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Wall time of one attempt.
    #[serde(default = "default_timeout", with = "duration")]
    pub timeout: u64,
    /// Whether clocks and randomness are virtual. Unset: yes for task functions, no for HTTP functions and programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
    /// Bytes of one HTTP request or response body.
    #[serde(default = "default_body", with = "size")]
    pub body_max: u64,
    /// What one attempt needs.
    #[serde(default)]
    pub resources: Resources,
    /// How many attempts may run and wait at once.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// When a failed attempt is tried again.
    #[serde(default)]
    pub retry: Retry,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of secrets to put in the environment.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Where outgoing requests may go.
    #[serde(default)]
    pub egress: Egress,
    /// What will do as a gpu, for its attempts that hold one. Where nothing is said it is no part of a version's digest.
    #[serde(default, skip_serializing_if = "Gpu::is_default")]
    pub gpu: Gpu,
    /// What calls it: `[[trigger]]`.
    #[serde(default, rename = "trigger", skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
}

/// What one attempt occupies on its executor while it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resources {
    /// Slots, in cpus; may be a fraction.
    pub cpu: f32,
    /// Bytes over all memories and tables of the instance.
    #[serde(with = "size")]
    pub memory: u64,
    /// Ceiling to which memory is doubled when an attempt runs out of it. Unset: `memory`.
    #[serde(with = "size_option", skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    /// GPUs.
    pub gpu: u32,
    /// Resources that operators name, by name: `[resources.custom]`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: Custom,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpu: 1.0, memory: 128 << 20, memory_max: None, gpu: 0, custom: Custom::new() }
    }
}

/// Bounds on what runs and waits at once, per function and gateway.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Concurrency {
    /// Attempts that run at once.
    pub max: u32,
    /// Invocations that wait for a place; one more is answered `429`.
    pub queue: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { max: 64, queue: 1024 }
    }
}

/// When a failed attempt of an asynchronous invocation or a task is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// Age after which an asynchronous invocation is given up.
    #[serde(with = "duration")]
    pub max_age: u64,
    /// Delay before the second attempt; doubled for each further one, up to five minutes.
    #[serde(with = "duration")]
    pub backoff: u64,
}

impl Retry {
    /// What is wrong with it, and what to write.
    pub fn fault(&self) -> Option<&'static str> {
        (self.attempts == 0).then_some("retry.attempts is zero: give more, or leave it out")
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 3, max_age: 6 * 3_600_000, backoff: 1000 }
    }
}

/// Where outgoing requests may go: origins such as `https://api.example.com`. Empty: nowhere.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Egress {
    /// Allowed origins (scheme, host, optional port).
    pub allow: Vec<String>,
}

/// What will do as a gpu.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpu {
    /// Whether an adapter that computes on the processor will do.
    pub software: SoftwareGpu,
}

impl Gpu {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether an adapter that computes on the processor will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SoftwareGpu {
    /// It will.
    Allow,
    /// Only hardware will.
    #[default]
    Refuse,
}

fn default_timeout() -> u64 {
    30_000
}

fn default_body() -> u64 {
    limit::BODY_BYTES_DEFAULT
}

impl Manifest {
    /// A manifest with defaults for everything but the name.
    pub fn named(name: FunctionName) -> Self {
        Self {
            name,
            component: None,
            timeout: default_timeout(),
            deterministic: None,
            body_max: default_body(),
            resources: Resources::default(),
            concurrency: Concurrency::default(),
            retry: Retry::default(),
            env: BTreeMap::new(),
            secrets: Vec::new(),
            egress: Egress::default(),
            gpu: Gpu::default(),
            triggers: Vec::new(),
        }
    }

    /// Parses and checks TOML text.
    ///
    /// # Errors
    /// [`Kind::Invalid`] with the line and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > limit::MANIFEST_BYTES_MAX {
            return Err(refuse(format!("the manifest has over {} bytes", limit::MANIFEST_BYTES_MAX)));
        }
        let mut manifest: Self =
            toml::from_str(text).map_err(|e| refuse(e.to_string().trim_end().to_owned()))?;
        manifest.complete_triggers()?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Says in each trigger what it leaves to the manifest, and checks it.
    fn complete_triggers(&mut self) -> Result<(), Error> {
        let within = |error: Error| refuse(error.message);
        let names = trigger::manifest_names(&self.name, &self.triggers).map_err(within)?;
        for (trigger, name) in self.triggers.iter_mut().zip(names) {
            trigger.name = Some(name);
            if trigger.function.is_empty() {
                trigger.function = self.name.to_string();
            }
            trigger.check().map_err(within)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        let Resources { cpu, memory, memory_max, .. } = self.resources;
        if !(cpu > 0.0 && cpu <= 1024.0) {
            return Err(refuse(format!("resources.cpu is {cpu}: it must be above 0 and at most 1024")));
        }
        if memory < 1 << 16 {
            return Err(refuse(format!("resources.memory is {memory} bytes: give at least 64KiB")));
        }
        if memory_max.is_some_and(|max| max < memory) {
            return Err(refuse("resources.memory_max is below resources.memory: raise it or leave it out"));
        }
        if let Some(why) = custom_fault(&self.resources.custom) {
            return Err(refuse(format!("resources.custom: {why}")));
        }
        if !self.secrets.is_empty() {
            return Err(refuse("secrets: this version keeps none; leave it out"));
        }
        if let Some(bad) = self.egress.allow.iter().find(|origin| !is_origin(origin)) {
            let shown = bad.escape_debug();
            return Err(refuse(format!(
                "egress.allow: `{shown}` is no origin, such as `http://api.example.com:8080`"
            )));
        }
        if let Some(why) = self.retry.fault() {
            return Err(refuse(why));
        }
        let positive = [
            ("timeout", self.timeout),
            ("concurrency.max", u64::from(self.concurrency.max)),
            ("body_max", self.body_max),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(refuse(format!("{key} is zero: give more, or leave it out"))),
            None => Ok(()),
        }
    }
}

/// Whether a text is scheme, host and perhaps port. Who sends requests looks closer.
fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let plain = |host: &str| {
        let host = host.strip_suffix('/').unwrap_or(host);
        !host.is_empty() && !host.contains(['/', '?', '#', '@', '*']) && !host.contains(char::is_whitespace)
    };
    rest.is_some_and(plain)
}

fn refuse(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Invalid, Code::Manifest, message).context("fanfold.toml")
}

/// A whole number with one of some unit suffixes; `None` where it is neither or does not fit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Text(String),
}

macro_rules! amount {
    ($module:ident, $what:literal, $units:expr) => {
        pub(crate) mod $module {
            use super::*;

            pub fn serialize<S: serde::Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_u64(*value)
            }

            pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
                let shape = |_| serde::de::Error::custom(concat!("expected ", $what));
                match Amount::deserialize(from).map_err(shape)? {
                    Amount::Number(value) => Ok(value),
                    Amount::Text(text) => scaled(&text, $units).ok_or_else(|| {
                        serde::de::Error::custom(format!(concat!("`{}` is not ", $what), text.escape_debug()))
                    }),
                }
            }
        }
    };
}

amount!(
    duration,
    "a time such as \"500ms\", \"30s\", \"5m\" or \"6h\"",
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]
);
amount!(
    size,
    "a size such as \"64KiB\", \"128MiB\" or \"1GiB\"",
    &[
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000)
    ]
);

macro_rules! amount_option {
    ($module:ident, $amount:ident) => {
        pub(crate) mod $module {
            use super::*;

            #[allow(clippy::ref_option, reason = "serde's `with` asks for this signature")]
            pub fn serialize<S: serde::Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
                value.serialize(to)
            }

            pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
                $amount::deserialize(from).map(Some)
            }
        }
    };
}

amount_option!(size_option, size);
amount_option!(duration_option, duration);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, wanted: Result<(), &str>) {
        match (Manifest::parse(text), wanted) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{text}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn manifests_are_checked() {
        check("name = \"a\"", Ok(()));
        check(
            "name = \"a\"\ntimeout = \"5m\"\n[resources]\nmemory = \"1GiB\"\nmemory_max = \"2GiB\"",
            Ok(()),
        );
        check("name = \"../a\"", Err("is not a name"));
        check("name = \"a\"\ntimeout = true", Err("30s"));
        check("name = \"a\"\ntimeoot = \"5s\"", Err("unknown field `timeoot`"));
        check("name = \"a\"\n[resources]\nmemory = 0", Err("at least 64KiB"));
        check("name = \"a\"\n[resources]\nmemory = \"12 parsecs\"", Err("128MiB"));
        check("timeout = \"5s\"", Err("missing field `name`"));
        check("name = \"a\"\n[concurrency]\nmax = 0", Err("concurrency.max is zero"));
        check("name = \"a\"\n[resources]\ngpu = 1", Ok(()));
        check("name = \"a\"\n[resources]\ngpu = 1\n[gpu]\nsoftware = \"allow\"", Ok(()));
        check("name = \"a\"\n[resources]\ngpu = 1\n[gpu]\nsoftware = true", Err("software"));
        check("name = \"a\"\n[gpu]\nsoftware = \"allow\"", Ok(()));
        check("name = \"a\"\n[resources.custom]\nlicence = 2", Ok(()));
        check("name = \"a\"\n[resources.custom]\nLicence = 2", Err("`Licence` is no name"));
        check("name = \"a\"\n[[trigger]]\nkind = \"interval\"\nevery = \"5m\"", Ok(()));
        check("name = \"a\"\n[[trigger]]\nkind = \"interval\"", Err("every is missing"));
        check("name = \"a\"\nsecrets = [\"KEY\"]", Err("keeps none"));
        check("name = \"a\"\n[egress]\nallow = [\"http://[::1]:80\", \"https://a.example\"]", Ok(()));
        for bad in ["ftp://a.example", "a.example", "http://*.example", "http://a.example/path", "http://"] {
            check(&format!("name = \"a\"\n[egress]\nallow = [\"{bad}\"]"), Err("is no origin"));
        }
    }
}
