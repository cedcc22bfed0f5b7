//! A deployed version of a function: what the gateway knows of it and the executor needs to run it.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, FunctionName, Manifest};

/// What kind of component it is, found from its exports at deploy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ComponentKind {
    /// Exports `wasi:http/incoming-handler@0.2.x`.
    Http,
    /// Exports `wasi:cli/run@0.2.x` (also what a wrapped `wasip1` command module becomes).
    Cli,
    /// Exports `fanfold:function/handler@0.1.x`: our `task` world.
    Task,
}

/// What admission and compilation found out about a component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComponentInfo {
    /// Its kind.
    pub kind: ComponentKind,
    /// Whether it imports the host calls that make it a driver (`fanfold:function/tasks`). A component that does
    /// not can be called without the scheduler knowing.
    pub submits: bool,
    /// Names of its imports, for `describe`.
    pub imports: Vec<String>,
    /// Bytes of the component as uploaded.
    pub component_bytes: u64,
    /// Bytes of its compiled code.
    pub compiled_bytes: u64,
    /// Microseconds that admission and compilation took; 0 where a compiled copy was there already.
    pub compile_us: u64,
}

/// One immutable version of a function. `version` is the digest of the component and the canonical manifest, so a
/// deploy is idempotent by content.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FunctionVersion {
    /// The function.
    pub name: FunctionName,
    /// `Digest::of_parts([component digest, canonical manifest JSON])`.
    pub version: Digest,
    /// SHA-256 of the component as uploaded: the key of its bytes and of its compiled code.
    pub component: Digest,
    /// Its manifest.
    pub manifest: Manifest,
    /// What admission found.
    pub info: ComponentInfo,
    /// Unix time in milliseconds.
    pub deployed_at_ms: u64,
}

impl FunctionVersion {
    /// The version digest of a component under a manifest.
    pub fn digest(component: Digest, manifest: &Manifest) -> Digest {
        // Field order is declaration order and maps are sorted, so this JSON is canonical.
        let manifest = serde_json::to_vec(manifest).unwrap_or_default();
        Digest::of_parts(&[&component.0, &manifest])
    }

    /// Whether clocks and randomness are virtual for it.
    pub fn deterministic(&self) -> bool {
        self.manifest.deterministic.unwrap_or(self.info.kind == ComponentKind::Task)
    }
}

/// How a caller names a function: `name`, `name:alias` or `name:version-prefix`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FunctionRef {
    /// The function.
    pub name: FunctionName,
    /// An alias, or at least 6 leading digits of a version. `None`: the alias `latest`.
    pub selector: Option<Arc<str>>,
}

impl FromStr for FunctionRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, selector) = match text.split_once(':') {
            Some((name, selector)) => (name, Some(selector)),
            None => (text, None),
        };
        // Aliases follow the same rule as names, and version digits are a subset of it.
        let selector = selector.map(|s| s.parse::<FunctionName>().map(|s| s.as_str().into())).transpose()?;
        Ok(Self { name: name.parse()?, selector })
    }
}

impl fmt::Display for FunctionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.selector {
            Some(selector) => write!(f, "{}:{selector}", self.name),
            None => self.name.fmt(f),
        }
    }
}
