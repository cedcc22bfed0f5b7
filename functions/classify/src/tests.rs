//! On the processor: outside of the platform there is no gpu.

use std::io::Cursor;

use arrow_array::cast::AsArray;
use arrow_ipc::reader::FileReader;
use mlp_classify::shapes;

use super::*;

fn request(input: &str) -> Request {
    Request {
        input: input.into(),
        output: format!("labels/{input}"),
        thumbnails: Some(format!("small/{input}")),
        on: On::Cpu,
        part: Part::All,
        mode: Mode::Full,
        skip: 0,
        slots: 2,
        gpus: 0,
    }
}

fn draw(prefix: &str, count: u64) {
    for number in 0..count {
        let key = format!("{prefix}{number:03}-{}.jpg", CLASSES[shapes::class_of(number)]);
        objects::put(&key, &shapes::jpeg(77, number, 100).unwrap()).unwrap();
    }
}

/// Keys and labels of a file, in its order.
fn rows(key: &str) -> Vec<(String, String)> {
    let file = objects::open(key).unwrap().bytes().unwrap();
    let mut rows = Vec::new();
    for batch in FileReader::try_new(Cursor::new(file), None).unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().clone();
        let (keys, labels) = (column("key"), column("label"));
        rows.extend(keys.iter().flatten().map(String::from).zip(labels.iter().flatten().map(String::from)));
    }
    rows
}

#[test]
fn pictures_get_their_labels_and_thumbnails() {
    draw("photos/", 150);
    objects::put("photos/readme.txt", b"no picture").unwrap();
    let report = classify(request("photos/")).unwrap();
    assert_eq!((report.pictures, report.known, report.files), (150, 150, 1));
    assert!(report.right >= 144, "{report:?}");
    assert_eq!(report.labels.values().sum::<u64>(), 150);
    let rows = rows("labels/photos/part-00000.arrow");
    assert_eq!(rows.len(), 150);
    assert!(rows.is_sorted());
    let right = rows.iter().filter(|(key, label)| key.contains(label.as_str())).count();
    assert_eq!(right as u64, report.right);
    let thumbnails: Vec<_> = objects::list("small/photos/").map(|object| object.unwrap().key).collect();
    assert_eq!((thumbnails.len(), &*thumbnails[149]), (150, "small/photos/149-triangle.jpg"));
    let small = objects::open("small/photos/149-triangle.jpg").unwrap().bytes().unwrap();
    assert_eq!(mlp_classify::features::decode(&small).unwrap().dimensions(), (64, 64));
}

#[test]
fn two_halves_make_the_same_labels_as_the_whole() {
    draw("halves/", 150);
    let whole = classify(request("halves/")).unwrap();
    let decode = Request { part: Part::Decode, on: On::Gpu, output: "looks/".into(), ..request("halves/") };
    let decoded = classify(decode).unwrap();
    assert_eq!((decoded.pictures, decoded.files), (150, 0));
    let label = Request { part: Part::Label, input: "looks/".into(), output: "again/".into(), ..request("") };
    let labelled = classify(label).unwrap();
    assert_eq!((labelled.labels, labelled.right), (whole.labels, whole.right));
    assert_eq!(rows("again/part-00000.arrow"), rows("labels/halves/part-00000.arrow"));
}

#[test]
fn a_damaged_picture_fails_the_job_unless_it_may_be_skipped() {
    draw("mixed/", 10);
    objects::put("mixed/005-broken.jpg", b"\xff\xd8 and then nothing").unwrap();
    let error = classify(request("mixed/")).unwrap_err();
    assert!(error.message.contains("mixed/005-broken.jpg"), "{error}");
    let report = classify(Request { skip: 1, ..request("mixed/") }).unwrap();
    assert_eq!((report.pictures, report.skipped), (10, 1));
}

/// Outside of the platform there is no gpu, and it does not run elsewhere instead.
#[test]
fn without_a_gpu_it_fails() {
    draw("few/", 3);
    let error = classify(Request { on: On::Gpu, gpus: 1, ..request("few/") }).unwrap_err();
    assert!(error.message.contains("no gpu"), "{error}");
    assert!(classify(Request { on: On::Gpu, ..request("few/") }).is_err());
}
