//! `cargo xtask demo`: the platform as a newcomer would use it, on real input, checked.
//!
//! Deploys the functions, calls one synchronously and asynchronously, then counts the words of every source file of
//! this project's own dependencies and compares the result with a native count. In the end photos arrive, and become thumbnails
//! without anybody calling anything.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    build::{self, Built},
    native,
    platform::Platform,
    shell::{self, cargo},
};

const DEPLOYED: [&str; 6] = ["hello-http", "echo", "thumbnail", "wordcount", "genimages", "inbox"];
/// Photos that arrive.
const PHOTOS: usize = 250;
/// How long they may take: much more than they do.
const PATIENCE: Duration = Duration::from_secs(120);
const TOP: usize = 20;

/// Runs the demo from nothing to a checked result.
pub fn run() -> Result<()> {
    let built = build::all()?;
    let dir = tempfile::tempdir()?;
    step("Starting the platform");
    let platform = Platform::start(&built.binary, &dir.path().join("platform"))?;
    println!("listening on {}", platform.url());
    deploy(&platform, &built)?;
    call(&platform)?;
    let files = put_sources(&platform, &dir.path().join("input"))?;
    let counted = count_words(&platform)?;
    step("Checking against a native count");
    check(&counted, &native::count(&files)?)?;
    receive_photos(&platform, dir.path())?;
    step("Stopping the platform");
    platform.stop()?;
    println!("\ndemo passed");
    Ok(())
}

fn step(title: &str) {
    println!("\n== {title}");
}

fn deploy(platform: &Platform, built: &Built) -> Result<()> {
    step("Deploying functions");
    for name in DEPLOYED {
        let component = built.components.join(format!("{}.wasm", name.replace('-', "_")));
        let manifest = format!("functions/{name}/fanfold.toml");
        let component = component.to_str().context("the target directory's path is not UTF-8")?;
        shell::run(&mut platform.fanfold(&["deploy", &manifest, "--component", component]))?;
    }
    Ok(())
}

fn call(platform: &Platform) -> Result<()> {
    step("Calling functions over REST");
    shell::run(&mut platform.fanfold(&["invoke", "hello-http"]))?;
    shell::run(&mut platform.fanfold(&["invoke", "echo", "--data", "called synchronously\n"]))?;
    shell::run(&mut platform.fanfold(&[
        "invoke",
        "echo",
        "--async",
        "--wait",
        "--data",
        "called asynchronously\n",
    ]))
}

/// Puts every Rust source file of the dependencies in as objects; returns the files.
fn put_sources(platform: &Platform, input: &Path) -> Result<Vec<PathBuf>> {
    step("Putting the dependencies' sources in as objects");
    let mut files = Vec::new();
    for folder in dependencies()? {
        let package = folder.file_name().context("a package without a folder name")?;
        for file in native::sources(std::slice::from_ref(&folder))? {
            let copy = input.join(package).join(file.strip_prefix(&folder)?);
            std::fs::create_dir_all(copy.parent().context("a file without a folder")?)?;
            // A link costs nothing; another file system needs a copy.
            std::fs::hard_link(&file, &copy).or_else(|_| std::fs::copy(&file, &copy).map(|_| ()))?;
            files.push(file);
        }
    }
    let input = input.to_str().context("the temporary directory's path is not UTF-8")?;
    shell::run(&mut platform.fanfold(&["object", "put", "--recursive", input, "sources/"]))?;
    Ok(files)
}

/// The source folders of all packages that come from a registry.
fn dependencies() -> Result<Vec<PathBuf>> {
    let metadata = shell::output(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let folder = |package: &Value| {
        package["source"].as_str()?;
        Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_path_buf())
    };
    Ok(packages.iter().filter_map(folder).collect())
}

