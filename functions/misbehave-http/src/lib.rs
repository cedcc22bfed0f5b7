//! Answers HTTP requests as one must not; the last part of the path says how: `GET /function/misbehave-http/silent`.

use wasip2::{
    exports::http::incoming_handler::Guest,
    http::types::{ErrorCode, Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam},
    io::streams::OutputStream,
};

struct Misbehave;

wasip2::http::proxy::export!(Misbehave);

impl Guest for Misbehave {
    fn handle(request: IncomingRequest, answer: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        match path.rsplit('/').next().unwrap_or_default() {
            "nothing" => respond(answer, 200, &[], |body| send(body, b"ok\n")),
            // Returns without having answered.
            "silent" => drop(answer),
            // Does not return.
            "never" => loop {
                std::hint::spin_loop();
            },
            // Answers with an error instead of a response.
            "refuse" => {
                ResponseOutparam::set(answer, Err(ErrorCode::InternalError(Some("asked to refuse".into()))));
            }
            // A status that does not exist; the host refuses it when it is set.
            "status" => respond(answer, 42, &[], |_| true),
            // Promises more than it sends, and less.
            "short" => respond(answer, 200, &[("content-length", "1000")], |body| send(body, b"short")),
            "long" => respond(answer, 200, &[("content-length", "3")], |body| send(body, b"too long")),
            // Headers that are not the function's to set; the host refuses them.
            "header" => {
                let headers = [("connection", "close"), ("transfer-encoding", "chunked")];
                respond(answer, 200, &headers, |_| true);
            }
            // Leaves its body unfinished.
            "unfinished" => respond(answer, 200, &[], |body| !send(body, b"and then")),
            // Traps before its body, and in the middle of it.
            "trap" => std::process::abort(),
            "break" => respond(answer, 200, &[], |body| send(body, b"half a") && std::process::abort()),
            // Sends without end.
            "flood" => respond(answer, 200, &[], |body| {
                while send(body, &[b'x'; 4096]) {}
                false
            }),
            _ => respond(answer, 404, &[], |_| true),
        }
    }
}

/// Answers with a status and headers, lets `write` send the body, and finishes it if `write` says so.
fn respond(
    answer: ResponseOutparam,
    status: u16,
    headers: &[(&str, &str)],
    write: impl FnOnce(&OutputStream) -> bool,
) {
    let fields = Fields::new();
    for (name, value) in headers {
        if let Err(error) = fields.append(name, value.as_bytes()) {
            eprintln!("{name}: {error}");
        }
    }
    let response = OutgoingResponse::new(fields);
    if response.set_status_code(status).is_err() {
        eprintln!("status {status} was refused");
    }
    let body = response.body();
    ResponseOutparam::set(answer, Ok(response));
    let Ok(body) = body else { return };
    let Ok(stream) = body.write() else { return };
    let complete = write(&stream);
    drop(stream);
    if complete && let Err(error) = OutgoingBody::finish(body, None) {
        eprintln!("the body was refused: {error}");
    }
}

/// Sends some bytes, at most 4096; says whether more may follow.
fn send(stream: &OutputStream, bytes: &[u8]) -> bool {
    stream.blocking_write_and_flush(bytes).is_ok()
}
