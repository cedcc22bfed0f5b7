//! The registry's changes and what survives a replay.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use fanfold_protocol::{
    Code, Digest, Error, FunctionName, Kind, Manifest,
    function::{ComponentInfo, ComponentKind, FunctionVersion},
    record::Record,
};
use tokio::sync::oneshot;

use super::{Append, Catalog, Change, Registry};

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

/// A journal in memory that can be made to fail.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<(Vec<Record>, bool)>>);

impl Log {
    fn append(&self) -> Append {
        let log = self.clone();
        Box::new(move |records| {
            let mut log = log.0.lock().unwrap();
            let failing = log.1;
            if !failing {
                log.0.extend(records);
            }
            Box::pin(async move { if failing { Err(Error::internal("the disk is gone")) } else { Ok(()) } })
        })
    }

    fn replay(&self) -> Catalog {
        let mut catalog = Catalog::default();
        self.0.lock().unwrap().0.iter().for_each(|record| catalog.fold(record));
        catalog
    }
}

fn registry(log: &Log) -> (Registry, impl Future<Output = ()>) {
    let (registry, changes) = Registry::new(log.replay(), log.append());
    let (stop, stopped) = oneshot::channel();
    (registry, async move {
        changes.run(stopped).await;
        drop(stop);
    })
}

fn name(text: &str) -> FunctionName {
    text.parse().unwrap()
}

/// What can be seen of a catalog.
fn shown(catalog: &Catalog) -> String {
    let views: Vec<_> = catalog.functions().iter().map(|function| function.view()).collect();
    serde_json::to_string_pretty(&views).unwrap()
}

async fn with_registry<F: Future<Output = ()>>(log: &Log, test: impl FnOnce(Registry) -> F) {
    let (registry, changes) = registry(log);
    futures::join!(changes, test(registry));
}

#[tokio::test]
async fn deploys_aliases_and_rollbacks_survive_a_replay() {
    let log = Log::default();
    let (v1, v2) = (version("echo", 1), version("echo", 2));
    let (d1, d2) = (v1.version, v2.version);
    with_registry(&log, |registry| async move {
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
    })
    .await;
    let replayed = log.replay();
    assert!(shown(&replayed).contains("canary"));
    assert_eq!(replayed.callable("echo", None).ok().map(|c| c.version.version), Some(d1));
}

#[tokio::test]
async fn a_checkpoint_is_the_same_catalog_and_a_replay_over_it_too() {
    let log = Log::default();
    let gone = version("gone", 9);
    let retired = gone.version;
    with_registry(&log, |registry| async move {
        for n in 1..=3 {
            registry.change(Change::Deploy(version("echo", n))).await.unwrap();
        }
        registry.change(Change::Deploy(gone)).await.unwrap();
        registry.change(Change::Remove { name: name("gone") }).await.unwrap();
        registry.change(Change::Rollback { name: name("echo") }).await.unwrap();
    })
    .await;
    let direct = log.replay();
    let mut checkpoint = Catalog::default();
    direct.records().iter().for_each(|record| checkpoint.fold(record));
    assert_eq!(shown(&checkpoint), shown(&direct));
    assert!(checkpoint.version(&retired).is_some(), "jobs of a removed function still need its version");

    log.0.lock().unwrap().0.iter().skip(2).for_each(|record| checkpoint.fold(record));
    assert_eq!(shown(&checkpoint), shown(&direct), "folding a suffix again changed something");
}

#[tokio::test]
async fn a_change_that_was_not_journalled_was_not_made() {
    let log = Log::default();
    with_registry(&log, |registry| {
        let log = log.clone();
        async move {
            log.0.lock().unwrap().1 = true;
            assert!(registry.change(Change::Deploy(version("echo", 1))).await.is_err());
            let missing = registry.callable("echo", None).err().unwrap();
            assert_eq!(missing.code, Code::Function);
            assert!(registry.snapshot_records().is_empty());
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let log = Log::default();
    with_registry(&log, |registry| async move {
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
    })
    .await;
}
