//! The whole job on the native host, against the obvious way to group.

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    cast::AsArray,
    types::{Float64Type, Int64Type},
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use fanfold::{ErrorKind, ObjectRange, objects};
use groupby::{Aggregate, Report, Request, data::Data, input, result::Cell};

fn request(input: &str) -> Request {
    Request {
        input: input.into(),
        key: "key".into(),
        value: "value".into(),
        aggregates: vec![Aggregate::Count, Aggregate::Sum, Aggregate::Mean, Aggregate::Min, Aggregate::Max],
        output: None,
        top: 5,
        reducers: Some(3),
        split_bytes: Some(100_000),
    }
}

fn columns(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn put_file(key: &str, batches: &[RecordBatch]) {
    let mut writer = FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    objects::put(key, &writer.into_inner().unwrap()).unwrap();
}

fn put_stream(key: &str, batches: &[RecordBatch]) {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    objects::put(key, &writer.into_inner().unwrap()).unwrap();
}

/// Count, sum, smallest and largest by key.
type Expected = BTreeMap<i64, (u64, f64, f64, f64)>;

fn expected(data: &Data) -> Expected {
    let mut groups = Expected::new();
    for (key, value) in (0..data.rows).map(|n| data.row(n)) {
        let group = groups.entry(key).or_insert((0, 0.0, f64::MAX, f64::MIN));
        *group = (group.0 + 1, group.1 + value, group.2.min(value), group.3.max(value));
    }
    groups
}

/// What the objects under a prefix say.
fn written(prefix: &str) -> Expected {
    let mut groups = Expected::new();
    for object in objects::list(prefix) {
        let range = ObjectRange::whole(object.unwrap().key);
        input::each_batch(&range, |batch| {
            let ints = |name| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
            let floats = |name| batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().clone();
            let (keys, counts) = (ints("key"), ints("count"));
            let (sums, means, mins, maxs) = (floats("sum"), floats("mean"), floats("min"), floats("max"));
            for n in 0..batch.num_rows() {
                let count = counts.value(n) as u64;
                assert_eq!(means.value(n), sums.value(n) / count as f64);
                let group = (count, sums.value(n), mins.value(n), maxs.value(n));
                assert!(groups.insert(keys.value(n), group).is_none());
            }
            Ok(())
        })
        .unwrap();
    }
    groups
}

#[test]
fn the_job_groups_what_a_map_groups_however_it_is_cut() {
    let data = Data { prefix: "in/".into(), rows: 250_000, distinct: 20_000, objects: 3, seed: 7 };
    let made = groupby::generate(data.clone()).unwrap();
    assert_eq!((made.rows, made.objects), (250_000, 3));
    let expected = expected(&data);
    let mut checksums = Vec::new();
    for (reducers, split_bytes) in [(1, 1 << 40), (3, 100_000), (7, 700_000)] {
        let output = format!("out-{reducers}/");
        let request = Request {
            output: Some(output.clone()),
            reducers: Some(reducers),
            split_bytes: Some(split_bytes),
            ..request("in/")
        };
        let report = groupby::groupby(request).unwrap();
        assert_eq!((report.rows, report.groups), (250_000, expected.len() as u64));
        assert_eq!((report.bytes, report.written), (made.bytes, reducers));
        assert!(written(&output) == expected, "{reducers} reducers, splits of {split_bytes}");
        let mut largest: Vec<_> = expected.iter().map(|(key, group)| (u64::MAX - group.0, *key)).collect();
        largest.sort_unstable();
        assert_eq!(
            report.top.iter().map(|row| row.key).collect::<Vec<_>>(),
            largest[..5].iter().map(|l| l.1).collect::<Vec<_>>()
        );
        checksums.push(report.checksum);
    }
    assert!(checksums.iter().all(|checksum| *checksum == checksums[0]), "{checksums:?}");
}

#[test]
fn streams_nulls_narrow_types_and_other_columns() {
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 1, 3, -2]));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(5), Some(-7), None, None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e"]));
    let batch = columns(vec![("text", texts), ("value", values), ("key", keys)]);
    put_stream("mixed/a", &[batch.clone(), batch.slice(1, 2)]);
    put_file("mixed/b", &[batch.slice(1, 4)]);
    let report = groupby::groupby(Request { top: 9, ..request("mixed/") }).unwrap();
    let rows: BTreeMap<_, _> = report.top.iter().map(|row| (row.key, row.cells.clone())).collect();
    let int = Cell::Int;
    let one = i64::MAX - 21;
    assert_eq!(rows[&1], [int(4), int(one), Cell::Float(one as f64 / 4.0), int(-7), int(i64::MAX)]);
    assert_eq!(rows[&2], [int(3), int(15), Cell::Float(5.0), int(5), int(5)]);
    for key in [3, -2] {
        assert_eq!(rows[&key], [int(0), Cell::Null, Cell::Null, Cell::Null, Cell::Null]);
    }
    assert_eq!((report.groups, report.rows), (4, 7));
    // Sums that no column can hold are refused, not wrapped.
    put_file("mixed/c", &[batch]);
    assert!(refused(request("mixed/")).contains("sum of key 1 does not fit"));
}

