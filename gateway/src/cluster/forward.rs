//! Requests that another gateway must answer: passed on to it once, body and answer streamed.
//!
//! What is asked of a job is passed on to the owner of its shard, which its id names; what carries an idempotency key to
//! the one shard that keeps keys, and so does everything of triggers and events. Everything else is answered where it arrives.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_peer::{Client, Pooling, Security, client, reason};
use fanfold_protocol::{
    Code, Error, JobId, Kind, PartitionId, cluster::Member, direct::Body, link::ShardTag, rest::Problem,
};
use fanfold_store::members::View;
use fanfold_triggers::CloudEvent;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header, uri::PathAndQuery};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::watch;

use super::others::{Others, gateways};
use crate::{body, idempotency, shared::Shared};

/// On requests between gateways: answer it yourself.
const FORWARDED: HeaderName = HeaderName::from_static("fanfold-forwarded");
/// On requests between gateways: the entry of the log of functions that must be known before it is answered.
const REGISTRY: HeaderName = HeaderName::from_static("fanfold-registry");
const CONNECT: Duration = Duration::from_secs(2);
/// Idle connections kept per gateway.
const IDLE_MAX: usize = 64;
/// Bytes of another gateway's page of a list.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of events that are posted together: an event more is below what a body may have.
const EVENTS_BYTES: usize = 1 << 20;
/// How long a deploy waits for other gateways to know of it. Those that do not answer look by themselves twice a second.
const TELL: Duration = Duration::from_secs(2);
/// What the owner of the shard with the keys answers, whoever is asked.
const EVENTS_PATH: &str = "/v1/events";
const TRIGGERS_PATH: &str = "/v1/triggers";
/// Asks for little and needs a token: how other gateways are told of a deploy.
const TELL_PATH: &str = "/v1/functions?limit=1";

/// A client for requests to other gateways' REST addresses, which have no TLS.
pub(super) fn forwarder() -> Client<Body> {
    client(
        Security::default(),
        &Pooling { connect: CONNECT, idle_max: IDLE_MAX, idle: Duration::from_secs(60) },
    )
}

/// The shard whose owner must answer a request, where that is not this gateway.
pub(crate) fn elsewhere<B>(shared: &Shared, request: &Request<B>) -> Option<ShardTag> {
    let others = shared.others.as_ref().filter(|_| !is_forwarded(request.headers()))?;
    tag(others, request).filter(|tag| shared.owners.of(*tag).is_none())
}

/// The shard that keeps idempotency keys, and with them everything of triggers, where that is not this gateway's.
pub(crate) fn keys_elsewhere(shared: &Shared) -> Option<ShardTag> {
    let keys = shared.others.as_ref()?.keys();
    shared.owners.of(keys).is_none().then_some(keys)
}

/// Has the owner of a shard take events that happened here; durable there on return. Where it fails, some of many may be.
///
/// # Errors
/// What it answers; `overloaded` / `unreachable`, retryable, where it is not reached.
pub(crate) async fn post_events(
    shared: &Shared,
    shard: ShardTag,
    events: &[CloudEvent],
) -> Result<(), Error> {
    let mut list = Vec::new();
    for (index, event) in events.iter().enumerate() {
        list.push(if list.is_empty() { b'[' } else { b',' });
        list.extend_from_slice(event.to_json().to_string().as_bytes());
        if list.len() >= EVENTS_BYTES || index + 1 == events.len() {
            list.push(b']');
            post_list(shared, shard, std::mem::take(&mut list)).await?;
        }
    }
    Ok(())
}

