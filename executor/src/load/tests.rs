//! Loading: one load for concurrent first users, kinds, and what is refused.

use super::*;
use crate::testing::{self, Fixture, text};
use fanfold_protocol::{Code, Kind};

#[tokio::test]
async fn concurrent_first_users_share_one_load() {
    let Fixture { store, executor: _executor } = Fixture::start().await;
    let loader = loader(&store).await;
    let component = put(&store).await;
    let loads = (0..8).map(|_| loader.get(component));
    let loaded = futures::future::try_join_all(loads).await.unwrap();
    assert!(loaded.iter().all(|one| Arc::ptr_eq(one, &loaded[0])));
    assert!(loaded[0].steps.compile_us > 0);
    assert!(Arc::ptr_eq(&loader.ready(component).unwrap(), &loaded[0]));
    assert!(lock(&loader.0.loading).is_empty());
    // Another process finds the compiled code.
    let again = self::loader(&store).await.get(component).await.unwrap();
    assert_eq!((again.steps.compile_us, again.info.compile_us), (0, 0));
    assert_eq!(again.info.compiled_bytes, loaded[0].info.compiled_bytes);
}

#[tokio::test]
async fn damaged_code_is_made_anew() {
    let fixture = Fixture::start().await;
    let store = &fixture.store;
    let component = put(store).await;
    let key = loader(store).await;
    let (loader, key) = (key.clone(), key.0.engine.key().to_owned());
    loader.get(component).await.unwrap();
    let sound = store.compiled(component, &key).await.unwrap().unwrap();
    let mut flipped = sound.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    for damaged in [flipped, sound[..sound.len() - 1].to_vec(), b"not ours".to_vec(), Vec::new()] {
        store.put_compiled(component, &key, damaged.into()).await.unwrap();
        let loaded = self::loader(store).await.get(component).await.unwrap();
        assert!(loaded.steps.compile_us > 0);
        assert_eq!(store.compiled(component, &key).await.unwrap().unwrap(), sound);
    }
    let reply = fixture.run(&testing::program("", "call $echo"), |_| {}, "still runs").await.unwrap();
    assert_eq!(text(reply).await.unwrap(), "still runs");
}

#[tokio::test]
async fn a_function_that_an_interface_lacks_is_named() {
    let fixture = Fixture::start().await;
    let lacking = r#"(component
        (import "wasi:cli/environment@0.2.0" (instance (export "get-nothing" (func (result u32)))))
        (core module $m (func (export "run") (result i32) i32.const 0))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $e (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $e)))"#;
    let error = fixture.deploy(lacking, |_| {}).await.map(|_| ()).unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Invalid, Code::MissingImports), "{error}");
    assert!(error.message.contains("get-nothing"), "{error}");
}

/// What admission offers is what the linker has.
#[tokio::test]
async fn every_offered_interface_is_linked() {
    let engine = Engine::start(1 << 30).unwrap();
    let linker = linker(&engine).unwrap();
    for (package, version, interfaces) in crate::admit::OFFER {
        for interface in interfaces {
            let wat = format!(r#"(component (import "{package}/{interface}@{version}0" (instance)))"#);
            let component =
                wasmtime::component::Component::new(engine.wasm(), wat::parse_str(wat).unwrap()).unwrap();
            assert!(linker.instantiate_pre(&component).is_ok(), "{package}/{interface} is not linked");
        }
    }
}

async fn loader(store: &Store) -> Loader {
    let engine = Arc::new(Engine::start(1 << 30).unwrap());
    Loader::new(&Config::default(), engine, store.clone()).await.unwrap()
}

async fn put(store: &Store) -> Digest {
    let bytes = wat::parse_str(testing::program("", "call $echo")).unwrap();
    store.put_component(bytes.into()).await.unwrap()
}
