//! HTTP functions: `wasi:http/incoming-handler`, a fresh instance per request.

use std::sync::Arc;

use fanfold_protocol::{
    Code, Error, Kind,
    direct::{Body, Reply},
    function::FunctionVersion,
};
use http::{Method, Request, Response, StatusCode, header};
use wasmtime_wasi_http::{
    WasiBody, WasiHttpView,
    p2::bindings::http::types::{ErrorCode, Scheme},
};

use super::{
    Direct,
    body::{self, malformed},
    call::{self, Call, Reached},
    output_too_large, too_large,
};
use crate::{
    load::{Loaded, Program},
    sandbox::{self, LogSink, SandboxSpec},
};

/// What a guest answers with: a response, or the error code that it chose.
type Head = Result<Response<WasiBody>, ErrorCode>;

/// See [`fanfold_protocol::direct::DirectLane::http`]. `logs` has the log lines also of a call that fails.
pub(crate) async fn serve(
    direct: &Arc<Direct>,
    function: Arc<FunctionVersion>,
    request: Request<Body>,
    logs: LogSink,
) -> Result<Reply, Error> {
    let body_max = function.manifest.body_max;
    check(&request, body_max)?;
    let (loaded, timing) = direct.load(&function).await?;
    let permit = direct.room(&function).await?;
    let call = Call::<Head>::begin();
    let timeout_ms = function.manifest.timeout;
    let bodiless = *request.method() == Method::HEAD;
    let run = handle(direct.clone(), function, loaded, request, call.clone(), logs.clone());
    let mut guest = call::guest(call.clone(), timeout_ms, async move {
        let _permit = permit;
        run.await
    });
    let reached = call::advance(&call, &mut guest, || call.has_head()).await;
    let head = match &reached {
        Reached::End(Err(error)) => return Err(error.clone()),
        Reached::End(Ok(())) | Reached::Head => call.take_head(),
    };
    let head = head.ok_or_else(|| malformed("it returned without setting a response"))?;
    let (parts, body) = head.map_err(refused)?.into_parts();
    let said = announced(&parts.headers)?;
    if said.is_some_and(|bytes| bytes > body_max) {
        return Err(output_too_large(body_max));
    }
    let body = match reached {
        Reached::Head => {
            let guest = call::stream(direct, call.clone(), guest);
            body::outgoing(body, body_max, call.clone(), guest)
        }
        Reached::End(_) => {
            let (body, bytes) = body::written(body, body_max)?;
            let empty = bodiless || parts.status == StatusCode::NOT_MODIFIED;
            if let Some(said) = said.filter(|said| *said != bytes && !empty) {
                return Err(malformed(format_args!("it announced {said} bytes and wrote {bytes}")));
            }
            body
        }
    };
    Ok(Reply { response: Response::from_parts(parts, body), timing: call.timing(timing), logs: logs.logs() })
}

/// What can be refused before anything runs.
fn check(request: &Request<Body>, body_max: u64) -> Result<(), Error> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse().ok()).is_some_and(|length: u64| length > body_max) {
        return Err(too_large(body_max));
    }
    let named = request.uri().authority().is_some()
        || request.headers().get(header::HOST).is_some_and(|host| host.to_str().is_ok());
    if named { Ok(()) } else { Err(Error::invalid("the request names no host: send a `host` header")) }
}

/// Runs one instance from its making to its end.
async fn handle(
    direct: Arc<Direct>,
    function: Arc<FunctionVersion>,
    loaded: Arc<Loaded>,
    request: Request<Body>,
    call: Arc<Call<Head>>,
    logs: LogSink,
) -> Result<(), Error> {
    let Program::Http(pre) = &loaded.program else {
        return Err(Error::invalid(format!(
            "`{}` is no HTTP function: POST to /function/{0}",
            function.name
        )));
    };
    let spec = SandboxSpec {
        time: sandbox::Time::of_call(&function),
        memory: function.manifest.resources.memory,
        args: &[],
        stdin: None,
        stdout: None,
        logs,
        allow_private_egress: direct.shared.config.allow_private_egress,
        task: None,
        turns: Some(call.turns()),
        function: &function,
    };
    let mut store = sandbox::open(&direct.shared.engine, spec);
    let body_max = function.manifest.body_max;
    let run = async {
        let scheme = if request.uri().scheme() == Some(&http::uri::Scheme::HTTPS) {
            Scheme::Https
        } else {
            Scheme::Http
        };
        let request = request.map(|body| body::incoming(body, body_max, call.clone()));
        let mut view = store.data_mut().http();
        let request = view.new_incoming_request(scheme, request)?;
        let answer = call.clone();
        let out = view.new_response_outparam_from_callback(move |head| answer.set_head(head))?;
        let proxy = pre.instantiate_async(&mut store).await?;
        call.instantiated();
        proxy.wasi_http_incoming_handler().call_handle(&mut store, request, out).await
    };
    let result = run.await.map_err(|error| sandbox::classify(&error, store.data()));
    if let Err(error) = &result {
        call.fail(error.clone());
    }
    result
}

fn refused(code: ErrorCode) -> Error {
    Error::new(Kind::Guest, Code::ErrorReturned, format!("the function answered with the error {code:?}"))
}

/// The length that a response announces.
fn announced(headers: &http::HeaderMap) -> Result<Option<u64>, Error> {
    let Some(value) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(length) => Ok(Some(length)),
        None => Err(malformed("its content-length is not a number")),
    }
}
