//! The contract of users' objects, over every backend.

mod support;

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind, value::ObjectRange};
use fanfold_store::{
    Store,
    testing::{self, Fault, Operation},
};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

conformance!(
    what_was_put_can_be_got,
    large_bodies_stream,
    keys_are_plain_strings,
    keys_cannot_escape,
    a_failed_upload_leaves_nothing,
    objects_are_written_piece_by_piece,
    listing_pages_in_order,
    a_replaced_object_has_another_etag,
);

fn body(pieces: Vec<Bytes>) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin {
    stream::iter(pieces.into_iter().map(Ok))
}

async fn put(store: &Store, key: &str, text: &str) -> fanfold_protocol::rest::ObjectView {
    store.objects().put(key, body(vec![Bytes::copy_from_slice(text.as_bytes())])).await.unwrap()
}

fn range(key: &str, offset: u64, length: Option<u64>) -> ObjectRange {
    ObjectRange { key: key.to_owned(), etag: None, offset, length }
}

async fn get(store: &Store, wanted: &ObjectRange) -> Result<Bytes, Error> {
    let (_, pieces) = store.objects().get(wanted).await?;
    Ok(pieces.try_collect::<Vec<_>>().await?.concat().into())
}

async fn what_was_put_can_be_got(store: Store) {
    let view = store
        .objects()
        .put("in/a.txt", body(vec!["hello".into(), " ".into(), "world".into()]))
        .await
        .unwrap();
    assert_eq!((view.key.as_str(), view.bytes), ("in/a.txt", 11));
    let head = store.objects().head("in/a.txt").await.unwrap();
    assert_eq!((&head.etag, head.bytes), (&view.etag, 11));
    assert!(!head.etag.contains('"') && !head.etag.is_empty());
    assert!(head.modified_at_ms.abs_diff(view.modified_at_ms) < 60_000);
    for (offset, length, wanted) in [
        (0, None, "hello world"),
        (6, None, "world"),
        (6, Some(2), "wo"),
        (6, Some(99), "world"),
        (11, None, ""),
        (99, Some(1), ""),
        (0, Some(0), ""),
    ] {
        assert_eq!(
            get(&store, &range("in/a.txt", offset, length)).await.unwrap(),
            wanted,
            "{offset} {length:?}"
        );
        let end = length.map_or(u64::MAX, |length| offset + length);
        assert_eq!(store.objects().read("in/a.txt", None, offset..end).await.unwrap(), wanted);
    }
    put(&store, "empty", "").await;
    assert_eq!(get(&store, &range("empty", 0, None)).await.unwrap(), "");
    assert_eq!(store.objects().read("empty", None, 0..10).await.unwrap(), "");

    store.objects().delete("in/a.txt").await.unwrap();
    for missing in [
        store.objects().head("in/a.txt").await.map(|_| ()),
        store.objects().delete("in/a.txt").await.map(|_| ()),
        store.objects().read("in", None, 0..1).await.map(|_| ()),
        get(&store, &range("in/a.txt", 0, None)).await.map(|_| ()),
    ] {
        let missing = missing.unwrap_err();
        assert_eq!((missing.kind, missing.code), (Kind::NotFound, Code::Object));
    }
}

async fn large_bodies_stream(store: Store) {
    // Two parts, and more and a bit: in pieces that do not fit the parts.
    for length in [8 << 20, (17 << 20) + 123] {
        let data: Bytes = (0..length).map(|n| ((n * 7) ^ (n >> 9)) as u8).collect::<Vec<_>>().into();
        let pieces =
            (0..length).step_by(300_000).map(|at| data.slice(at..length.min(at + 300_000))).collect();
        let view = store.objects().put("large", body(pieces)).await.unwrap();
        assert_eq!(view.bytes, length as u64);
        assert_eq!(store.objects().head("large").await.unwrap().etag, view.etag);
        assert_eq!(get(&store, &range("large", 5, None)).await.unwrap(), data.slice(5..));
        let (from, to) = (3 << 20, (3 << 20) + 1000);
        assert_eq!(
            store.objects().read("large", None, from as u64..to as u64).await.unwrap(),
            data.slice(from..to)
        );
    }
}