/// Runs the job and shows what it did; returns its result.
fn count_words(platform: &Platform) -> Result<Value> {
    step("Counting their words: fan out, merge, top 20");
    let input = json!({ "prefix": "sources/", "top": TOP }).to_string();
    let started = Instant::now();
    let job = platform.json(&["job", "run", "wordcount", "--input", &input, "--json"])?;
    let seconds = started.elapsed().as_secs_f64();
    let id = job["id"].as_str().context("the job has no id")?;
    let output = shell::output(&mut platform.fanfold(&["job", "output", id]))?;
    let result: Value = serde_json::from_str(&output).context("the job's output is no JSON")?;
    let progress = &job["progress"];
    let megabytes = result["bytes"].as_f64().unwrap_or(0.0) / 1e6;
    println!("job {id}: {} tasks, {} retries", progress["tasks"], progress["retries"]);
    println!("{megabytes:.0} MB in {seconds:.2} s: {:.0} MB/s", megabytes / seconds);
    shell::run(&mut platform.fanfold(&["job", "graph", id, "--summary"]))?;
    Ok(result)
}

#[expect(clippy::disallowed_methods, reason = "it polls a server of another process")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

/// Photos are drawn into `inbox/`, whose trigger calls a function with up to a hundred of them; one is no photo.
fn receive_photos(platform: &Platform, dir: &Path) -> Result<()> {
    step("Photos arrive in inbox/, and a trigger makes thumbnails of them");
    let broken = dir.join("broken.jpg");
    std::fs::write(&broken, "no photo")?;
    let broken = broken.to_str().context("the temporary directory's path is not UTF-8")?;
    shell::run(&mut platform.fanfold(&["object", "put", broken, "inbox/"]))?;
    let count = PHOTOS.to_string();
    shell::run(&mut platform.fanfold(&["job", "run", "genimages", "--output", "inbox/", "--count", &count]))?;
    let begun = Instant::now();
    loop {
        let trigger = platform.json(&["trigger", "show", "inbox", "--json"])?;
        let letters = platform.json(&["dead-letters", "ls", "--json"])?;
        let made = platform.json(&["object", "ls", "thumbnails/", "--json"])?;
        let is_photo = |object: &&Value| object["key"].as_str().is_some_and(|key| key.ends_with(".jpg"));
        let made = made.as_array().map_or(0, |objects| objects.iter().filter(is_photo).count());
        let done = trigger["waiting"] == 0 && trigger["unfinished"] == 0;
        if done && made == PHOTOS && letters.as_array().is_some_and(|letters| letters.len() == 1) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            bail!("{made} of {PHOTOS} thumbnails are there: {trigger}");
        }
        pause();
    }
    shell::run(&mut platform.fanfold(&["trigger", "show", "inbox"]))?;
    shell::run(&mut platform.fanfold(&["object", "ls", "thumbnails/index/"]))?;
    shell::run(&mut platform.fanfold(&["dead-letters", "ls"]))?;
    println!("{PHOTOS} thumbnails; the one that is no photo is a dead letter with its reason");
    Ok(())
}

fn check(counted: &Value, native: &native::Counts) -> Result<()> {
    let words: u64 = native.values().sum();
    ensure!(
        counted["words"] == words,
        "the job counted {} words, the native count {words}",
        counted["words"]
    );
    ensure!(
        counted["distinct"] == native.len(),
        "distinct words differ: {} and {}",
        counted["distinct"],
        native.len()
    );
    let top = counted["top"].as_array().context("the result has no `top`")?;
    ensure!(top.len() == TOP, "wanted the top {TOP}, got {}", top.len());
    let mut best: Vec<_> = native.iter().collect();
    best.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    for (row, (word, n)) in top.iter().zip(best) {
        let word = String::from_utf8_lossy(word);
        println!("{n:>10}  {word}");
        ensure!(
            row["word"] == *word && row["count"] == *n,
            "the job says {row}, the native count {word}: {n}"
        );
    }
    println!("{words} words, {} distinct: equal to the native count", native.len());
    Ok(())
}
