//! Programs: `wasi:cli/run`, with the request's body as standard input and standard output as the response.
//!
//! A program that writes little is answered when it ends, so that its exit status decides. One that writes more than
//! [`super::pipe::HELD_BYTES_MAX`] streams: its response has begun, and a failure after that ends the body with an error.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind,
    direct::{Body, Reply, Timing},
    function::FunctionVersion,
};
use http::Request;
use http_body::Frame;
use http_body_util::BodyExt;
use wasmtime_wasi::I32Exit;

use super::{
    Direct, body,
    call::{self, Call, Reached, Streaming},
    pipe::{Stdin, Stdout},
    reply,
};
use crate::{
    load::{Loaded, Program},
    sandbox::{self, LogSink, SandboxSpec},
};

/// Arguments of one call, and bytes of them all.
const ARGUMENTS_MAX: usize = 1024;

/// See [`fanfold_protocol::direct::DirectLane::call`].
pub(super) async fn run(
    direct: &Arc<Direct>,
    function: Arc<FunctionVersion>,
    loaded: Arc<Loaded>,
    timing: Timing,
    request: Request<Body>,
    logs: LogSink,
) -> Result<Reply, Error> {
    let args = arguments(function.name.as_str(), request.uri().query().unwrap_or_default())?;
    let permit = direct.room(&function).await?;
    let call = Call::<()>::begin();
    let timeout_ms = function.manifest.timeout;
    let stdin = Stdin::new(body::incoming(request.into_body(), function.manifest.body_max, call.clone()));
    let stdout = Stdout::new(function.manifest.body_max);
    let start = Start { function, loaded, args, stdin, stdout: stdout.clone(), logs: logs.clone() };
    let (engine_of, held) = (direct.clone(), stdout.end_on_drop());
    let (inner, outer) = (call.clone(), call.clone());
    let mut guest = call::guest(outer, timeout_ms, async move {
        // Dropped last: the reader finds the failure that was recorded before.
        let _held = (held, permit);
        start.run(&engine_of, &inner).await
    });
    match call::advance(&call, &mut guest, || stdout.full()).await {
        Reached::End(result) => {
            result?;
            Ok(reply(stdout.take(), call.timing(timing), logs.logs()))
        }
        Reached::Head => {
            let guest = call::stream(direct, call.clone(), guest);
            let mut answer = reply(Bytes::new(), call.timing(timing), logs.logs());
            *answer.response.body_mut() = Output { stdout, call, guest }.boxed_unsync();
            Ok(answer)
        }
    }
}

/// All that a program starts with.
struct Start {
    function: Arc<FunctionVersion>,
    loaded: Arc<Loaded>,
    args: Vec<String>,
    stdin: Stdin,
    stdout: Stdout,
    logs: LogSink,
}

impl Start {
    async fn run(self, direct: &Direct, call: &Call<()>) -> Result<(), Error> {
        let Program::Cli(pre) = &self.loaded.program else {
            return Err(Error::internal("not a program"));
        };
        let spec = SandboxSpec {
            time: sandbox::Time::of_call(&self.function),
            memory: self.function.manifest.resources.memory,
            args: &self.args,
            stdin: Some(Box::new(self.stdin)),
            stdout: Some(Box::new(self.stdout)),
            logs: self.logs,
            allow_private_egress: direct.shared.config.allow_private_egress,
            task: None,
            turns: Some(call.turns()),
            function: &self.function,
        };
        let mut store = sandbox::open(&direct.shared.engine, spec);
        let run = async {
            let program = pre.instantiate_async(&mut store).await?;
            call.instantiated();
            program.wasi_cli_run().call_run(&mut store).await
        };
        let result = match run.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(())) => Err(I32Exit(1).into()),
            Err(error) if matches!(error.downcast_ref(), Some(I32Exit(0))) => Ok(()),
            Err(error) => Err(error),
        };
        let result = result.map_err(|error: wasmtime::Error| sandbox::classify(&error, store.data()));
        if let Err(error) = &result {
            call.fail(error.clone());
        }
        result
    }
}

/// The output of a program that still runs.
struct Output {
    stdout: Stdout,
    call: Arc<Call<()>>,
    guest: Streaming,
}

impl http_body::Body for Output {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(self.stdout.poll_read(cx));
        Poll::Ready(match frame {
            Some(frame) => Some(Ok(frame)),
            None => {
                self.guest.let_go();
                self.call.failure().map(Err)
            }
        })
    }
}

/// A program's arguments: its name, then every `arg` of the query, in order.
fn arguments(name: &str, query: &str) -> Result<Vec<String>, Error> {
    let mut args = vec![name.to_owned()];
    for pair in query.split('&') {
        let Some(value) = pair.strip_prefix("arg=") else { continue };
        args.push(
            decode(value)
                .ok_or_else(|| Error::invalid(format!("`{pair}` is not a valid query parameter")))?,
        );
    }
    if args.len() > ARGUMENTS_MAX {
        let message = format!("over {ARGUMENTS_MAX} arguments: send them in the body");
        return Err(Error::new(Kind::Invalid, Code::Request, message));
    }
    Ok(args)
}

/// Undoes `application/x-www-form-urlencoded` for one value.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}
