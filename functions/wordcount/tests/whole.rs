//! The whole job on the native host, against the obvious way to count.

use std::collections::BTreeMap;

use fanfold::objects;
use wordcount::Request;

#[test]
fn the_job_counts_what_splitting_counts_however_it_is_cut() {
    let line = "let mut a_rather_long_identifier_of_the_kind_that_code_has = x1+x1; // naïve ünïcode\n";
    let text = |n: usize| format!("{}{}", &line[n % 7..n % 7 + 3], line.repeat(40 + n));
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for n in 0..30 {
        // Half of them end in the middle of a word.
        let text = text(n);
        let text = &text.as_bytes()[..text.len() - (n % 2) * 12];
        objects::put(&format!("in/{n:02}"), text).unwrap();
        let words = text.split(|b| !b.is_ascii_alphanumeric() && *b != b'_').filter(|w| !w.is_empty());
        words.for_each(|word| *expected.entry(word.to_vec()).or_default() += 1);
    }
    objects::put("in/empty", b"").unwrap();
    objects::put("other", b"not counted").unwrap();
    for split_bytes in [3, 10, 37, 1000, 1 << 20] {
        let report = wordcount::wordcount(Request {
            prefix: "in/".into(),
            top: 4,
            split_bytes: Some(split_bytes),
            reducers: Some(3),
        })
        .unwrap();
        assert_eq!(report.words, expected.values().sum::<u64>(), "splits of {split_bytes}");
        assert_eq!(report.distinct, expected.len() as u64);
        assert_eq!(report.objects, 31);
        let mut best: Vec<_> =
            expected.iter().map(|(word, n)| (std::cmp::Reverse(*n), word.clone())).collect();
        best.sort();
        let top: Vec<_> = report
            .top
            .iter()
            .map(|row| (std::cmp::Reverse(row.count), row.word.clone().into_bytes()))
            .collect();
        assert_eq!(top, best[..4]);
    }
}

#[test]
fn a_count_without_reducers_is_refused_rather_than_empty() {
    let request = Request { prefix: String::new(), top: 1, split_bytes: None, reducers: Some(0) };
    assert!(wordcount::wordcount(request).is_err_and(|e| e.kind == fanfold::ErrorKind::Invalid));
}
