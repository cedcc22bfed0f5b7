//! What must survive what: executors and objects lost in the middle of a large graph, the gateway and the client gone, Redis
//! flushed and cut, and functions that do not do the same twice. Each test counts what it did again, and says so.

use std::time::{Duration, Instant};

use fanfold_protocol::record::Record;
use fanfold_tests::{
    cluster::{Cluster, PATIENCE, joined, until},
    history::{Call, History, journal},
    platform::Platform,
    signal::Stopped,
};
use futures::{StreamExt as _, stream};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Twenty layers of ten tasks, each about 10 ms of work and 100 kB.
const GRAPH: &str = r#"{"layers": 20, "width": 10, "rounds": 4}"#;
const GRAPH_TASKS: u64 = 200;

async fn begin(gateway: &Platform, function: &str, input: &str) -> String {
    gateway.invoke_async(function, input.to_owned()).await
}

async fn view(gateway: &Platform, job: &str) -> Value {
    gateway.get(&format!("/v1/jobs/{job}")).await.expect(200).json()
}

async fn finished(gateway: &Platform, job: &str) -> u64 {
    view(gateway, job).await["progress"]["finished"].as_u64().expect("a number")
}

async fn output_sha(gateway: &Platform, job: &str) -> String {
    let ended = gateway.ended(job).await;
    assert_eq!(ended["state"], "succeeded", "{ended:#}");
    let output = gateway.get(&format!("/v1/invocations/{job}/output")).await.expect(200).body;
    format!("{:x}", Sha256::digest(&output))
}

