//! The whole training on the native host.

use sgd::{
    Request,
    model::{SAMPLE_BYTES, generate},
};

#[test]
fn a_full_shuffle_learns_what_sorted_data_makes_forget() {
    let request = Request { samples: 20_000, parts: 5, epochs: 3, ..Request::default() };
    let report = sgd::sgd(request.clone()).unwrap();
    assert_eq!((report.shuffled.len(), report.unshuffled.len()), (3, 3));
    assert_eq!((report.samples_shuffled, report.epoch_bytes), (60_000, 20_000 * SAMPLE_BYTES as u64));
    let (with, without) = (report.shuffled[2], report.unshuffled[2]);
    assert!(with > 0.8, "{report:?}");
    assert!(with > without + 0.2, "{report:?}");
    // To the last bit, however the tasks were timed.
    let again = sgd::sgd(request).unwrap();
    assert_eq!((again.shuffled, again.unshuffled), (report.shuffled, report.unshuffled));
}

#[test]
fn one_part_is_shuffled_too_and_bad_numbers_are_refused() {
    let one = Request { samples: 5_000, parts: 1, epochs: 1, ..Request::default() };
    let report = sgd::sgd(one).unwrap();
    assert!(report.shuffled[0] > report.unshuffled[0] + 0.1, "{report:?}");
    for wrong in [
        Request { parts: 0, ..Request::default() },
        Request { samples: 3, ..Request::default() },
        Request { epochs: 0, ..Request::default() },
        Request { rate: f32::NAN, ..Request::default() },
    ] {
        assert!(sgd::sgd(wrong).is_err_and(|error| error.kind == fanfold::ErrorKind::Invalid));
    }
}

#[test]
fn parts_are_the_whole_and_sorted_by_label() {
    let whole = generate(9, 0, 0..100, 100);
    assert_eq!([generate(9, 0, 0..37, 100), generate(9, 0, 37..100, 100)].concat(), whole);
    let labels: Vec<f32> =
        whole.chunks(SAMPLE_BYTES).map(|s| f32::from_le_bytes(*s.first_chunk().unwrap())).collect();
    assert!(labels.is_sorted() && labels[0] == 0.0 && labels[99] == 9.0);
}