async fn post_list(shared: &Shared, shard: ShardTag, list: Vec<u8>) -> Result<(), Error> {
    let Some(to) = owner(shared, shard).await? else {
        return Err(Error::internal("there is no shard that keeps idempotency keys"));
    };
    let name = to.name.clone();
    let mut request = Request::new(body::whole(list.into()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(EVENTS_PATH);
    let kind = HeaderValue::from_static("application/cloudevents-batch+json");
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    own_token(shared, request.headers_mut());
    let response = pass_on(shared, to, request).await?;
    if response.status().is_success() {
        return Ok(());
    }
    let status = response.status();
    let answer = body::collect(response.into_body(), PAGE_BYTES_MAX).await?;
    match serde_json::from_slice::<Problem>(&answer) {
        Ok(problem) => {
            Err(Error::new(problem.kind, problem.code, problem.detail).retryable(problem.retryable))
        }
        Err(_) => Err(not_reached(&name, &status.to_string())),
    }
}

/// Who owns a shard of which this gateway does not. `None`: there is no such shard, and so none of its jobs, which anybody
/// can say.
///
/// # Errors
/// `overloaded` / `unreachable`, retryable, where nobody owns it now; `platform` where it cannot be found out whether there
/// is such a shard.
pub(crate) async fn owner(shared: &Shared, tag: ShardTag) -> Result<Option<Member>, Error> {
    let Some(others) = &shared.others else { return Ok(None) };
    if let Some(owner) = others.owner(tag) {
        return Ok(Some(owner));
    }
    if others.absent(tag).is_none() {
        // Its gateway may have come a moment ago.
        others.list_shards(&shared.store).await?;
    }
    others.absent(tag).map_or(Ok(None), Err)
}

/// Makes sure, before it is said that there is no such job, that the shard which a path names is still this gateway's: who
/// has been superseded does not know what the new owner accepted. Asks the store once.
///
/// # Errors
/// `overloaded` / `unreachable`, retryable, where another gateway has it; those of the store.
pub(crate) async fn still_ours(shared: &Shared, path: &str) -> Result<(), Error> {
    let Some(shard) = named(path).and_then(|tag| shared.owners.tagged(tag)) else { return Ok(()) };
    if shared.others.is_none() || shared.store.is_newest(&shard.name, shard.epoch).await? {
        return Ok(());
    }
    let why = format!(
        "the jobs of gateway `{}` have got another owner this moment: ask again in a second, when this gateway knows it",
        shard.name.as_str()
    );
    Err(Error::new(Kind::Overloaded, Code::Unreachable, why).retryable(true))
}

/// Waits until this gateway knows the functions that the one that passed a request on knows.
///
/// # Errors
/// As [`crate::Registry::reach`].
pub(crate) async fn arrive(shared: &Shared, headers: &HeaderMap) -> Result<(), Error> {
    let seq = headers.get(REGISTRY).and_then(|value| value.to_str().ok()?.parse().ok());
    match seq {
        Some(seq) => shared.registry.reach(seq).await,
        None => Ok(()),
    }
}

/// Whether another gateway passed the request on.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED)
}

/// The shard whose owner must answer.
fn tag<B>(others: &Others, request: &Request<B>) -> Option<ShardTag> {
    let keyed = || *request.method() == Method::POST && request.headers().contains_key(idempotency::HEADER);
    let path = request.uri().path();
    let triggers = || path == EVENTS_PATH || path.starts_with(TRIGGERS_PATH);
    named(path).or_else(|| (keyed() || triggers()).then(|| others.keys()))
}

/// The shard of the job that a path names.
fn named(path: &str) -> Option<ShardTag> {
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    match (parts.next()?, parts.next()?) {
        ("invocations" | "jobs" | "dead-letters", id) => Some(id.parse::<JobId>().ok()?.shard()),
        ("partitions", id) => Some(id.parse::<PartitionId>().ok()?.task.shard()),
        _ => None,
    }
}

/// Passes a request on and its answer back. An answer breaks off when the gateway that gives it is gone.
///
/// # Errors
/// `overloaded` / `unreachable`, retryable, where the gateway is not reached or goes away before it has answered.
pub(crate) async fn pass_on(
    shared: &Shared,
    to: Member,
    request: Request<Body>,
) -> Result<Response<axum::body::Body>, Error> {
    let Some(others) = &shared.others else { return Err(Error::internal("there is no other gateway")) };
    let (mut parts, body) = request.into_parts();
    parts.uri = uri(&to, parts.uri.path_and_query())?;
    super::hop_by_hop(&mut parts.headers);
    mark(&mut parts.headers, shared.registry.seq());
    let (name, mut gone) = (to.name, Box::pin(gone(others.view(), to.id)));
    let answered = tokio::select! {
        answered = others.forwarder.request(Request::from_parts(parts, body)) => answered,
        () = &mut gone => return Err(went_away(&name)),
    };
    let (mut head, incoming) = answered.map_err(|e| not_reached(&name, &reason(&e)))?.into_parts();
    super::hop_by_hop(&mut head.headers);
    let body = axum::body::Body::from_stream(Answer { incoming, gone, name }.into_stream());
    Ok(Response::from_parts(head, body))
}

/// What others answer to the same question, each for itself, in at most [`PAGE_BYTES_MAX`].
///
/// # Errors
/// As [`pass_on`], of the first that fails.
pub(super) async fn ask_all(
    shared: &Shared,
    others: &Others,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Vec<Bytes>, Error> {
    let asked = others.gateways().into_iter().map(async |to| {
        let mut request = Request::new(body::empty());
        *request.uri_mut() = uri.clone();
        if let Some(token) = headers.get(header::AUTHORIZATION) {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        let name = to.name.clone();
        let response = pass_on(shared, to, request).await?;
        if !response.status().is_success() {
            let why = format!("gateway `{name}` answered {}", response.status());
            return Err(Error::new(Kind::Overloaded, Code::Unreachable, why).retryable(true));
        }
        body::collect(response.into_body(), PAGE_BYTES_MAX).await
    });
    futures::future::try_join_all(asked).await
}

/// Tells the other gateways that functions have changed, and waits a little until they know.
pub(crate) async fn tell_changed(shared: &Shared) {
    let Some(others) = &shared.others else { return };
    let mut headers = HeaderMap::new();
    own_token(shared, &mut headers);
    let uri = Uri::from_static(TELL_PATH);
    let told = ask_all(shared, others, &uri, &headers);
    match tokio::time::timeout(TELL, told).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "another gateway will see the change by itself"),
        Err(_) => tracing::debug!("another gateway did not say in time that it knows of the change"),
    }
}

fn own_token(shared: &Shared, headers: &mut HeaderMap) {
    if let Some(token) = &shared.config.token
        && let Ok(value) = HeaderValue::try_from(format!("Bearer {token}"))
    {
        headers.insert(header::AUTHORIZATION, value);
    }
}

fn mark(headers: &mut HeaderMap, seq: u64) {
    headers.insert(FORWARDED, HeaderValue::from_static("1"));
    headers.insert(REGISTRY, HeaderValue::from(seq));
}

fn uri(to: &Member, path: Option<&PathAndQuery>) -> Result<Uri, Error> {
    let uri = format!("{}{}", to.url, path.map_or("/", PathAndQuery::as_str));
    uri.parse().map_err(|_| {
        Error::internal(format!("gateway `{}` announces `{}`, which is no URL", to.name, to.url))
    })
}

/// Resolves when a member is not on the list any more. While the list cannot be read, nobody leaves it.
async fn gone(mut view: watch::Receiver<Arc<View>>, id: u64) {
    let there = |view: &Arc<View>| gateways(view).any(|member| member.id == id);
    // An error would mean that nobody keeps the list any more: then nothing can be said.
    if view.wait_for(|view| !there(view)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// An answer on its way back.
struct Answer<G> {
    incoming: Incoming,
    gone: Pin<Box<G>>,
    name: String,
}

impl<G: Future<Output = ()> + Send> Answer<G> {
    fn into_stream(self) -> impl futures::Stream<Item = Result<Bytes, Error>> + Send {
        futures::stream::try_unfold(self, |mut answer| async move {
            Ok(answer.next().await?.map(|data| (data, answer)))
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = tokio::select! {
                frame = self.incoming.frame() => frame,
                () = &mut self.gone => return Err(went_away(&self.name)),
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => return Err(went_away(&self.name)),
                None => return Ok(None),
            }
        }
    }
}

fn went_away(name: &str) -> Error {
    let why = format!("gateway `{name}`, which has what was asked for, went away: ask again");
    Error::new(Kind::Overloaded, Code::Unreachable, why).retryable(true)
}

fn not_reached(name: &str, why: &str) -> Error {
    let why = format!("gateway `{name}`, which has what was asked for, is not reached: {why}; ask again");
    Error::new(Kind::Overloaded, Code::Unreachable, why).retryable(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_the_shard_of_their_job() {
        let shard = ShardTag(0xbeef);
        let job = JobId::new(1, shard, [0; 8]);
        let partition = PartitionId { task: fanfold_protocol::TaskId::root(job).child(3), output: 0 };
        for path in [
            format!("/v1/invocations/{job}"),
            format!("/v1/invocations/{job}/output"),
            format!("/v1/jobs/{job}/events"),
            format!("/v1/dead-letters/{job}/retry"),
            format!("/v1/partitions/{partition}"),
            format!("/v1/partitions/{partition}/lineage"),
        ] {
            assert_eq!(named(&path), Some(shard), "{path}");
        }
        for path in ["/v1/jobs", "/v1/jobs/", "/v1/jobs/x", "/v1/functions/echo", "/function/echo", "/", ""] {
            assert_eq!(named(path), None, "{path}");
        }
    }
}
