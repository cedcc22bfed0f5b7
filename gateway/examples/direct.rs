//! What a direct call costs the gateway alone: a gateway whose executor answers at once, beside a bare hyper server
//! that gives the same answer. Serves both until it is stopped; compare them with an HTTP load generator:
//!
//! ```text
//! cargo run --release -p fanfold-gateway --example direct &
//! wrk -t1 -c32 http://127.0.0.1:7081/; wrk -t1 -c32 http://127.0.0.1:7080/function/hello/
//! ```

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use fanfold_gateway::{Config, Gateway};
use fanfold_protocol::{
    Digest, Error,
    direct::{Body, Calling, DirectLane, Reply, Running, Timing},
    function::{ComponentInfo, ComponentKind, FunctionVersion},
};
use fanfold_store::Store;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

const HELLO: &[u8] = b"hello, world";

struct AtOnce;

impl DirectLane for AtOnce {
    fn prepare(&self, _: Digest) -> Running<'_, ComponentInfo> {
        Box::pin(async {
            Ok(ComponentInfo {
                kind: ComponentKind::Http,
                submits: false,
                imports: Vec::new(),
                component_bytes: 0,
                compiled_bytes: 0,
                compile_us: 0,
            })
        })
    }

    fn http(&self, _: Arc<FunctionVersion>, _: Request<Body>) -> Calling<'_> {
        Box::pin(async {
            let body = Body::new(Full::new(Bytes::from_static(HELLO)).map_err(|never| match never {}));
            Ok(Reply { response: Response::new(body), timing: Timing::default(), logs: Arc::default() })
        })
    }

    fn call(&self, function: Arc<FunctionVersion>, request: Request<Body>) -> Calling<'_> {
        self.http(function, request)
    }
}

async fn bare(listener: TcpListener) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let hello =
            service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(HELLO)))));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), hello));
    }
}

async fn deploy(address: std::net::SocketAddr) -> std::io::Result<String> {
    let part = |name: &str, value: &str| {
        format!("--b\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body = part("manifest", "name = \"hello\"\n") + &part("component", "x") + "--b--\r\n";
    let head = "PUT /v1/functions/hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-type: multipart/form-data; boundary=b\r\n";
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::internal(e.to_string());
    let config = Config { listen: ([127, 0, 0, 1], 7080).into(), ..Config::default() };
    let gateway = Gateway::start(config, Store::in_memory(), Arc::new(AtOnce), Vec::new(), None).await?;
    let answer = deploy(gateway.local_addr()).await.map_err(failed)?;
    println!("{}", answer.lines().next().unwrap_or_default());
    let listener = TcpListener::bind(("127.0.0.1", 7081)).await.map_err(failed)?;
    bare(listener).await.map_err(failed)
}
