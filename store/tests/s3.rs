//! What only S3 does: errors that say what is wrong, creations that meet, listings of many pages, faults on the way,
//! and owners in several processes.

mod support;

use std::time::Duration;

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind, value::ObjectRange};
use fanfold_store::{
    Credentials, Index, Journal, S3Options, SharedLog, Store, StoreUrl, UploadRule, bootstrap,
    shared_log::Appended, testing,
};
use futures::{
    TryStreamExt as _,
    future::join_all,
    stream::{self, StreamExt as _},
};
use support::{key, record, s3::Server};

async fn open(place: &str, options: &S3Options) -> Result<Store, Error> {
    Store::open(&place.parse::<StoreUrl>().unwrap(), options).await
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let server = Server::start().await;
    let right = &server.options;
    let credentials = |id: &str, secret: &str| {
        Some(Credentials { access_key_id: id.into(), secret_access_key: secret.into() })
    };
    let id = right.credentials.as_ref().map_or("", |credentials| credentials.access_key_id.as_str());
    let brief = Duration::from_millis(300);
    let closed = Some("http://127.0.0.1:1".to_owned());
    for (place, options, retryable, words) in [
        ("s3://no-such-bucket", right.clone(), false, "no such bucket"),
        (
            "s3://fanfold",
            S3Options { credentials: credentials("nobody", "x"), ..right.clone() },
            false,
            "credentials",
        ),
        (
            "s3://fanfold",
            S3Options { credentials: credentials(id, "x"), ..right.clone() },
            false,
            "credentials",
        ),
        (
            "s3://fanfold/x",
            S3Options { endpoint: closed, retry_for: brief, ..right.clone() },
            true,
            "could not be reached for",
        ),
    ] {
        let refused = open(place, &options).await.unwrap_err();
        let message = refused.to_string();
        assert_eq!((refused.kind, refused.code), (Kind::Platform, Code::Storage), "{message}");
        assert_eq!(refused.retryable, retryable, "{message}");
        let endpoint = options.endpoint.unwrap();
        assert!([place, &endpoint, words].iter().all(|part| message.contains(part)), "{message}");
    }
    for no_url in ["", "127.0.0.1:9000", "http://"] {
        let options = S3Options { endpoint: Some(no_url.to_owned()), ..right.clone() };
        let refused = open("s3://fanfold", &options).await.unwrap_err();
        assert!(refused.kind == Kind::Invalid && refused.message.contains("is no URL"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_upload_leaves_no_parts() {
    let server = Server::start().await;
    let store = server.open("dropped").await;
    let mut writer = store.objects().create("k").unwrap();
    for _ in 0..60 {
        writer.write(Bytes::from(vec![0; 1 << 20])).await.unwrap();
    }
    let Some(parts) = server.unfinished_parts() else { return };
    assert!(parts >= 2, "of three parts, one is on its way at most: {parts}");
    drop(writer);
    while server.unfinished_parts() != Some(0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.objects().head("k").await.unwrap_err().kind, Kind::NotFound);
}

#[tokio::test]
async fn a_server_that_fails_is_tried_for_a_while() {
    let server = Server::with(&["--fault", "503:1"]).await;
    let options = S3Options { retry_for: Duration::from_millis(500), ..server.options.clone() };
    let refused = open("s3://fanfold", &options).await.unwrap_err();
    assert!(refused.retryable && refused.to_string().contains("the server failed for"), "{refused}");
}

#[tokio::test]
async fn a_bucket_is_made_once_and_its_rules_are_kept() {
    let server = Server::start().await;
    let mut place = server.place("a/b");
    place.name = "made-by-test".to_owned();
    let first = bootstrap(&place, &server.options).await.unwrap();
    assert_eq!((first.created, first.uploads), (true, UploadRule::Added));
    let again = bootstrap(&place, &server.options).await.unwrap();
    assert_eq!((again.created, again.uploads), (false, UploadRule::Kept));
    let store = Store::open(&StoreUrl::S3(place.clone()), &server.options).await.unwrap();
    store.signing_key().await.unwrap();
    let wrong = S3Options {
        credentials: Some(Credentials { access_key_id: "nobody".into(), secret_access_key: "x".into() }),
        ..server.options.clone()
    };
    let refused = bootstrap(&place, &wrong).await.unwrap_err();
    assert!(!refused.retryable && refused.to_string().contains("made-by-test"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_creators_one_wins() {
    let server = Server::start().await;
    let stores = join_all((0..16).map(|_| server.open("race"))).await;
    for round in 1..=8 {
        let created = join_all(stores.iter().map(async |store| {
            let log = SharedLog::open(store, "race").unwrap();
            log.read_from(round).await.unwrap();
            log.append(round, vec![record(1)]).await.unwrap()
        }))
        .await;
        assert_eq!(created.iter().filter(|one| **one == Appended::Written).count(), 1, "round {round}");
    }
}

#[tokio::test]
async fn listings_have_many_pages() {
    let server = Server::start().await;
    let store = server.open("many").await;
    let other = server.open("man").await;
    let put = |key: String| {
        let store = &store;
        async move { store.objects().put(&key, stream::iter([Ok(Bytes::from("x"))])).await.map(|_| ()) }
    };
    let keys: Vec<String> = (0..1100).map(|n| format!("a/{n:05}")).chain(["b".to_owned()]).collect();
    stream::iter(keys.clone().into_iter().map(put)).buffer_unordered(16).try_collect::<()>().await.unwrap();

    let listed = store.objects().list("a/", None, 5000).await.unwrap();
    assert_eq!(
        listed.items.iter().map(|view| &view.key).collect::<Vec<_>>(),
        keys[..1100].iter().collect::<Vec<_>>()
    );
    let page = store.objects().list("a/010", Some("a/01050"), 10).await.unwrap();
    assert_eq!((page.items.len(), page.items[0].key.as_str()), (10, "a/01051"));
    assert_eq!(store.objects().list("", None, 5000).await.unwrap().items.len(), 1101);
    assert_eq!(other.objects().list("", None, 10).await.unwrap().items, [], "another store in the bucket");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_of_two_owners_is_fenced() {
    let server = Server::start().await;
    let (here, there) = (server.open("").await, server.open("").await);
    let (old, _) = Journal::open(&here, "a").await.unwrap();
    old.append(record(1)).await.unwrap();
    let (new, found) = Journal::open(&there, "a").await.unwrap();
    assert_eq!((found, new.epoch()), (vec![record(1)], old.epoch() + 1));
    new.append(record(2)).await.unwrap();
    assert_eq!(old.append(record(9)).await.unwrap_err().code, Code::Fenced);
    assert!(old.fenced());

    // Under load, segments keep their distance: many appends, few puts.
    let (puts, started) = (there.requests().put, std::time::Instant::now());
    for turn in 0..10 {
        let appends = (0..20).map(|n| new.append(record(100 + turn * 20 + n)));
        assert!(join_all(appends).await.iter().all(Result::is_ok));
    }
    let possible = 2 + started.elapsed().as_millis() / 50;
    let puts = u128::from(there.requests().put - puts);
    assert!(puts <= possible, "{puts} puts in {:?}", started.elapsed());
    new.close().await.unwrap();
    assert_eq!(Journal::open(&here, "a").await.unwrap().1.len(), 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_on_the_way_cost_time_and_nothing_else() {
    let faults =
        ["503:0.1", "late-503:0.1:PUT", "409:0.05:PUT", "lost-answer:0.05", "cut:0.05:GET", "down:0.02"];
    let args: Vec<&str> =
        faults.iter().flat_map(|fault| ["--fault", *fault]).chain(["--seed", "7"]).collect();
    let server = Server::with(&args).await;
    // Opening itself may meet a fault that nobody repeats: a process that starts tries again.
    let store = loop {
        match Store::open(&StoreUrl::S3(server.place("")), &server.options).await {
            Ok(store) => break store,
            Err(e) => assert!(e.retryable, "{e}"),
        }
    };
    let (journal, mut acknowledged) = loop {
        match Journal::open(&store, "a").await {
            Ok((journal, _)) => break (journal, Vec::new()),
            Err(e) => assert!(e.retryable, "{e}"),
        }
    };
    for n in 0..60 {
        if journal.append(record(n)).await.is_ok() {
            acknowledged.push(record(n));
        }
    }
    drop(journal);
    let data = Bytes::from(vec![7; 300_000]);
    let index = Index::of(&data);
    store.partitions().put(key(1), data.clone(), &index).await.unwrap();
    for _ in 0..20 {
        assert_eq!(store.partitions().read(key(1), &index, 0..300_000).await.unwrap(), data);
    }
    let log = SharedLog::open(&store, "a").unwrap();
    for n in 1..=20 {
        assert_eq!(log.append(n, vec![record(n.into())]).await.unwrap(), Appended::Written, "entry {n}");
    }
    let found = loop {
        match Journal::open(&store, "a").await {
            Ok((_, found)) => break found,
            Err(e) => assert!(e.retryable, "{e}"),
        }
    };
    // What was acknowledged is there, in order and once; what was not may be.
    let mut rest = found.iter();
    assert!(acknowledged.iter().all(|record| rest.any(|other| other == record)), "{found:?}");
    assert!(found.len() <= 60 && acknowledged.len() > 50, "{} of {}", acknowledged.len(), found.len());
    assert!(server.faults_happened() > 20, "the test is about them");
}

#[tokio::test]
async fn objects_are_read_in_ranges_and_written_in_parts() {
    let server = Server::start().await;
    let store = server.open("p").await;
    let data: Bytes = (0..(40 << 20) + 77).map(|n: u32| (n ^ (n >> 11)) as u8).collect::<Vec<_>>().into();
    let parts = store.requests().part;
    let pieces =
        (0..data.len()).step_by(1 << 20).map(|at| Ok(data.slice(at..data.len().min(at + (1 << 20)))));
    store.objects().put("large", stream::iter(pieces.collect::<Vec<_>>())).await.unwrap();
    assert_eq!(store.requests().part - parts, 5, "begun, three parts, completed");
    let range = ObjectRange { key: "large".into(), etag: None, offset: 7 << 20, length: Some(9 << 20) };
    let (view, pieces) = store.objects().get(&range).await.unwrap();
    let read = pieces.try_collect::<Vec<_>>().await.unwrap().concat();
    assert_eq!((view.bytes, &read[..]), (data.len() as u64, &data[7 << 20..16 << 20]));
    assert_eq!(testing::paths(&store, "objects").await, ["objects/large"]);
}
