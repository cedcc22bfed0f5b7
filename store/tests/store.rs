//! The contract of a store as a whole: components, versions, a job's things, keys, and the directory's lock.

mod support;

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Kind, Manifest,
    function::{ComponentInfo, ComponentKind, FunctionVersion},
};
use fanfold_store::{Store, testing};
use support::job;

conformance!(
    components_are_what_their_digest_says,
    compiled_code_is_kept_by_engine,
    versions,
    inputs_and_logs,
    one_signing_key
);

async fn components_are_what_their_digest_says(store: Store) {
    let bytes = Bytes::from_static(b"\0asm component");
    let digest = store.put_component(bytes.clone()).await.unwrap();
    assert_eq!(digest, Digest::of(&bytes));
    assert_eq!(store.component(digest).await.unwrap(), bytes);
    assert_eq!(store.component(Digest::of(b"other")).await.unwrap_err().kind, Kind::NotFound);

    let path = testing::paths(&store, "component").await.pop().unwrap();
    testing::write_raw(&store, &path, Bytes::from_static(b"\0asm Component")).await.unwrap();
    let refused = store.component(digest).await.unwrap_err();
    assert!(refused.code == Code::Corrupt && refused.to_string().contains(&path), "{refused}");
    store.put_component(bytes.clone()).await.unwrap();
    assert_eq!(store.component(digest).await.unwrap(), bytes, "deploying again heals it");
    let puts = store.requests().put;
    store.put_component(bytes).await.unwrap();
    assert_eq!(store.requests().put, puts, "and a sound one is left alone");
}

async fn compiled_code_is_kept_by_engine(store: Store) {
    let component = Digest::of(b"c");
    assert_eq!(store.compiled(component, "48.0.8/x86").await.unwrap(), None);
    store.put_compiled(component, "48.0.8/x86", "one".into()).await.unwrap();
    store.put_compiled(component, "../../49", "two".into()).await.unwrap();
    assert_eq!(store.compiled(component, "48.0.8/x86").await.unwrap().unwrap(), "one");
    assert_eq!(store.compiled(component, "../../49").await.unwrap().unwrap(), "two");
    store.remove_compiled(component, "48.0.8/x86").await.unwrap();
    store.remove_compiled(component, "48.0.8/x86").await.unwrap();
    assert_eq!(store.compiled(component, "48.0.8/x86").await.unwrap(), None);
}

fn function(name: &str) -> FunctionVersion {
    let manifest: Manifest =
        Manifest::parse(&format!("name = \"{name}\"\ncomponent = \"x.wasm\"\n")).unwrap();
    let component = Digest::of(name.as_bytes());
    let info = ComponentInfo {
        kind: ComponentKind::Task,
        submits: true,
        imports: vec!["fanfold:function/tasks".into()],
        component_bytes: 1,
        compiled_bytes: 2,
        compile_us: 3,
    };
    let version = FunctionVersion::digest(component, &manifest);
    FunctionVersion { name: name.parse().unwrap(), version, component, manifest, info, deployed_at_ms: 4 }
}

async fn versions(store: Store) {
    let (a, b) = (function("a"), function("b"));
    store.put_version(&a).await.unwrap();
    assert_eq!(*store.version(a.version).await.unwrap(), a);
    assert_eq!(store.version(b.version).await.unwrap_err().code, Code::Version);
    // One that is not in memory: read, checked, and refused when damaged.
    store.put_version(&b).await.unwrap();
    let paths = testing::paths(&store, "version").await;
    let (at_a, at_b) = if paths[0].contains(&a.version.to_string()) { (0, 1) } else { (1, 0) };
    let raw = testing::read_raw(&store, &paths[at_b]).await.unwrap().unwrap();
    let c = function("c");
    let path_c = paths[at_a].replace(&a.version.to_string(), &c.version.to_string());
    let folder = format!("version/{}/", &c.version.to_string()[..2]);
    let path_c = format!("{folder}{}", path_c.rsplit('/').next().unwrap());
    testing::write_raw(&store, &path_c, raw.clone()).await.unwrap();
    assert_eq!(store.version(c.version).await.unwrap_err().code, Code::Corrupt, "another version's file");
    let mut flipped = raw.to_vec();
    flipped[20] ^= 1;
    testing::write_raw(&store, &path_c, flipped.into()).await.unwrap();
    assert_eq!(store.version(c.version).await.unwrap_err().code, Code::Corrupt, "a changed file");
}

