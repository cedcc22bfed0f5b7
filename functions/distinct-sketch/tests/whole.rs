//! The whole job on the native host, against exact counts.

use std::collections::BTreeMap;

use distinct_sketch::{Request, Strategy};
use fanfold::objects;
use fanfold_shuffle::random::Random;

/// Text whose word of rank n comes with a frequency of 1 / n, and the words in it.
fn text(object: u64, exact: &mut BTreeMap<String, u64>) -> String {
    let mut random = Random::new(11, object);
    let mut text = String::new();
    while text.len() < 60_000 {
        let word =
            format!("w{:x}", 30_000f64.powf(f64::from(random.below(1 << 30)) / f64::from(1 << 30)) as u64);
        text.push_str(&word);
        text.push_str([" ", "\n", "-", ", ", "é"][random.below(5) as usize]);
        *exact.entry(word).or_default() += 1;
    }
    text
}

#[test]
fn partial_results_approach_the_final_one_which_is_that_of_simple() {
    let mut exact = BTreeMap::new();
    for object in 0..20 {
        objects::put(&format!("in/{object:02}"), text(object, &mut exact).as_bytes()).unwrap();
    }
    let request = |strategy, split_bytes, reducers| Request {
        prefix: "in/".into(),
        top: 10,
        strategy,
        first: 1,
        most: 8,
        split_bytes: Some(split_bytes),
        reducers,
        seed: 3,
    };
    let words: u64 = exact.values().sum();
    let mut best: Vec<_> = exact.iter().map(|(word, count)| (u64::MAX - count, word)).collect();
    best.sort();
    for (split_bytes, reducers) in [(35_001, 1), (65_000, 3)] {
        let report =
            distinct_sketch::distinct_sketch(request(Strategy::Streaming, split_bytes, reducers)).unwrap();
        assert_eq!(report.words, words, "words at the borders of splits are counted once");
        let off = (report.distinct - exact.len() as f64).abs() / exact.len() as f64;
        assert!(off < 3.0 * report.distinct_error, "{} of {}", report.distinct, exact.len());
        for (row, (_, word)) in report.top.iter().zip(&best).take(3) {
            assert_eq!(&row.word, *word);
            assert!(row.count <= exact[*word] && row.count + report.missed >= exact[*word]);
        }
        let rounds = &report.rounds;
        assert!(rounds.len() >= 4 && rounds[0].maps == 1);
        assert!(rounds.windows(2).all(|pair| pair[1].distinct_missing <= pair[0].distinct_missing));
        let (first, last) = (&rounds[0], &rounds[rounds.len() - 1]);
        assert!(last.share_error < first.share_error / 2.0, "{first:?} {last:?}");
        let simple =
            distinct_sketch::distinct_sketch(request(Strategy::Simple, split_bytes, reducers)).unwrap();
        assert_eq!((simple.words, simple.distinct), (report.words, report.distinct));
        assert!(simple.rounds.is_empty());
    }
    assert!(distinct_sketch::distinct_sketch(request(Strategy::Simple, 1 << 20, 0)).is_err());
    let nothing = Request { prefix: "nowhere/".into(), ..request(Strategy::Simple, 1, 1) };
    assert!(
        distinct_sketch::distinct_sketch(nothing).unwrap_err().message.contains("no data under `nowhere/`")
    );
}
