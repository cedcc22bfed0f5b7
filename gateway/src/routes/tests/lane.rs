//! A direct lane in memory. A component's first word is its kind; what an HTTP function does is chosen by its path.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, Kind,
    direct::{Body, Calling, DirectLane, Failed, Reply, Running, Timing},
    function::{ComponentInfo, ComponentKind, FunctionVersion},
};
use fanfold_store::Store;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::Semaphore;

use crate::body;

#[derive(Clone)]
pub(super) struct Lane(Arc<State>);

struct State {
    store: Store,
    calls: AtomicUsize,
    hanging: Semaphore,
    releasable: Semaphore,
    release: Semaphore,
    dropped: Semaphore,
}

/// Tells when the future that holds it is dropped.
struct Guard<'a>(&'a Semaphore);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

impl Lane {
    pub(super) fn new(store: Store) -> Self {
        let none = || Semaphore::new(0);
        let (hanging, releasable, release, dropped) = (none(), none(), none(), none());
        Self(Arc::new(State { store, calls: AtomicUsize::new(0), hanging, releasable, release, dropped }))
    }

    pub(super) fn shared(&self) -> Arc<dyn DirectLane> {
        Arc::clone(&self.0) as _
    }

    pub(super) fn calls(&self) -> usize {
        self.0.calls.load(Relaxed)
    }

    pub(super) async fn hanging(&self) {
        self.0.hanging.acquire().await.unwrap().forget();
    }

    pub(super) async fn releasable(&self) {
        self.0.releasable.acquire().await.unwrap().forget();
    }

    pub(super) fn release(&self) {
        self.0.release.add_permits(1);
    }

    pub(super) async fn dropped(&self) {
        self.0.dropped.acquire().await.unwrap().forget();
    }
}

fn reply(body: Body) -> Reply {
    let timing = Timing { cold: false, compile_us: 0, instantiate_us: 7, run_us: 100 };
    Reply { response: Response::new(body), timing, logs: Arc::default() }
}

fn trap(message: &'static str) -> Error {
    Error::new(Kind::Guest, Code::Trap, message)
}

impl State {
    async fn serve(&self, request: Request<Body>) -> Result<Reply, Failed> {
        match request.uri().path() {
            "/echo" => Ok(reply(request.into_body())),
            // As a guest would: what it makes of a broken body is its own error.
            "/read" => match request.into_body().collect().await {
                Ok(body) => Ok(reply(body::whole(body.to_bytes()))),
                Err(_) => Err(trap("the guest could not read its body").into()),
            },
            "/hang" => {
                let _guard = Guard(&self.dropped);
                self.hanging.add_permits(1);
                std::future::pending().await
            }
            "/release" => {
                self.releasable.add_permits(1);
                self.release.acquire().await.unwrap().forget();
                Ok(reply(body::empty()))
            }
            "/count" => {
                let count = self.calls.fetch_add(1, Relaxed) + 1;
                Ok(reply(body::whole(count.to_string().into())))
            }
            "/large" => {
                self.calls.fetch_add(1, Relaxed);
                Ok(reply(body::whole(vec![0; 65 << 10].into())))
            }
            "/big" => Ok(reply(body::whole(vec![0; 2 << 10].into()))),
            "/drip" => {
                let chunks = (0..2).map(|_| Ok(Frame::data(Bytes::from(vec![0; 1 << 10]))));
                Ok(reply(Body::new(StreamBody::new(stream::iter(chunks)))))
            }
            "/log" => {
                let reply = reply(body::empty());
                *reply.logs.lock().unwrap() = b"{\"line\":\"hi\"}\n".to_vec();
                Ok(reply)
            }
            "/trap" => {
                let logs = Arc::new(std::sync::Mutex::new(b"{\"line\":\"last words\"}\n".to_vec()));
                Err(Failed { error: trap("the guest stopped"), logs })
            }
            _ => {
                let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok());
                let seen = serde_json::json!({
                    "uri": request.uri().to_string(),
                    "prefix": header("x-forwarded-prefix"),
                    "host": header("host"),
                });
                Ok(reply(body::whole(Bytes::from(seen.to_string()))))
            }
        }
    }
}

impl DirectLane for State {
    fn prepare(&self, component: Digest) -> Running<'_, ComponentInfo> {
        Box::pin(async move {
            let bytes = self.store.component(component).await?;
            let kind = match bytes.split(|byte| *byte == b' ').next() {
                Some(b"http") => ComponentKind::Http,
                Some(b"cli") => ComponentKind::Cli,
                Some(b"task") => ComponentKind::Task,
                _ => {
                    return Err(Error::new(
                        Kind::Invalid,
                        Code::NoExport,
                        "it exports nothing that can be run",
                    ));
                }
            };
            Ok(ComponentInfo {
                kind,
                submits: false,
                imports: Vec::new(),
                component_bytes: bytes.len() as u64,
                compiled_bytes: 0,
                compile_us: 1,
            })
        })
    }

    fn http(&self, _: Arc<FunctionVersion>, request: Request<Body>) -> Calling<'_> {
        Box::pin(self.serve(request))
    }

    fn call(&self, _: Arc<FunctionVersion>, request: Request<Body>) -> Calling<'_> {
        Box::pin(async move {
            let body = request.into_body().collect().await?.to_bytes();
            Ok(reply(body::whole(body.to_ascii_uppercase().into())))
        })
    }
}
