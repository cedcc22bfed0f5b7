//! Attempts of functions that are no tasks: an HTTP function gets the input as a `POST` to `/`, a program on its
//! standard input. Either way it runs as in the direct lane, and its response body is the one output.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_protocol::{
    AttemptId, Code, Error, Kind, PartitionId,
    call::Durability,
    direct::{Body, Reply},
    function::{ComponentKind, FunctionVersion},
    limit,
    message::Assignment,
    value::{Output, Stored, StoredKey, Value},
};
use fanfold_store::Index;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};

use super::{attempt::Attempt, meter::meter};
use crate::{direct, sandbox::LogSink};

/// Media type of an input whose sender gave none.
const OCTETS: &str = "application/octet-stream";

/// Runs the attempt of an HTTP function or a program.
pub(super) async fn run(
    attempt: &mut Attempt,
    function: Arc<FunctionVersion>,
    assignment: Assignment,
) -> Result<Vec<Output>, Error> {
    if assignment.outputs != 1 || assignment.generator {
        let message = format!("`{}` is no task function: it has one output, its response", function.name);
        return Err(Error::new(Kind::Invalid, Code::Call, message));
    }
    let is_http = function.info.kind == ComponentKind::Http;
    let function = as_assigned(function, &assignment);
    let request = request(&function, input(&assignment)?)?;
    attempt.start();
    let (lane, logs) = (attempt.worker.direct.clone(), LogSink::default());
    attempt.control.tail.begin(&logs);
    // Boxed, because all of the lane is in it.
    let call = Box::pin(async {
        let reply = if is_http {
            direct::http::serve(&lane, function, request, logs).await?
        } else {
            direct::call(&lane, function, request, logs).await?
        };
        answer(reply).await
    });
    let metered = meter(call, &attempt.control, Duration::MAX).await;
    attempt.usage.cpu_us = u64::try_from(metered.busy.as_micros()).unwrap_or(u64::MAX);
    let body = metered.result??;
    Ok(vec![output(attempt, &assignment, body).await?])
}

/// The function with the limits of this attempt, which may have more memory than the manifest says.
fn as_assigned(function: Arc<FunctionVersion>, assignment: &Assignment) -> Arc<FunctionVersion> {
    let manifest = &function.manifest;
    if manifest.resources.memory == assignment.memory && manifest.timeout == assignment.timeout_ms {
        return function;
    }
    let mut function = FunctionVersion::clone(&function);
    function.manifest.resources.memory = assignment.memory;
    function.manifest.timeout = assignment.timeout_ms;
    Arc::new(function)
}

fn input(assignment: &Assignment) -> Result<Bytes, Error> {
    match assignment.args.as_slice() {
        [] => Ok(Bytes::new()),
        [one] => match (&one.value, &one.output) {
            (Value::Inline(payload), _) | (_, Some(Output::Inline(payload))) => Ok(payload.bytes.clone()),
            _ => Err(Error::new(
                Kind::Invalid,
                Code::Call,
                "only a task function takes partitions: pass bytes",
            )),
        },
        more => {
            let message = format!("only a task function takes {} arguments: pass one", more.len());
            Err(Error::new(Kind::Invalid, Code::Call, message))
        }
    }
}

fn request(function: &FunctionVersion, body: Bytes) -> Result<Request<Body>, Error> {
    Request::builder()
        .method(Method::POST)
        .uri("/")
        .header(header::HOST, function.name.as_str())
        .header(header::CONTENT_TYPE, OCTETS)
        .header(header::CONTENT_LENGTH, body.len())
        .body(Full::new(body).map_err(|never| match never {}).boxed_unsync())
        .map_err(|e| Error::internal(format!("the input does not fit into a request: {e}")))
}

/// The whole response of a function that did not fail.
async fn answer(reply: Reply) -> Result<Bytes, Error> {
    let (head, body) = reply.response.into_parts();
    let body = body.collect().await?.to_bytes();
    if head.status < StatusCode::INTERNAL_SERVER_ERROR {
        return Ok(body);
    }
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    let message = format!("the function answered {}: {}", head.status, shown.trim());
    Err(Error::new(Kind::Guest, Code::ErrorReturned, message))
}

/// The response as the attempt's output.
async fn output(attempt: &mut Attempt, assignment: &Assignment, body: Bytes) -> Result<Output, Error> {
    if body.len() <= limit::INLINE_BYTES_MAX {
        return Ok(Output::Inline(body.into()));
    }
    let tasks = &attempt.worker.shared.tasks;
    let AttemptId { task, epoch, number } = assignment.attempt;
    let key =
        StoredKey { job: assignment.job, partition: PartitionId { task, output: 0 }, epoch, attempt: number };
    let index = Index::of(&body);
    let meta = index.meta();
    let charge = tasks.cache.charge(meta.bytes).await?;
    attempt.usage.bytes_written += meta.bytes;
    tasks.cache.insert(key, body.into(), index, charge, assignment.durability);
    if assignment.durability == Durability::Eager
        && let Err(error) = tasks.cache.persist(vec![key]).await
    {
        tasks.cache.free(&[key]);
        return Err(error);
    }
    let durable = tasks.cache.is_durable(key);
    Ok(Output::Stored(Stored { key, meta, at: Some(tasks.executor), durable, refs: Vec::new() }))
}
