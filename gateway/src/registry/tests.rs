//! The registry's changes and what survives a replay.

use std::collections::BTreeMap;

use fanfold_protocol::{
    Code, Digest, FunctionName, Kind, Manifest,
    function::{ComponentInfo, ComponentKind, FunctionVersion},
    record::Record,
};
use fanfold_store::{
    Store,
    shared_log::CHECKPOINT_ENTRIES,
    testing::{self, Fault, Operation},
};
use tokio::{sync::oneshot, task::JoinSet};

use super::{Catalog, Change, Registry};

fn version(name: &str, n: u8) -> Box<FunctionVersion> {
    let manifest = Manifest::named(name.parse().unwrap());
    let component = Digest::of(&[n]);
    Box::new(FunctionVersion {
        name: manifest.name.clone(),
        version: FunctionVersion::digest(component, &manifest),
        component,
        manifest,
        info: ComponentInfo {
            kind: ComponentKind::Task,
            submits: false,
            imports: vec![],
            component_bytes: 1,
            compiled_bytes: 1,
            compile_us: 0,
        },
        deployed_at_ms: u64::from(n),
    })
}

/// A registry over what a store has, with its task at work until the test ends.
async fn open(store: &Store) -> (Registry, JoinSet<()>) {
    let (registry, keeper) = Registry::open(store, Vec::new()).await.unwrap();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let (_stop, stopped) = oneshot::channel();
        keeper.run(stopped).await;
    });
    (registry, task)
}

fn name(text: &str) -> FunctionName {
    text.parse().unwrap()
}

/// What can be seen of a catalog.
fn shown(catalog: &Catalog) -> String {
    let views: Vec<_> = catalog.functions().iter().map(|function| function.view()).collect();
    serde_json::to_string_pretty(&views).unwrap()
}

#[tokio::test]
async fn deploys_aliases_and_rollbacks_survive_a_restart() {
    let store = Store::in_memory();
    let (registry, task) = open(&store).await;
    let (v1, v2) = (version("echo", 1), version("echo", 2));
    let (d1, d2) = (v1.version, v2.version);
    let latest = |r: &Registry| r.callable("echo", None).unwrap().version.version;
    assert!(registry.change(Change::Deploy(v1.clone())).await.unwrap());
    assert!(registry.change(Change::Deploy(v2)).await.unwrap());
    assert_eq!(latest(&registry), d2);
    assert!(registry.change(Change::Rollback { name: name("echo") }).await.unwrap());
    assert_eq!(latest(&registry), d1);
    let no_earlier = registry.change(Change::Rollback { name: name("echo") }).await.unwrap_err();
    assert_eq!((no_earlier.kind, no_earlier.code), (Kind::Conflict, Code::Precondition));
    assert!(!registry.change(Change::Deploy(v1)).await.unwrap(), "an equal deploy changes nothing");

    let weights = BTreeMap::from([(d1.to_string()[..8].to_owned(), 1), (d2.to_string(), 3)]);
    let alias = |weights| Change::Alias { name: name("echo"), alias: name("canary"), weights };
    assert!(registry.change(alias(weights)).await.unwrap());
    let picks =
        (0..4000).filter(|_| registry.callable("echo", Some("canary")).unwrap().version.version == d2);
    let share = picks.count();
    assert!((2800..3200).contains(&share), "{share} of 4000 went to the version with weight 3 of 4");
    assert_eq!(registry.callable("echo", Some(&d2.to_string()[..6])).unwrap().version.version, d2);

    drop(task);
    let (again, _task) = open(&store).await;
    assert_eq!(shown(&again.catalog()), shown(&registry.catalog()));
    assert_eq!(latest(&again), d1);
}

#[tokio::test]
async fn a_checkpoint_is_the_same_catalog_and_a_replay_over_it_too() {
    let records = {
        let (gone, versions) = (version("gone", 9), (1..=3).map(|n| version("echo", n)));
        let mut records: Vec<_> = versions.map(Record::Deployed).collect();
        records.extend([Record::Deployed(gone), Record::Removed { name: name("gone") }]);
        records
    };
    let fold = |mut catalog: Catalog, records: &[Record]| {
        records.iter().for_each(|record| catalog.fold(record));
        catalog
    };
    let direct = fold(Catalog::default(), &records);
    let checkpoint = fold(Catalog::default(), &direct.records());
    assert_eq!(shown(&checkpoint), shown(&direct));
    let retired = version("gone", 9).version;
    assert!(checkpoint.version(&retired).is_some(), "jobs of a removed function still need its version");
    let again = fold(checkpoint, &records[2..]);
    assert_eq!(shown(&again), shown(&direct), "folding a suffix again changed something");
}