async fn keys_are_plain_strings(store: Store) {
    let keys = [
        "a",
        "a/b",
        "a/b/c",
        "a+",
        "a+/b",
        "x#1",
        "100%",
        "100%25",
        "C++/x.h",
        "日本/語.txt",
        "sp ace/ü",
        "...",
        "-",
        "a\\b",
    ];
    for key in keys {
        put(&store, key, key).await;
    }
    for key in keys {
        assert_eq!(store.objects().read(key, None, 0..99).await.unwrap(), key, "{key}");
    }
    let mut sorted = keys.map(str::to_owned).to_vec();
    sorted.sort();
    let listed = store.objects().list("", None, 100).await.unwrap();
    assert_eq!(listed.items.into_iter().map(|view| view.key).collect::<Vec<_>>(), sorted);
    for key in keys {
        store.objects().delete(key).await.unwrap();
    }
    assert_eq!(testing::paths(&store, "objects").await, Vec::<String>::new());
}

async fn keys_cannot_escape(store: Store) {
    let long = "x".repeat(1025);
    for key in [
        "",
        "/etc/passwd",
        "../secret/signing-key",
        "a/../../b",
        "a//b",
        "a/",
        ".",
        "a/./b",
        "a\0",
        "a\nb",
        &long,
    ] {
        let refused = [
            store.objects().put(key, body(vec!["x".into()])).await.map(|_| ()),
            store.objects().head(key).await.map(|_| ()),
            store.objects().read(key, None, 0..1).await.map(|_| ()),
            store.objects().delete(key).await.map(|_| ()),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind, Kind::Invalid, "{key:?}");
        }
    }
    for prefix in ["../", "/", "a/../", "//", "./"] {
        assert_eq!(store.objects().list(prefix, None, 10).await.unwrap().items, [], "{prefix:?}");
    }
    let mut everything = testing::paths(&store, "").await;
    everything.retain(|path| path != "FORMAT" && path != "LOCK");
    assert_eq!(everything, Vec::<String>::new());
}