/// The value of a metric, all its labels summed up.
async fn metric(gateway: &Platform, name: &str, label: &str) -> u64 {
    let text = gateway.get("/metrics").await.text();
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_graph_survives_lost_executors_and_objects() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let mut executors: Vec<Platform> = (1..=4).map(|n| cluster.executor(&format!("e{n}"), &[])).collect();
    joined(&gateway, 4).await;
    gateway.deploy("layers").await.expect(201);
    let job = begin(&gateway, "layers", GRAPH).await;
    let undisturbed = output_sha(&gateway, &job).await;
    assert_eq!(view(&gateway, &job).await["progress"]["retries"], 0, "an undisturbed run does nothing twice");

    let mut rng = StdRng::seed_from_u64(3);
    let (mut running, mut lost) = (0, 0);
    let job = begin(&gateway, "layers", GRAPH).await;
    for kill in 1..=5 {
        let reached = async || finished(&gateway, &job).await >= kill * GRAPH_TASKS / 6;
        assert!(until(PATIENCE, reached).await, "{:#}", view(&gateway, &job).await);
        let victim = executors.remove(rng.random_range(0..executors.len()));
        // It does not move while what it has is counted.
        let stopped = Stopped::new(victim.pid());
        let id = format!("{}\"", victim.ready()["executor"].to_string().trim_matches('"'));
        running += metric(&gateway, "fanfold_executor_attempts{", &id).await;
        let mut objects = cluster.s3.keys(&format!("{job}/part/")).await;
        objects.shuffle(&mut rng);
        objects.truncate(objects.len().div_ceil(10));
        cluster.s3.lose(&objects).await;
        lost += objects.len() as u64;
        drop(stopped);
        victim.kill();
        executors.push(cluster.executor(&format!("e{}", 4 + kill), &[]));
    }
    assert_eq!(output_sha(&gateway, &job).await, undisturbed);
    let again = view(&gateway, &job).await["progress"]["retries"].as_u64().expect("a number");
    println!(
        "{GRAPH_TASKS} tasks, 5 executors killed, {lost} objects lost: {again} attempts again; lost were {running} attempts \
         and at most {lost} partitions"
    );
    assert!(again > 0, "nothing was disturbed");
    assert!(
        again <= running + lost,
        "{again} attempts again, for {running} attempts and {lost} partitions lost"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_gateway_and_its_client() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let _executors = ["e1", "e2"].map(|name| cluster.executor(name, &[]));
    joined(&gateway, 2).await;
    gateway.deploy("layers").await.expect(201);
    gateway.deploy("echo").await.expect(201);
    let job = begin(&gateway, "layers", GRAPH).await;
    let undisturbed = output_sha(&gateway, &job).await;

    let job = begin(&gateway, "layers", GRAPH).await;
    // A client of its own, which follows the job until it is killed.
    let mut client = gateway.cli(&["job", "watch", &job]);
    let client = client.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn();
    let mut client = client.expect("the command starts");
    let half = async || finished(&gateway, &job).await >= GRAPH_TASKS / 2;
    assert!(until(PATIENCE, half).await, "{:#}", view(&gateway, &job).await);
    // What was recorded before an end that is announced is durable, too: the journal is in order.
    gateway.ended(&begin(&gateway, "echo", "").await).await;
    client.kill().expect("killable");
    client.wait().expect("a child of ours");
    gateway.kill();

    let begin = Instant::now();
    let gateway = cluster.gateway("g0");
    println!("a gateway is back after {:?}", begin.elapsed());
    assert_eq!(output_sha(&gateway, &job).await, undisturbed);
    let started = metric(&gateway, "fanfold_attempts_total", "").await;
    gateway.terminate();
    let mut before = 0;
    for record in journal(&cluster, "g0").await {
        if let Record::Committed(committed) = &record {
            before += u64::from(committed.job.to_string() == job && committed.attempt.epoch == 1);
        }
    }
    // An ended job's commits may have gone with a checkpoint; there is none in so short a journal.
    println!("{before} tasks had finished; {started} attempts were started after that");
    assert!(before >= GRAPH_TASKS / 2, "the journal has {before} commits of the first gateway");
    assert_eq!(started, GRAPH_TASKS + 1 - before, "no finished task runs again, and each other one once");
}

/// A gateway and two executors, and clients that submit until they are told to stop.
struct Load {
    cluster: Cluster,
    gateway: Platform,
    _executors: [Platform; 2],
    history: History,
}

impl Load {
    async fn start(cluster: Cluster) -> Self {
        let gateway = cluster.gateway("g0");
        let executors = ["e1", "e2"].map(|name| cluster.executor(name, &[]));
        joined(&gateway, 2).await;
        gateway.deploy("echo").await.expect(201);
        Self { cluster, gateway, _executors: executors, history: History::new() }
    }

    /// Eight clients, until `disturb` has ended.
    async fn during(&mut self, disturb: impl AsyncFnOnce(&mut Cluster)) {
        let (gateway, history) = (&self.gateway, &self.history);
        let clients =
            stream::iter(0..).map(async |n| history.submit(gateway, &Call::echo(format!("call {n}"))).await);
        let mut clients = clients.buffer_unordered(8);
        let disturb = disturb(&mut self.cluster);
        tokio::select! {
            () = async { while clients.next().await.is_some() {} } => {}
            () = disturb => {}
        }
    }

    async fn check(self) {
        let found = self.history.check(&self.gateway).await;
        println!(
            "{} acknowledged, {} succeeded, {} dead letters",
            self.history.len(),
            found.succeeded,
            found.dead
        );
        assert_eq!((found.succeeded, found.dead), (self.history.len(), 0));
        assert!(self.history.len() > 100, "hardly a load: {}", self.history.len());
        // A newcomer still finds everybody.
        let _late = self.cluster.executor("late", &[]);
        joined(&self.gateway, 3).await;
        self.gateway.terminate();
        self.history.check_journal(&self.cluster, "g0").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_flushes_of_redis_lose_nothing() {
    let mut load = Load::start(Cluster::start()).await;
    load.during(async |cluster| {
        for _ in 0..20 {
            cluster.redis.flush();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_cuts_of_redis_log_lose_nothing() {
    let mut load = Load::start(Cluster::start_logged()).await;
    load.during(async |cluster| {
        // How long its log was, each time with the moment.
        let mut lengths = vec![(Instant::now(), cluster.redis.log_bytes())];
        for _ in 0..20 {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                lengths.push((Instant::now(), cluster.redis.log_bytes()));
            }
            let old = lengths.iter().rev().find(|(at, _)| at.elapsed() >= Duration::from_secs(2));
            let (_, bytes) = *old.unwrap_or(&lengths[0]);
            cluster.redis.lose_after(bytes);
            // What was cut is not there to be cut again.
            lengths.iter_mut().for_each(|(_, length)| *length = bytes.min(*length));
        }
    })
    .await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_leaves_nothing_behind() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let _executors = ["e1", "e2"].map(|name| cluster.executor(name, &[]));
    joined(&gateway, 2).await;
    gateway.deploy("layers").await.expect(201);
    let job = begin(&gateway, "layers", r#"{"layers": 3, "width": 4, "rounds": 1}"#).await;
    let some = async || !cluster.s3.keys(&format!("{job}/part/")).await.is_empty();
    assert!(until(PATIENCE, some).await, "eager outputs are objects");
    output_sha(&gateway, &job).await;
    // Its result is kept for a day: that is a reference. Everything else goes.
    let only_result = async || cluster.s3.keys(&format!("{job}/part/")).await.len() <= 1;
    assert!(until(PATIENCE, only_result).await, "{:#?}", cluster.s3.keys(&job).await);

    // Nobody refers to what a synchronous call made, once it is answered.
    let before = cluster.s3.keys("job/").await;
    let keys = cluster.redis.keys();
    gateway.post("/function/layers", r#"{"layers": 3, "width": 4, "rounds": 1}"#).await.expect(200);
    let ended = Instant::now();
    let gone = async || cluster.s3.keys("job/").await.len() <= before.len() && cluster.redis.keys() <= keys;
    assert!(until(PATIENCE, gone).await, "{:#?}", cluster.s3.keys("job/").await);
    println!("a job's objects were gone {:?} after its answer", ended.elapsed());
}

/// Starts the fickle function, and lets its world change and its executor and gateway die while it naps.
async fn fickle(what: &str, manifest: Option<&str>) -> Value {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let executor = cluster.executor("first", &[]);
    joined(&gateway, 1).await;
    match manifest {
        Some(manifest) => drop(gateway.deploy_as("fickle", manifest).await),
        None => drop(gateway.deploy("fickle").await.expect(201)),
    }
    let input = serde_json::json!({ "what": what, "key": "world", "nap_ms": 1000 });
    let job = begin(&gateway, "fickle", &input.to_string()).await;
    let naps = async || {
        let stages = view(&gateway, &job).await["progress"]["stages"].clone();
        stages["made"]["finished"] == 1 && stages["nap"]["running"] == 1
    };
    assert!(until(PATIENCE, naps).await, "{:#}", view(&gateway, &job).await);
    gateway.send("PUT", "/v1/objects/world", &[], "changed").await.expect(201);
    executor.kill();
    let _second = cluster.executor("second", &[]);
    joined(&gateway, 1).await;
    let begin = Instant::now();
    let ended = gateway.ended(&job).await;
    println!("{what}: ended {:?} after an executor was back: {}", begin.elapsed(), ended["error"]);
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_does_something_else_is_told_so() {
    let sound = fickle("nothing", None).await;
    assert_eq!(sound["state"], "succeeded", "what is run again and does the same is fine: {sound:#}");
    let driver = fickle("call", None).await;
    assert_eq!(driver["state"], "failed", "{driver:#}");
    assert_eq!(driver["error"]["code"], "non-deterministic", "{driver:#}");
    // Its driver is told that a partition is another one than before, and passes on what it was told.
    let task = fickle("output", None).await;
    assert_eq!(task["state"], "failed", "{task:#}");
    assert_eq!(task["error"]["code"], "non-deterministic", "{task:#}");
    let told = task["error"]["message"].as_str().expect("a message");
    assert!(told.contains("made again and differs") && told.contains("not deterministic"), "{task:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_opted_out_is_not_run_again() {
    let manifest = "name = \"fickle\"\ndeterministic = false\ntimeout = \"60s\"\n[retry]\nattempts = 1\n";
    let ended = fickle("nothing", Some(manifest)).await;
    assert_eq!(ended["state"], "failed", "{ended:#}");
    assert_eq!(ended["error"]["kind"], "lost", "{ended:#}");
}