#[test]
fn one_key_or_more_reducers_than_keys_are_no_special_cases() {
    let data = Data { prefix: "one/".into(), rows: 70_000, distinct: 1, objects: 2, seed: 0 };
    groupby::generate(data.clone()).unwrap();
    let report: Report = groupby::groupby(Request { reducers: Some(50), ..request("one/") }).unwrap();
    assert_eq!((report.groups, report.rows, report.reducers), (1, 70_000, 50));
    let (count, sum, min, max) = expected(&data)[&0];
    let float = Cell::Float;
    assert_eq!(
        report.top[0].cells,
        [Cell::Int(count as i64), float(sum), float(sum / count as f64), float(min), float(max)]
    );
    // No rows at all are no groups.
    put_file(
        "none/a",
        &[RecordBatch::try_from_iter([
            ("key", Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef),
            ("value", Arc::new(Float32Array::from(Vec::<f32>::new())) as _),
        ])
        .unwrap()],
    );
    assert_eq!(groupby::groupby(request("none/")).unwrap().groups, 0);
}

fn refused(request: Request) -> String {
    let error = groupby::groupby(request).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::Guest), "{error:?}");
    error.message
}

#[test]
fn bad_input_is_named() {
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    put_file("bad/a", &[columns(vec![("key", keys), ("value", values.clone())])]);
    let with = |change: fn(&mut Request)| {
        let mut request = request("bad/");
        change(&mut request);
        refused(request)
    };
    assert!(with(|_| ()).contains("1 keys of column `key` are null"));
    assert!(with(|r| r.key = "k".into()).contains("there is no column `k`; there are: `key`, `value`"));
    assert!(with(|r| r.key = "value".into()).contains("column `value` is Float64"));
    assert!(with(|r| r.input = "nowhere/".into()).contains("no data under `nowhere/`"));
    assert!(with(|r| r.output = Some("bad/out/".into())).contains("one is inside the other"));
    assert!(with(|r| r.reducers = Some(0)).contains("0 reducers"));
    assert!(with(|r| r.aggregates.clear()).contains("no aggregates"));
    let taken = Request { input: "in/".into(), output: Some("bad/".into()), ..request("") };
    assert!(refused(taken).contains("output `bad/` is not empty: there is `bad/a`"));
    for (key, bytes) in
        [("text/a", b"key,value\n1,2\n".to_vec()), ("text/b", b"ARROW1\0\0 and no footer".to_vec())]
    {
        objects::put(key, &bytes).unwrap();
        let message = refused(request(key));
        assert!(message.contains(&format!("object `{key}`")), "{message}");
    }
    // A later object that is not like the first.
    put_file(
        "odd/a",
        &[columns(vec![
            ("key", Arc::new(Int64Array::from(vec![1]))),
            ("value", Arc::new(Float64Array::from(vec![1.0]))),
        ])],
    );
    put_file(
        "odd/b",
        &[columns(vec![
            ("key", Arc::new(Int64Array::from(vec![1]))),
            ("value", Arc::new(Int64Array::from(vec![1]))),
        ])],
    );
    assert!(refused(request("odd/")).contains("object `odd/b`: column `value` is not of the same kind"));
    assert!(
        groupby::generate(Data { prefix: "x".into(), rows: 1 << 30, distinct: 1, objects: 3, seed: 0 })
            .is_err()
    );
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_panic() {
    let data = Data { prefix: "whole/".into(), rows: 40_000, distinct: 9, objects: 1, seed: 1 };
    groupby::generate(data).unwrap();
    let whole = objects::open("whole/00000.arrow").unwrap().bytes().unwrap();
    // What is cut anywhere has no footer; a footer that is changed must not lead outside.
    for length in [0, 5, 100, whole.len() / 2, whole.len() - 1] {
        objects::put("cut/a", &whole[..length]).unwrap();
        assert!(groupby::groupby(request("cut/")).is_err(), "{length} bytes");
    }
    for at in (1..200).map(|n| whole.len() - 10 - n) {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        objects::put("cut/a", &changed).unwrap();
        let _ = groupby::groupby(request("cut/"));
    }
}
