//! What this crate's tests share: a lane over a store in memory, and guests written as `wasip1` modules in text.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use bytes::Bytes;
use fanfold_protocol::{
    Error, Manifest,
    direct::{Body, DirectLane, Reply},
    function::FunctionVersion,
};
use fanfold_store::Store;
use http::Request;
use http_body_util::{BodyExt, Full};

use crate::{Config, Executor};

/// An executor with a store in memory.
pub(crate) struct Fixture {
    pub executor: Executor,
    pub store: Store,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let store = Store::in_memory();
        let executor = Executor::start(config, store.clone()).await.unwrap();
        Self { executor, store }
    }

    /// Deploys a component or module in text, its manifest changed by `change`.
    pub(crate) async fn deploy(
        &self,
        wat: &str,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Arc<FunctionVersion>, Error> {
        let bytes = wat::parse_str(wat).unwrap();
        let component = self.store.put_component(bytes.into()).await.unwrap();
        let info = self.executor.prepare(component).await?;
        let mut manifest = Manifest::named("test".parse().unwrap());
        change(&mut manifest);
        let version = FunctionVersion::digest(component, &manifest);
        let name = manifest.name.clone();
        Ok(Arc::new(FunctionVersion { name, version, component, manifest, info, deployed_at_ms: 0 }))
    }

    /// Deploys a program and calls it with `input`.
    pub(crate) async fn run(
        &self,
        wat: &str,
        change: impl FnOnce(&mut Manifest),
        input: &'static str,
    ) -> Result<Reply, Error> {
        let function = self.deploy(wat, change).await?;
        self.call(&function, "/", input).await
    }

    pub(crate) async fn call(
        &self,
        function: &Arc<FunctionVersion>,
        uri: &str,
        input: &'static str,
    ) -> Result<Reply, Error> {
        let request = Request::post(uri).body(body(input)).unwrap();
        self.executor.call(function.clone(), request).await.map_err(|failed| failed.error)
    }

    pub(crate) async fn http(
        &self,
        function: &Arc<FunctionVersion>,
        input: &'static str,
    ) -> Result<Reply, Error> {
        let request = Request::post("http://test/path?query").body(body(input)).unwrap();
        self.executor.http(function.clone(), request).await.map_err(|failed| failed.error)
    }
}

pub(crate) fn body(text: &'static str) -> Body {
    Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// The whole body, or the error that ended it.
pub(crate) async fn text(reply: Reply) -> Result<String, Error> {
    let bytes = reply.response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

/// A `wasip1` command. `$write` writes `len` bytes at `at` to a descriptor; from 64 on, memory holds `data`.
pub(crate) fn program(data: &str, start: &str) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 2)
            (data (i32.const 64) "{data}")
            (func $write (param $fd i32) (param $at i32) (param $len i32)
                (i32.store (i32.const 0) (local.get $at))
                (i32.store (i32.const 4) (local.get $len))
                (if (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable)))
            (func $recurse (param i32) (result i32)
                (i32.add (i32.const 1) (call $recurse (i32.add (local.get 0) (i32.const 1)))))
            (func $echo
                (loop $more
                    (i32.store (i32.const 16) (i32.const 1024))
                    (i32.store (i32.const 20) (i32.const 4096))
                    (if (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)) (then unreachable))
                    (if (i32.load (i32.const 24)) (then
                        (call $write (i32.const 1) (i32.const 1024) (i32.load (i32.const 24)))
                        (br $more)))))
            (func (export "_start") {start}))"#
    )
}

/// `argv` of this crate's compile child.
pub(crate) fn compile_child() -> Vec<OsString> {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    // From `deps/<test>` to `examples/compile_child`.
    path.pop();
    path.pop();
    path.push("examples/compile_child");
    assert!(path.exists(), "{} is not built", path.display());
    vec![path.into()]
}
