//! Deploying functions and managing their versions and aliases.

use std::collections::BTreeMap;

use bytes::Bytes;
use fanfold_protocol::{
    FunctionName, limit,
    rest::{AliasRequest, DeployedView, FunctionView},
};
use futures::TryStreamExt as _;
use reqwest::Method;

use crate::{
    Client, Error, Upload,
    request::{Body, Request},
};

impl Client {
    /// Deploys `component` under `manifest` (the text of a `fanfold.toml`). Idempotent by content; the alias
    /// `latest` points to the version afterwards. Answers when the component is compiled.
    ///
    /// # Errors
    /// `invalid` with what is wrong with the manifest or the component.
    pub async fn deploy(
        &self,
        name: &FunctionName,
        manifest: impl Into<Bytes>,
        component: impl Into<Upload>,
    ) -> Result<DeployedView, Error> {
        let body = Body::Deploy { manifest: manifest.into(), component: component.into() };
        let request = Request::new(Method::PUT, self.function_url(name.as_str()));
        // Uploading and compiling take as long as they take; the gateway bounds both.
        self.json(&Request { body, timeout: None, ..request }).await
    }

    /// All functions, by name.
    ///
    /// # Errors
    /// Those of any request.
    pub async fn functions(&self) -> Result<Vec<FunctionView>, Error> {
        let page = vec![("limit", limit::LIST_PAGE_MAX.to_string())];
        self.pages(self.at(["v1", "functions"]), page).try_collect().await
    }

    /// One function: its versions and aliases.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn function(&self, name: &str) -> Result<FunctionView, Error> {
        self.json(&Request::get(self.function_url(name))).await
    }

    /// Removes a function with all its versions and aliases. Invocations that run go on to their end.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn remove_function(&self, name: &str) -> Result<(), Error> {
        self.bytes(&Request::new(Method::DELETE, self.function_url(name))).await.map(drop)
    }

    /// Points `alias` at versions (digests, or at least six leading digits of one) by weight; an empty map removes
    /// the alias.
    ///
    /// # Errors
    /// `not-found` for an unknown function or version.
    pub async fn set_alias(
        &self,
        name: &str,
        alias: &str,
        weights: BTreeMap<String, u32>,
    ) -> Result<FunctionView, Error> {
        let url = self.at(["v1", "functions", name, "aliases", alias]);
        self.json(&Request::post(url).json(&AliasRequest { weights })?).await
    }

    /// Points `latest` at the version before the one it points to.
    ///
    /// # Errors
    /// `conflict` where there is no earlier version.
    pub async fn roll_back(&self, name: &str) -> Result<FunctionView, Error> {
        self.json(&Request::post(self.at(["v1", "functions", name, "rollback"]))).await
    }

    fn function_url(&self, name: &str) -> reqwest::Url {
        self.at(["v1", "functions", name])
    }
}
