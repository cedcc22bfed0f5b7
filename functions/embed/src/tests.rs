//! On the processor: outside of the platform there is no gpu. The gpu's vectors are compared with these in `tests/tests/embed.rs`.

use std::io::Cursor;

use arrow_array::{Array as _, cast::AsArray as _, types::Float32Type};
use arrow_ipc::reader::FileReader;
use fanfold::ErrorKind;

use super::*;

fn model(prefix: &str, half: bool) -> samples::Request {
    let request = samples::Request { model: prefix.into(), seed: 5, layers: 2, hidden: 32, heads: 2, half };
    samples::write(&request).unwrap();
    request
}

fn request(prefix: &str, texts: &[&str]) -> Request {
    let texts = texts.iter().map(|text| String::from(*text)).collect();
    Request { model: prefix.into(), texts, tokens: Vec::new(), output: None, on: On::Cpu }
}

#[test]
fn texts_and_their_tokens_have_the_same_vectors_in_an_answer_and_in_a_file() {
    model("small/", false);
    let texts = request("small/", &["a cat", "two cats", "a cat"]);
    let report = embed(texts.clone()).unwrap();
    assert_eq!((report.count, report.dimension, report.vectors[0].len()), (3, 32, 32));
    assert!(report.vectors[0] == report.vectors[2] && report.vectors[0] != report.vectors[1]);

    let vocabulary = Vocabulary::parse(
        &String::from_utf8(objects::open("small/vocab.txt").unwrap().bytes().unwrap()).unwrap(),
    );
    let vocabulary = vocabulary.unwrap();
    let tokens = texts.texts.iter().map(|text| vocabulary.tokens(text, 128)).collect();
    let tokens = Request { texts: Vec::new(), tokens, output: Some("vectors.arrow".into()), ..texts };
    let in_file = embed(tokens).unwrap();
    assert_eq!((in_file.vectors.len(), in_file.count, in_file.tokens), (0, 3, report.tokens));
    let file = objects::open("vectors.arrow").unwrap().bytes().unwrap();
    let batch = FileReader::try_new(Cursor::new(file), None).unwrap().next().unwrap().unwrap();
    let column = batch.column_by_name("vector").unwrap().as_fixed_size_list();
    assert_eq!(column.len(), 3);
    assert_eq!(column.value(1).as_primitive::<Float32Type>().values().to_vec(), report.vectors[1]);
}

#[test]
fn weights_of_16_bits_make_nearly_the_same_vectors() {
    model("whole/", false);
    model("half/", true);
    let vectors = |prefix| embed(request(prefix, &["the quick brown fox"])).unwrap().vectors.remove(0);
    let likeness: f32 = vectors("whole/").iter().zip(vectors("half/")).map(|(a, b)| a * b).sum();
    assert!((0.999..1.0001).contains(&likeness), "{likeness}");
}

#[test]
fn batches_keep_the_order_of_the_texts() {
    let lengths = [3, 700, 1, 2048, 5, 699, 2];
    let sequences: Vec<Vec<u32>> = lengths.iter().map(|length| vec![*length; *length as usize]).collect();
    let mut sizes = Vec::new();
    let vectors = batched(&sequences, |batch| {
        sizes.push(batch.len());
        Ok(batch.iter().map(|tokens| vec![tokens[0] as f32]).collect())
    });
    assert_eq!(vectors.unwrap(), lengths.map(|length| vec![length as f32]));
    assert_eq!(sizes, [1, 2, 4]);
}

#[test]
fn requests_that_cannot_be_are_refused() {
    model("m/", false);
    let tokens = |tokens: &[u32]| Request {
        texts: Vec::new(),
        tokens: vec![vec![2, 3], tokens.to_vec()],
        ..request("m/", &[])
    };
    for (bad, part) in [
        (request("m/", &[]), "`texts` or `tokens`"),
        (Request { tokens: vec![vec![1]], ..request("m/", &["a"]) }, "`texts` or `tokens`"),
        (tokens(&[]), "text 1 has 0 tokens"),
        (tokens(&[1; 129]), "text 1 has 129 tokens: this model takes 1 to 128"),
        (tokens(&[1, 1000]), "token 1000"),
        (request("m/", &["a"; 4000]), "name an `output`"),
    ] {
        let error = embed(bad).unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.message.contains(part), "{error}");
    }
    assert_eq!(embed(request("nowhere/", &["a"])).unwrap_err().kind, ErrorKind::NotFound);
    let error = embed(Request { on: On::Gpu, ..request("m/", &["a"]) }).unwrap_err();
    assert!(error.message.contains("no gpu"), "{error}");
}

/// Of every file that is not whole, some tensor is named, or it is said that it is none.
#[test]
fn damaged_weights_are_errors_that_name_the_tensor() {
    model("bad/", false);
    let whole = objects::open("bad/model.safetensors").unwrap().bytes().unwrap();
    let end = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&whole[8..end]).unwrap();
    let with =
        |header: &str| [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &whole[end..]].concat();
    let swap = |from: &str, to: &str| {
        assert!(header.contains(from), "{from}: {header}");
        with(&header.replacen(from, to, 1))
    };
    let bias = "encoder.layer.1.output.dense.bias";
    for (file, part) in [
        (whole[..4].to_vec(), "do not begin with a whole header"),
        (whole[..end - 1].to_vec(), "do not begin with a whole header"),
        ([&u64::MAX.to_le_bytes()[..], &whole[8..]].concat(), "do not begin with a whole header"),
        (whole[..whole.len() - 4].to_vec(), "the tensor `encoder"),
        ([&whole[..], &[0; 4]].concat(), "the tensors have"),
        (with("{\"a\": 5}"), "its header"),
        (swap(bias, "encoder.layer.1.output.dense.other"), bias),
        (swap("[140,32]", "[139,32]"), "the shape [139, 32] has the bytes"),
        (swap("[128,32]", "[32,128]"), "the shape [32, 128]: with this config.json it would be [128, 32]"),
        (swap("[128,32]", "[4294967295,4294967295]"), "the shape [4294967295, 4294967295]"),
        (swap("\"F32\"", "\"I32\""), "is I32: F32 and F16 will do"),
        (swap("\"F32\"", "\"F64\""), "of F64 and the shape"),
        (swap("[0,", "[4,"), "has the bytes 4 to"),
    ] {
        objects::put("bad/model.safetensors", &file).unwrap();
        let error = embed(request("bad/", &["a"])).unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.message.contains(part), "{error}, not {part}");
        assert!(error.message.contains("bad/model.safetensors"), "{error}");
    }
}