async fn a_failed_upload_leaves_nothing(store: Store) {
    put(&store, "kept", "before").await;
    for pieces in [1, 40] {
        let broken = || Error::invalid("the client went away");
        let pieces: Vec<_> =
            (0..pieces).map(|_| Ok(Bytes::from(vec![0; 1 << 20]))).chain([Err(broken())]).collect();
        for key in ["kept", "new"] {
            let failed = store.objects().put(key, stream::iter(pieces.clone())).await.unwrap_err();
            assert_eq!(failed, broken());
        }
    }
    // An upload whose future is dropped when a part of it was sent.
    let endless = stream::iter((0..20).map(|_| Ok(Bytes::from(vec![0; 1 << 20])))).chain(stream::pending());
    let before = store.requests().bytes_out;
    let upload = store.objects().put("new", Box::pin(endless));
    tokio::select! {
        biased;
        _ = upload => unreachable!("its body does not end"),
        () = async { while store.requests().bytes_out == before { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(store.objects().read("kept", None, 0..99).await.unwrap(), "before");
    assert_eq!(store.objects().head("new").await.unwrap_err().kind, Kind::NotFound);
    if let Some(dir) = store.dir() {
        // Dropped uploads are removed in the background.
        while std::fs::read_dir(dir.join("objects")).unwrap().count() > 1 {
            tokio::task::yield_now().await;
        }
    }
}

async fn objects_are_written_piece_by_piece(store: Store) {
    put(&store, "k", "before").await;
    for length in [0, 5000, 2 << 20, 8 << 20, (30 << 20) + 77] {
        let data: Bytes = (0..length).map(|n| ((n * 7) ^ (n >> 9)) as u8).collect::<Vec<_>>().into();
        let before = store.objects().head("k").await.unwrap();
        let mut writer = store.objects().create("k").unwrap();
        for at in (0..length).step_by(1 << 20) {
            writer.write(data.slice(at..length.min(at + (1 << 20)))).await.unwrap();
        }
        assert_eq!(store.objects().head("k").await.unwrap(), before);
        let puts = store.requests().put;
        let view = writer.finish().await.unwrap();
        let requests = store.requests();
        let in_parts = store.is_shared() && length > 16 << 20;
        assert_eq!(requests.part > 0, in_parts, "{length} bytes");
        assert_eq!(requests.put - puts, u64::from(!in_parts), "{length} bytes");
        assert_eq!((view.key.as_str(), view.bytes), ("k", length as u64));
        assert_eq!(store.objects().head("k").await.unwrap().etag, view.etag);
        assert_eq!(get(&store, &range("k", 0, None)).await.unwrap(), data);
    }
    assert_eq!(store.objects().create("a//b").unwrap_err().kind, Kind::Invalid);
}

async fn listing_pages_in_order(store: Store) {
    let keys = ["a", "a-b", "a/1", "a/2/x", "a/2/y", "a/20", "a/3", "a0", "b/1", "b/2", "ba"];
    for key in keys {
        put(&store, key, key).await;
    }
    for prefix in ["", "a", "a/", "a/2", "a/2/", "b", "b/", "c", "a/2/x", "a/2/x/"] {
        let wanted: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
        for limit in [1, 2, 3, 100] {
            let (mut found, mut after, mut pages) = (Vec::new(), None::<String>, 0);
            loop {
                let page = store.objects().list(prefix, after.as_deref(), limit).await.unwrap();
                assert!(page.items.len() <= limit);
                found.extend(page.items.into_iter().map(|view| view.key));
                pages += 1;
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{prefix:?} {limit}");
            assert_eq!(pages, wanted.len().div_ceil(limit).max(1), "{prefix:?} {limit}");
        }
    }
    // A page may begin after what is not there, or cannot be.
    for (after, wanted) in
        [("a/2/xx", ["a/2/y", "a/20"]), ("a//", ["a/1", "a/2/x"]), ("a/2/../", ["a/2/x", "a/2/y"])]
    {
        let page = store.objects().list("a", Some(after), 2).await.unwrap();
        assert_eq!(page.items.iter().map(|view| view.key.as_str()).collect::<Vec<_>>(), wanted, "{after}");
    }
}

async fn a_replaced_object_has_another_etag(store: Store) {
    let old = put(&store, "k", "one").await;
    let wanted = ObjectRange { etag: Some(old.etag.clone()), ..range("k", 0, None) };
    let (_, before) = store.objects().get(&wanted).await.unwrap();
    let new = put(&store, "k", "two").await;
    assert_ne!(old.etag, new.etag);
    let changed = [
        get(&store, &wanted).await.unwrap_err(),
        store.objects().read("k", Some(&old.etag), 0..3).await.unwrap_err(),
    ];
    for changed in changed {
        assert_eq!((changed.kind, changed.code), (Kind::Conflict, Code::Precondition));
    }
    assert_eq!(store.objects().read("k", Some(&new.etag), 0..3).await.unwrap(), "two");
    // A reader that had begun still reads the old one.
    assert_eq!(before.try_collect::<Vec<_>>().await.unwrap().concat(), b"one");
}

#[tokio::test]
async fn a_full_disk_keeps_the_old_object() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults) = testing::faulty_dir(dir.path()).await.unwrap();
    put(&store, "k", "one").await;
    // Of a small object's only put, and of a large one's second part.
    for (skip, bytes) in [(0, 1), (2, 20 << 20)] {
        faults.nth(Operation::Put, "objects/k", skip, Fault::DiskFull);
        let pieces = vec![Bytes::from(vec![0; bytes / 2]), Bytes::from(vec![0; bytes - bytes / 2])];
        let failed = store.objects().put("k", body(pieces)).await.unwrap_err();
        assert_eq!((failed.code, failed.retryable), (Code::DiskFull, true));
        assert!(failed.to_string().contains("free some space"), "{failed}");
    }
    // Of a part, while the next one is being gathered: whoever does not look at the error cannot finish it either.
    faults.nth(Operation::Put, "objects/k", 1, Fault::DiskFull);
    let mut writer = store.objects().create("k").unwrap();
    let mut written = Ok(());
    for _ in 0..40 {
        written = written.and(writer.write(Bytes::from(vec![0; 1 << 20])).await);
    }
    assert_eq!(written.unwrap_err().code, Code::DiskFull);
    assert_eq!(writer.finish().await.unwrap_err().code, Code::DiskFull);
    assert_eq!(store.objects().read("k", None, 0..9).await.unwrap(), "one");
    assert_eq!(std::fs::read_dir(dir.path().join("objects")).unwrap().count(), 1);
}
