//! An S3 server for tests: `s3-server --dir DIR [--listen 127.0.0.1:0] [--bucket NAME]… [--fault SPEC]… [--seed N] [--until killed]`.
//!
//! The protocol and its signatures are those of the crate `s3s`. Its companion `s3s-fs` keeps keys as folders, where `a` and
//! `a/b` cannot both be, checks conditions before it writes, and fails at ranges that begin before an object; so [`storage`]
//! is ours. [`faults`] can be changed while it runs, and `/-/keys/BUCKET` lists what is there (`GET`) or loses some of it
//! (`DELETE` with a key a line), and `/-/requests` counts what was asked, all without a signature. What was stored survives a
//! restart on the same directory.
//!
//! Its first line on stdout is JSON: the endpoint, the only access key, and the pid. It ends when its stdin does, so that
//! it never outlives the test that started it, or with `--until killed` by a signal only.

mod faults;
mod s3;
mod service;
mod storage;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};

use crate::{faults::Faults, service::Service, storage::Storage};

/// The only credentials it accepts.
const ACCESS_KEY: &str = "fanfold-tests";
const SECRET_KEY: &str = "not-a-secret";

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
struct Args {
    listen: SocketAddr,
    dir: PathBuf,
    buckets: Vec<String>,
    faults: Vec<String>,
    seed: u64,
    /// Whether it ends with its stdin.
    tied: bool,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("s3-server: {error}");
            return ExitCode::from(2);
        }
    };
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("s3-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, AnyError> {
    let mut args = Args {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        dir: PathBuf::new(),
        buckets: Vec::new(),
        faults: Vec::new(),
        seed: 0,
        tied: true,
    };
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--listen" => args.listen = value.parse()?,
            "--dir" => args.dir = value.into(),
            "--bucket" => args.buckets.push(value),
            "--fault" => args.faults.push(value),
            "--until" => args.tied = value != "killed",
            "--seed" => args.seed = value.parse()?,
            _ => return Err(format!("{name} is unknown").into()),
        }
    }
    if args.dir.as_os_str().is_empty() {
        return Err("--dir is missing".into());
    }
    Ok(args)
}

async fn run(args: Args) -> Result<(), AnyError> {
    std::fs::create_dir_all(&args.dir)?;
    let storage = Storage::open(&args.dir)?;
    for bucket in &args.buckets {
        storage.create_bucket(bucket)?;
    }
    let storage = Arc::new(storage);
    let mut s3 = S3ServiceBuilder::new(s3::Server::new(storage.clone()));
    s3.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    let faults = Faults::new(args.seed);
    faults.set(&args.faults.join("\n"))?;
    let service = Arc::new(Service::new(s3.build(), faults, storage));

    let listener = TcpListener::bind(args.listen).await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let told = serde_json::json!({
        "endpoint": endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "pid": std::process::id(),
    });
    println!("{told}");
    std::io::stdout().flush()?;
    let until = async {
        if args.tied {
            until_stdin_ends().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = until => Ok(()),
        failed = serve(listener, service) => failed,
    }
}

/// Reads stdin away on a thread of its own: a blocking read must not hold up the runtime's end.
async fn until_stdin_ends() {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}

async fn serve(listener: TcpListener, service: Arc<Service>) -> Result<(), AnyError> {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await?;
        // Without it small answers wait for the client's delayed acknowledgement.
        socket.set_nodelay(true)?;
        while connections.try_join_next().is_some() {}
        let service = service.clone();
        connections.spawn(async move {
            let answer = hyper::service::service_fn(move |request| {
                let service = service.clone();
                async move { service.answer(request).await }
            });
            // A broken connection is the client's to notice.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(socket), answer)
                .await;
        });
    }
}
