//! The whole job on the native host: every way of sorting gives the same bytes, and bad input is refused with words.

use fanfold::{ErrorKind, Result, objects};
use fanfold_shuffle::{
    kernel::record::{RECORD_BYTES, Record, records},
    strategy::auto::Spill,
};
use sort::{Method, Request, Wanted};

fn request(output: &str) -> Request {
    Request {
        input: "in/".into(),
        output: output.into(),
        reducers: Some(5),
        strategy: Wanted::Auto,
        method: Method::Deal,
        split_bytes: Some(40_050),
        columns: Some(40),
        memory_bytes: None,
        spill: Spill::Disk,
        slots: None,
        factor: Some(3),
        checksum: true,
    }
}

/// Writes gensort's records into objects under `in/`; their checksum.
fn generate(count: u64, over: u64, skew: bool) -> String {
    let request = gensort::Request {
        prefix: "in/".into(),
        records: Some(count),
        bytes: None,
        objects: Some(over),
        skew,
        first: 1 << 20,
        checksum: true,
    };
    gensort::gensort(request).unwrap().checksum.unwrap()
}

fn read(prefix: &str) -> Vec<Record> {
    let keys = objects::list(prefix).map(|object| object.unwrap().key);
    let bytes: Vec<u8> = keys.flat_map(|key| objects::open(key).unwrap().bytes().unwrap()).collect();
    records(&bytes).to_vec()
}

fn refused(request: Request) -> fanfold::Error {
    sort::sort(request).unwrap_err()
}

#[test]
fn every_strategy_and_method_gives_the_same_validated_output() {
    for skew in [false, true] {
        fanfold::native::reset();
        let checksum = generate(10_000, 7, skew);
        let mut expected = read("in/");
        expected.sort_unstable();
        for method in [Method::Deal, Method::Runs] {
            for strategy in [Wanted::Auto, Wanted::Simple, Wanted::Merge, Wanted::Push, Wanted::PushStar] {
                let output = format!("out-{method:?}-{strategy:?}/");
                let report = sort::sort(Request { strategy, method, ..request(&output) }).unwrap();
                assert_eq!((report.records, report.checksum.as_ref()), (10_000, Some(&checksum)));
                assert!(read(&output) == expected, "{output}");
                if method == Method::Deal {
                    let (most, median) =
                        (report.stages.reducer_bytes_max, report.stages.reducer_bytes_median);
                    assert!(most as f64 / median as f64 <= 1.5, "{most} / {median} with skew {skew}");
                }
                let found = valsort::valsort(valsort::Request {
                    input: output,
                    checksum: Some(checksum.clone()),
                    records: Some(10_000),
                });
                let found = found.unwrap();
                assert!(found.valid && found.objects == 5, "{found:?}");
            }
        }
    }
}

#[test]
fn few_keys_one_key_and_no_records_sort_right() {
    let one = |key: u8, n: u32| {
        let mut record = [key; RECORD_BYTES];
        record[50..54].copy_from_slice(&n.wrapping_mul(0x9e37_79b9).to_le_bytes());
        record
    };
    let inputs: [Vec<Record>; 4] = [
        (0..3_000).map(|n| one(7, n)).collect(),
        (0..3_000).map(|n| one((n % 3) as u8, n)).collect(),
        vec![one(255, 1)],
        vec![],
    ];
    for input in inputs {
        fanfold::native::reset();
        objects::put("in/a", &input.concat()).unwrap();
        objects::put("in/b", b"").unwrap();
        let mut expected = input;
        expected.sort_unstable();
        for (output, method, reducers) in [
            ("deal/", Method::Deal, Some(20)),
            ("runs/", Method::Runs, Some(20)),
            ("one/", Method::Deal, None),
        ] {
            let columns = reducers.map(|n| n * 2);
            let report = sort::sort(Request { method, reducers, columns, ..request(output) }).unwrap();
            assert_eq!(report.records, expected.len() as u64);
            let mut found = read(output);
            assert!(found.is_sorted_by_key(|record| record[..10].to_vec()), "{output}");
            found.sort_unstable();
            assert!(found == expected, "{output}");
            assert_eq!(objects::list(output).count(), reducers.unwrap_or(1) as usize);
        }
    }
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    fanfold::native::reset();
    generate(100, 1, false);
    let contains = |error: fanfold::Error, kind, words: &str| {
        assert!(error.kind == kind && error.message.contains(words), "{error:?}");
    };
    let none = Request { input: "nothing/".into(), ..request("out/") };
    contains(refused(none), ErrorKind::NotFound, "no objects under `nothing/`");
    for output in ["in/sorted/", "in/", "i"] {
        contains(refused(request(output)), ErrorKind::Invalid, "overlap");
    }
    contains(refused(request("")), ErrorKind::Invalid, "`output` is empty");
    contains(refused(Request { reducers: Some(0), ..request("out/") }), ErrorKind::Invalid, "ask for 1");
    contains(
        refused(Request { split_bytes: Some(99), ..request("out/") }),
        ErrorKind::Invalid,
        "splits of 99",
    );

    objects::put("full/part-00000", b"old").unwrap();
    contains(refused(request("full/")), ErrorKind::Conflict, "`full/part-00000` is there already");
    objects::put("in/cut", &[0; 250]).unwrap();
    contains(refused(request("out/")), ErrorKind::Invalid, "`in/cut` has 250 bytes: 50 more than");
    assert_eq!(objects::list("out/").count(), 0, "nothing was written");
}

#[test]
fn what_is_not_sorted_is_found() -> Result<()> {
    fanfold::native::reset();
    generate(1_000, 1, false);
    let mut sorted = read("in/");
    sorted.sort_unstable();
    let check = |objects: &[&[Record]]| {
        for (n, records) in objects.iter().enumerate() {
            objects::put(&format!("check/{n}"), &records.concat())?;
        }
        valsort::valsort(valsort::Request { input: "check/".into(), checksum: None, records: None })
    };
    let (low, high) = sorted.split_at(600);
    assert!(check(&[low, high])?.valid);
    let across = check(&[high, low])?;
    assert_eq!((across.sorted, across.unordered, across.first_unordered), (false, 1, Some(400)));
    let mut swapped = low.to_vec();
    swapped.swap(10, 11);
    assert_eq!(check(&[&swapped, high])?.first_unordered, Some(11));
    let twice = [&low[..1], low].concat();
    assert_eq!(check(&[&twice, high])?.duplicates, 1);
    let lost = valsort::Request { input: "check/".into(), checksum: None, records: Some(1_000) };
    assert!(!valsort::valsort(lost)?.valid, "a record is there twice");
    Ok(())
}
