//! Vectors of texts, through a whole platform: those that a gpu computes against those of the processor, on small random weights.

use fanfold_tests::{
    jobs::{deploy, run},
    platform::Platform,
};
use serde_json::{Value, json};

const GPU: [&str; 2] = ["--gpus", "1"];
/// What two numbers of vectors of length 1 may differ by: sums in another order, and an approximation of the error function.
const TOLERANCE: f64 = 1e-5;

#[tokio::test(flavor = "multi_thread")]
async fn vectors_on_a_gpu_are_those_on_the_processor() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start_with(dir.path(), &GPU);
    deploy(&platform, &["embed"]).await;
    // More texts than a batch has, of 3 to 128 tokens; more numbers than fit a workgroup, and fewer.
    let word = |n: usize| ["fan", "out, ", "fold ", "back! ", "été"][n % 5];
    let texts: Vec<String> =
        (0..60).map(|n| (0..n * 3 % 100).map(|at| word(n + at * at)).collect()).collect();
    for shape in [
        json!({"model": "a/", "seed": 1}),
        json!({"model": "b/", "seed": 2, "half": true}),
        json!({"model": "c/", "seed": 3, "layers": 1, "hidden": 36, "heads": 3}),
        json!({"model": "d/", "seed": 4, "layers": 1, "hidden": 128, "heads": 1}),
    ] {
        sample(&platform, &shape).await;
        let vectors = async |texts: &[String], on| {
            let report =
                run(&platform, "embed", json!({"model": shape["model"], "texts": texts, "on": on})).await;
            numbers(&report["vectors"])
        };
        let (gpu, cpu) = (vectors(&texts, "gpu").await, vectors(&texts, "cpu").await);
        let off = largest_difference(&gpu, &cpu);
        eprintln!("{shape}: off by {off:.1e}");
        assert!(gpu.len() == texts.len() && off < TOLERANCE, "{shape}: off by {off}");
        // Without others beside it, and so without padding, a text has the same vector.
        let alone = vectors(&texts[7..8], "gpu").await;
        assert!(largest_difference(&alone, &gpu[7..8]) < TOLERANCE, "{shape}: {alone:?}");
    }
    assert!(platform.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_weights_name_the_tensor_on_a_gpu_too() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut platform = Platform::start_with(dir.path(), &GPU);
    deploy(&platform, &["embed"]).await;
    sample(&platform, &json!({"model": "m/"})).await;
    let key = "/v1/objects/m/model.safetensors";
    let whole = platform.get(key).await.expect(200).body;
    let embed = async |part: &str| {
        let body = json!({"model": "m/", "texts": ["a"]}).to_string();
        platform.post("/function/embed", body).await.expect_problem(400, "invalid", "error-returned", part);
    };
    platform.send("PUT", key, &[], whole[..whole.len() - 100].to_vec()).await.expect(201);
    embed("m/model.safetensors: not a whole safetensors file: the tensor `encoder").await;
    let name = b"1.attention.output.dense.bias";
    let renamed = whole.windows(name.len()).position(|bytes| bytes == name).expect("a name");
    let mut missing = whole.to_vec();
    missing[renamed] = b'7';
    platform.send("PUT", key, &[], missing).await.expect(201);
    embed("the tensor `encoder.layer.1.attention.output.dense.bias` is missing").await;
    assert!(platform.alive());
}

async fn sample(platform: &Platform, shape: &Value) {
    platform.post("/function/embed?entry=sample", shape.to_string()).await.expect(200);
}

fn numbers(vectors: &Value) -> Vec<Vec<f64>> {
    serde_json::from_value(vectors.clone()).expect("vectors")
}

fn largest_difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let differences = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs());
    differences.fold(if a.len() == b.len() { 0.0 } else { f64::INFINITY }, f64::max)
}
