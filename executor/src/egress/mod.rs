//! Outgoing HTTP of guests: denied, unless the manifest allows the origin and every address behind it is public.
//!
//! A name is resolved once and the connection goes to exactly the address that was checked, so a resolver cannot
//! change its mind in between. Redirects are never followed for the guest. A refusal is an ordinary HTTP error code
//! to the guest, not a trap.

mod address;
mod origin;
mod send;

use std::{io, sync::Arc};

use fanfold_protocol::{function::FunctionVersion, limit};
use http::{HeaderName, uri::Scheme};
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, RequestOptions, WasiBody, WasiHttpHooks, p2::bindings::http::types::ErrorCode,
};

use origin::Origin;

/// What one guest's outgoing requests go through.
pub struct Hooks {
    function: Arc<FunctionVersion>,
    allow_private: bool,
}

impl Hooks {
    /// Hooks with the origins that the manifest of `function` allows.
    pub fn new(function: Arc<FunctionVersion>, allow_private: bool) -> Self {
        Self { function, allow_private }
    }

    /// Whether a request may go to `origin`, before its addresses are known.
    fn check(&self, origin: &Origin) -> Result<(), wasmtime_wasi_http::Error> {
        let allowed = &self.function.manifest.egress.allow;
        if !allowed.iter().any(|text| Origin::parse(text).as_ref() == Some(origin)) {
            tracing::debug!(function = %self.function.name, %origin, "egress denied: not in egress.allow");
            return Err(wasmtime_wasi_http::Error::HttpRequestDenied);
        }
        if origin.secure {
            let message = "https is not offered to functions yet: allow and use the http origin";
            return Err(wasmtime_wasi_http::Error::InternalError(Some(message.to_owned())));
        }
        Ok(())
    }
}

/// A future of `wasmtime-wasi-http`'s hooks.
type Io<T> = Box<dyn Future<Output = Result<T, wasmtime_wasi_http::Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        // The default implementation makes a shared closure for every header it asks about.
        DEFAULT_FORBIDDEN_HEADERS.contains(name)
    }

    fn is_supported_scheme(&mut self, scheme: &Scheme) -> bool {
        // https is refused later, with words.
        *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        // Up to three chunks wait per body, in memory that is not the guest's.
        limit::INLINE_BYTES_MAX
    }

    // A guest's failed requests are its own business: the default implementations log each one.
    fn p2_error_from_hyper(&mut self, _: &hyper::Error) -> ErrorCode {
        ErrorCode::HttpProtocolError
    }

    fn p2_error_from_connect(&mut self, _: &io::Error) -> ErrorCode {
        ErrorCode::ConnectionRefused
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _done: Io<()>,
    ) -> Io<(http::Response<WasiBody>, Io<()>)> {
        let origin = Origin::of(request.uri()).ok_or(wasmtime_wasi_http::Error::HttpRequestUriInvalid);
        let checked = origin.and_then(|origin| self.check(&origin).map(|()| origin));
        let allow_private = self.allow_private;
        let body_max = self.function.manifest.body_max;
        Box::new(async move {
            let times = send::Times::of(options);
            send::send(request, &checked?, times, body_max, allow_private).await
        })
    }
}

#[cfg(test)]
mod tests;