async fn inputs_and_logs(store: Store) {
    let input = Bytes::from(vec![7; 100_000]);
    store.put_input(job(1), input.clone()).await.unwrap();
    assert_eq!(store.input(job(1)).await.unwrap(), input);
    assert_eq!(store.input(job(2)).await.unwrap_err().code, Code::Invocation);
    assert_eq!(store.logs(job(1)).await.unwrap(), None);
    store.put_logs(job(1), "{}\n".into()).await.unwrap();
    store.put_logs(job(1), "{}\n{}\n".into()).await.unwrap();
    assert_eq!(store.logs(job(1)).await.unwrap().unwrap(), "{}\n{}\n");
    let path = testing::paths(&store, "job").await.into_iter().find(|path| path.ends_with("input")).unwrap();
    for damaged in [Bytes::new(), input.slice(..50), Bytes::from(vec![7; 100_008])] {
        testing::write_raw(&store, &path, damaged).await.unwrap();
        assert_eq!(store.input(job(1)).await.unwrap_err().code, Code::Corrupt);
    }
    store.remove_job(job(1)).await.unwrap();
    assert_eq!(testing::paths(&store, "job").await, Vec::<String>::new());
}

async fn one_signing_key(store: Store) {
    let keys = futures::future::join_all((0..8).map(|_| store.signing_key())).await;
    let key = keys[0].clone().unwrap();
    assert_ne!(key, [0; 32]);
    assert!(keys.into_iter().all(|other| other.unwrap() == key));
    if let Some(dir) = store.dir() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = std::fs::metadata(dir.join("secret/signing-key")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_directory_has_one_owner() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("made/on/demand");
    let store = Store::open_dir(&dir).await.unwrap();
    let refused = Store::open_dir(&dir).await.unwrap_err();
    assert_eq!((refused.kind, refused.code), (Kind::Conflict, Code::DirectoryInUse));
    let message = refused.to_string();
    assert!(
        message.contains("made/on/demand") && message.contains(&std::process::id().to_string()),
        "{message}"
    );

    let (key, held) = (store.signing_key().await.unwrap(), store.clone());
    drop(store);
    assert!(Store::open_dir(&dir).await.is_err(), "a clone still holds it");
    drop(held);
    let again = Store::open_dir(&dir).await.unwrap();
    assert_eq!(again.signing_key().await.unwrap(), key);
}

#[tokio::test]
async fn a_crash_leaves_no_temporary_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_dir(dir.path()).await.unwrap();
    store.objects().put("in/a", futures::stream::iter([Ok(Bytes::from("x"))])).await.unwrap();
    drop(store);
    let half = dir.path().join("objects/in+/b#1");
    std::fs::write(&half, "half an upload").unwrap();
    // The lock file of a process that was killed still names it.
    std::fs::write(dir.path().join("LOCK"), "pid 1\n").unwrap();
    let store = Store::open_dir(dir.path()).await.unwrap();
    assert!(!half.exists());
    assert_eq!(store.objects().list("", None, 9).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_directory_of_another_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open_dir(dir.path()).await.unwrap());
    std::fs::write(dir.path().join("FORMAT"), "fanfold store 2\n").unwrap();
    let refused = Store::open_dir(dir.path()).await.unwrap_err();
    assert!(refused.to_string().contains("fanfold store 2") && !refused.retryable, "{refused}");
}