#[tokio::test]
async fn a_long_log_is_read_from_its_checkpoint() {
    let store = Store::in_memory();
    let (registry, _task) = open(&store).await;
    let (v1, v2) = (version("echo", 1), version("echo", 2));
    for _ in 0..CHECKPOINT_ENTRIES / 2 + 1 {
        registry.change(Change::Deploy(v1.clone())).await.unwrap();
        registry.change(Change::Deploy(v2.clone())).await.unwrap();
    }
    registry.look().await.unwrap();
    let paths = testing::paths(&store, "registry").await;
    assert!(paths.iter().any(|path| path.contains("checkpoint")), "{}", paths.len());
    let (again, _task) = open(&store).await;
    assert_eq!((again.seq(), shown(&again.catalog())), (registry.seq(), shown(&registry.catalog())));
}

#[tokio::test]
async fn gateways_change_one_catalog() {
    let store = testing::shared_memory();
    let ((a, _a), (b, _b)) = (open(&store).await, open(&store).await);
    a.change(Change::Deploy(version("echo", 1))).await.unwrap();
    assert_eq!(b.find("echo", None).await.unwrap().version.version, version("echo", 1).version);
    // Both change what the other has just changed; every change is decided on what is there.
    let deploys = (2..30).map(|n| {
        let registry = if n % 2 == 0 { &a } else { &b };
        async move { registry.change(Change::Deploy(version("echo", n))).await.unwrap() }
    });
    assert!(futures::future::join_all(deploys).await.into_iter().all(|changed| changed));
    a.look().await.unwrap();
    b.reach(a.seq()).await.unwrap();
    assert_eq!(shown(&a.catalog()), shown(&b.catalog()));
    assert_eq!(
        a.callable("echo", None).unwrap().version.version,
        b.callable("echo", None).unwrap().version.version
    );
    assert_eq!(a.function(&name("echo")).await.unwrap().versions.len(), 29);
    b.change(Change::Remove { name: name("echo") }).await.unwrap();
    let removed = a.change(Change::Rollback { name: name("echo") }).await.unwrap_err();
    assert_eq!(removed.code, Code::Function, "it is gone, whoever removed it");
}

#[tokio::test]
async fn functions_of_an_earlier_journal_become_the_log() {
    let store = testing::shared_memory();
    let earlier = vec![Record::Deployed(version("echo", 1))];
    let (first, _) = Registry::open(&store, earlier.clone()).await.unwrap();
    assert_eq!((first.seq(), first.callable("echo", None).is_ok()), (1, true));
    let (second, _) = Registry::open(&store, earlier).await.unwrap();
    assert_eq!(second.seq(), 1, "once");
}

#[tokio::test]
async fn a_change_that_was_not_written_was_not_made() {
    let (store, faults) = testing::faulty_memory();
    let (registry, _task) = open(&store).await;
    faults.always(Operation::Put, "registry/", Fault::DiskFull);
    let refused = registry.change(Change::Deploy(version("echo", 1))).await.unwrap_err();
    assert_eq!(refused.code, Code::DiskFull);
    assert_eq!(registry.callable("echo", None).err().unwrap().code, Code::Function);
    faults.clear();
    registry.change(Change::Deploy(version("echo", 1))).await.unwrap();
    registry.callable("echo", None).unwrap();
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (registry, _task) = open(&Store::in_memory()).await;
    registry.change(Change::Deploy(version("wordcount", 1))).await.unwrap();
    let check = |name: &str, selector: Option<&str>, code: Code, part: &str| {
        let error = registry.callable(name, selector).err().unwrap();
        assert!(error.code == code && error.message.contains(part), "{name} {selector:?}: {error:?}");
    };
    check("wordcuont", None, Code::Function, "did you mean `wordcount`");
    check("word", None, Code::Function, "`wordcount`");
    check("unlike", None, Code::Function, "deploy it");
    check("../x", None, Code::Name, "is not a name");
    check("wordcount", Some("canary"), Code::Version, "latest");
    check("wordcount", Some("abc"), Code::Version, "abc");
    let alias = |alias: &str, weights: &[(&str, u32)]| Change::Alias {
        name: name("wordcount"),
        alias: name(alias),
        weights: weights.iter().map(|(v, w)| ((*v).to_owned(), *w)).collect(),
    };
    for (change, part) in [
        (alias("latest", &[]), "cannot be removed"),
        (alias("deadbeef", &[("abcdef", 1)]), "digits of a version"),
        (alias("x", &[("abcdef", 1)]), "no alias or version"),
        (alias("x", &[]), "no alias `x`"),
    ] {
        let error = registry.change(change).await.unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
}
