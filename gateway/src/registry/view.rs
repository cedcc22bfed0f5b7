//! How functions are shown over REST.

use fanfold_protocol::rest::{FunctionView, VersionView};

use super::catalog::{Callable, Function};

impl Function {
    /// `GET /v1/functions/{name}`.
    pub fn view(&self) -> FunctionView {
        FunctionView {
            name: self.name.clone(),
            versions: self.versions.iter().map(|callable| callable.view()).collect(),
            aliases: self.aliases.iter().map(|(alias, target)| (alias.clone(), target.weights())).collect(),
        }
    }
}

impl Callable {
    fn view(&self) -> VersionView {
        let version = &self.version;
        VersionView {
            version: version.version,
            component: version.component,
            kind: version.info.kind,
            deployed_at_ms: version.deployed_at_ms,
            component_bytes: version.info.component_bytes,
            compiled_bytes: version.info.compiled_bytes,
            imports: version.info.imports.clone(),
            manifest: version.manifest.clone(),
        }
    }
}
