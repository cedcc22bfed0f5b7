//! The smallest HTTP function: a fixed text for any request. It is also what the `hello` benchmark serves.

use wasip2::{
    exports::http::incoming_handler::Guest,
    http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam},
};

struct Hello;

wasip2::http::proxy::export!(Hello);

impl Guest for Hello {
    fn handle(_: IncomingRequest, answer: ResponseOutparam) {
        let response = OutgoingResponse::new(Fields::new());
        let body = response.body();
        ResponseOutparam::set(answer, Ok(response));
        let Ok(body) = body else { return };
        // An error means that the client has gone; there is nobody left to tell.
        if let Ok(stream) = body.write() {
            let _ = stream.blocking_write_and_flush(b"hello\n");
        }
        let _ = OutgoingBody::finish(body, None);
    }
}
