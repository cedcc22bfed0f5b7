//! `PUT /v1/functions/{name}`: from an upload to a version that can be called.
//!
//! In this order, so that nothing is called that would not survive a crash: read the parts, check the manifest, store
//! the component, have an executor check and compile it, store the version, journal it. What a failed deploy leaves
//! behind is content-addressed: the next attempt finds it.

use axum::{
    Json,
    extract::{DefaultBodyLimit, FromRequest as _, Multipart, Request, State, multipart::Field},
};
use bytes::{Bytes, BytesMut};
use fanfold_protocol::{
    Code, Error, FunctionName, Kind, Manifest,
    function::FunctionVersion,
    limit,
    rest::{DeployedView, Problem},
};
use http::StatusCode;

use super::{Answer, Gateway, extract::Segments};
use crate::{body, clock, problem::Failure, registry::Change, shared::Shared};

/// The parts of an upload.
#[derive(utoipa::ToSchema)]
#[allow(dead_code, reason = "describes the multipart body for /openapi.json; it is read part by part")]
pub(super) struct Upload {
    /// `fanfold.toml` as text, at most 64 KiB. Its name must be the path's.
    manifest: String,
    /// The component, or a `wasip1` command module, at most 50 MiB.
    #[schema(value_type = String, format = Binary)]
    component: Vec<u8>,
}

/// Deploy a version; `latest` then points to it. Idempotent by content.
#[utoipa::path(
    put, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "The function")),
    request_body(content = Upload, content_type = "multipart/form-data"),
    responses(
        (status = 201, description = "A new version", body = DeployedView),
        (status = 200, description = "This version was there", body = DeployedView),
        (status = 400, description = "The name, the upload or the manifest is wrong", body = Problem),
        (status = 413, description = "Too large", body = Problem),
        (status = 422, description = "The component is refused", body = Problem),
        (status = 429, description = "Too many uploads at once", body = Problem),
        (status = 507, description = "The disk is full", body = Problem),
    ),
)]
pub(super) async fn deploy(
    State(shared): Gateway,
    Segments(name): Segments<String>,
    request: Request,
) -> Answer<(StatusCode, Json<DeployedView>)> {
    let name: FunctionName = name.parse()?;
    let _place = shared.deploys.try_acquire().map_err(|_| {
        let why = format!("{} uploads run already: try again later", shared.config.deploys_max);
        Error::new(Kind::Overloaded, Code::QueueFull, why)
    })?;
    let parts = Parts::read(request).await?;
    let manifest = Manifest::parse(&parts.manifest)?;
    if manifest.name != name {
        let why =
            format!("fanfold.toml: name is `{}`, but the path says `{name}`: make them equal", manifest.name);
        return Err(Error::new(Kind::Invalid, Code::Manifest, why).into());
    }
    // Where the component lay on somebody's disk makes no other version of it.
    let manifest = Manifest { component: None, ..manifest };
    let version = prepare(&shared, manifest, parts.component).await?;
    let view = DeployedView {
        name,
        version: version.version,
        kind: version.info.kind,
        created: true,
        compile_us: version.info.compile_us,
    };
    let known = shared.registry.function(&view.name).await.is_ok_and(|function| {
        function.versions.iter().any(|callable| callable.version.version == view.version)
    });
    shared.change(Change::Deploy(Box::new(version))).await?;
    let status = if known { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(DeployedView { created: !known, ..view })))
}

/// Stores, checks and compiles.
async fn prepare(shared: &Shared, manifest: Manifest, component: Bytes) -> Result<FunctionVersion, Error> {
    let component = shared.store.put_component(component).await?;
    let info = shared.direct.prepare(component).await?;
    let version = FunctionVersion {
        name: manifest.name.clone(),
        version: FunctionVersion::digest(component, &manifest),
        component,
        manifest,
        info,
        deployed_at_ms: clock::now_ms(),
    };
    shared.store.put_version(&version).await?;
    Ok(version)
}

/// An upload, read.
struct Parts {
    manifest: String,
    component: Bytes,
}

impl Parts {
    async fn read(mut request: Request) -> Result<Self, Failure> {
        let announced =
            request.headers().get(http::header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        // The manifest, boundaries and part headers come on top of the component.
        if announced.is_some_and(|bytes: u64| bytes > limit::COMPONENT_BYTES_MAX + (1 << 20)) {
            return Err(component_too_large().into());
        }
        // Each part has its own limit; axum's for a whole body is 2 MB.
        DefaultBodyLimit::disable().apply(&mut request);
        let mut multipart = Multipart::from_request(request, &()).await.map_err(|e| malformed(&e))?;
        let (mut manifest, mut component) = (None, None);
        while let Some(field) = multipart.next_field().await.map_err(|e| malformed(&e))? {
            match field.name() {
                Some("manifest") => {
                    let bytes = part(field, limit::MANIFEST_BYTES_MAX, manifest_too_large).await?;
                    let text = String::from_utf8(bytes.into());
                    manifest = Some(text.map_err(|_| {
                        Error::new(Kind::Invalid, Code::Manifest, "fanfold.toml is not UTF-8 text")
                    })?);
                }
                Some("component") => {
                    let max = usize::try_from(limit::COMPONENT_BYTES_MAX).unwrap_or(usize::MAX);
                    component = Some(part(field, max, component_too_large).await?);
                }
                other => {
                    let name = other.unwrap_or_default().escape_debug().to_string();
                    return Err(Error::invalid(format!(
                        "the upload has a part `{name}`: send `manifest` and `component`"
                    ))
                    .into());
                }
            }
        }
        let missing = |part| Error::invalid(format!("the upload has no part `{part}`"));
        Ok(Self {
            manifest: manifest.ok_or_else(|| missing("manifest"))?,
            component: component.ok_or_else(|| missing("component"))?,
        })
    }
}

/// One part in memory.
async fn part(mut field: Field<'_>, bytes_max: usize, too_large: fn() -> Error) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = field.chunk().await.map_err(|e| malformed(&e))? {
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// Why an upload could not be read: the body's own error, or the multipart reader's.
fn malformed(error: &(dyn std::error::Error + 'static)) -> Error {
    body::cause(error)
}

fn component_too_large() -> Error {
    let why = format!(
        "the component is longer than {} MiB: strip it or split it",
        limit::COMPONENT_BYTES_MAX >> 20
    );
    Error::new(Kind::Invalid, Code::ComponentTooLarge, why)
}

fn manifest_too_large() -> Error {
    let why = format!("the manifest is longer than {} KiB", limit::MANIFEST_BYTES_MAX >> 10);
    Error::new(Kind::Invalid, Code::Manifest, why)
}
