//! What networks and machines do to a cluster: links that say nothing or are reset, processes that do not move for longer than
//! anybody waits, a store that fails now and then, a machine cut off. Jobs go on, and what was acknowledged is done once.

use std::{process::Command, time::Duration};

use fanfold_tests::{
    cluster::{Cluster, PATIENCE, Start, joined, until},
    history::{Call, History},
    platform::Platform,
    proxy::{Proxy, Treatment},
    signal::Stopped,
};
use futures::future::join_all;
use serde_json::Value;

/// A graph of a second or two.
const GRAPH: &str = r#"{"layers": 8, "width": 8, "rounds": 4}"#;
/// Longer than a link may be silent, and than an announcement lasts.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(6);

/// A gateway with functions, and what [`GRAPH`] answers undisturbed.
struct Setting {
    cluster: Cluster,
    gateway: Platform,
    history: History,
    graph: bytes::Bytes,
    round: usize,
}

impl Setting {
    async fn start() -> Self {
        Self::with(Cluster::start(), &Start::default()).await
    }

    async fn with(cluster: Cluster, gateway: &Start<'_>) -> Self {
        let gateway = cluster.gateway_with("g0", *gateway);
        let first = cluster.executor("first", &[]);
        joined(&gateway, 1).await;
        gateway.deploy("echo").await.expect(201);
        gateway.deploy("layers").await.expect(201);
        let graph = gateway.post("/function/layers", GRAPH).await.expect(200).body;
        first.terminate();
        Self { cluster, gateway, history: History::new(), graph, round: 0 }
    }

    /// Submits a graph and some small calls, and waits until some of the graph is done.
    async fn under_way(&mut self) {
        self.round += 1;
        let small: Vec<Call> =
            (0..10).map(|n| Call::echo(format!("round {} call {n}", self.round))).collect();
        join_all(small.iter().map(|call| self.history.submit(&self.gateway, call))).await;
        // Last: it takes a second, and accepting others from a store that fails takes longer. So may its own answer: then another one.
        for again in 0..20 {
            let key = format!("graph {}.{again}", self.round);
            let graph = Call { function: "layers", key, input: GRAPH.into(), expected: self.graph.clone() };
            self.history.submit(&self.gateway, &graph).await;
            if self.is_seen_running().await {
                return;
            }
        }
        panic!("no graph was seen while it ran: {:#}", self.gateway.get("/v1/jobs").await.json());
    }

    /// Waits until some of a graph is done; `false` if all graphs have ended before that was seen.
    async fn is_seen_running(&self) -> bool {
        let mut seen = false;
        let decided = async || {
            let jobs = self.gateway.get("/v1/jobs").await.expect(200).json();
            let jobs = jobs["items"].as_array().expect("jobs");
            let live = |job: &&Value| {
                job["function"] == "layers" && matches!(job["state"].as_str(), Some("queued" | "running"))
            };
            let done = |job: &Value| job["progress"]["finished"].as_u64().unwrap_or(0);
            seen = jobs.iter().filter(live).any(|job| done(job) > 10);
            seen || !jobs.iter().any(|job| live(&job))
        };
        assert!(until(PATIENCE, decided).await, "{:#}", self.gateway.get("/v1/jobs").await.json());
        seen
    }

    async fn check(&self) {
        let found = self.history.check(&self.gateway).await;
        assert_eq!((found.succeeded, found.dead), (self.history.len(), 0));
    }

    async fn end(self) {
        self.check().await;
        self.gateway.terminate();
        self.history.check_journal(&self.cluster, "g0").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_may_fall_silent_or_be_reset() {
    let mut setting = Setting::start().await;
    let peer = setting.gateway.ready()["peer"].as_str().expect("an address").to_owned();
    let proxy = Proxy::start(&peer).await;
    let address = proxy.address();
    let far = Start { gateway: Some(&address), ..Start::default() };
    let _executors = [setting.cluster.executor_with("far", far), setting.cluster.executor("near", &[])];
    for fault in [Treatment::HalfOpen, Treatment::CutRequests, Treatment::CutAnswers, Treatment::Reset] {
        joined(&setting.gateway, 2).await;
        setting.under_way().await;
        proxy.treat(fault);
        joined(&setting.gateway, 1).await;
        setting.check().await;
        // What the executor and the network still held comes now, late.
        proxy.treat(Treatment::Pass);
    }
    joined(&setting.gateway, 2).await;
    proxy.treat(Treatment::Delay(Duration::from_millis(5)));
    setting.under_way().await;
    setting.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_may_stop_for_longer_than_its_lease() {
    let mut setting = Setting::start().await;
    let executors = ["e1", "e2"].map(|name| setting.cluster.executor(name, &[]));
    joined(&setting.gateway, 2).await;

    setting.under_way().await;
    let stopped = executors[0].stopped();
    joined(&setting.gateway, 1).await;
    setting.check().await;
    drop(stopped);
    joined(&setting.gateway, 2).await;

    setting.under_way().await;
    let stopped = setting.gateway.stopped();
    tokio::time::sleep(LONGER_THAN_A_LEASE).await;
    drop(stopped);
    joined(&setting.gateway, 2).await;
    setting.check().await;

    for pid in [setting.cluster.s3.pid(), setting.cluster.redis.pid()] {
        setting.under_way().await;
        let stopped = Stopped::new(pid);
        tokio::time::sleep(LONGER_THAN_A_LEASE).await;
        drop(stopped);
    }
    setting.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_may_fail_now_and_then() {
    let mut setting = Setting::start().await;
    let _executors = ["e1", "e2"].map(|name| setting.cluster.executor(name, &[]));
    joined(&setting.gateway, 2).await;
    let faults = [
        "503:0.1",
        "late-503:0.05:PUT",
        "lost-answer:0.1:PUT",
        "409:0.05:PUT",
        "cut:0.1:GET",
        "slow:0.1:GET",
    ];
    setting.cluster.s3.set_faults(&faults).await;
    for _ in 0..3 {
        setting.under_way().await;
    }
    setting.check().await;
    let happened = setting.cluster.s3.set_faults(&[]).await;
    println!("faults that happened: {happened}");
    for fault in faults {
        let kind = fault.split(':').next().expect("a kind");
        assert!(happened[kind].as_u64().is_some_and(|times| times > 0), "no `{kind}`: {happened}");
    }
    setting.end().await;
}

/// Set in the process that has a network of its own.
const INSIDE: &str = "FANFOLD_TEST_NETWORK";

/// A machine that is cut off: an executor in a network namespace of its own, whose cable is pulled. Nobody gets a reset, and
/// nobody's connection closes.
///
/// The test runs itself again in a new network namespace, so that the machine's own network is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_may_be_cut_off() {
    if std::env::var_os(INSIDE).is_some() {
        return cut_off().await;
    }
    let may = Command::new("unshare")
        .args(["--net", "ip", "link", "add", "fan0", "type", "veth", "peer", "name", "fan1"])
        .output();
    if let Some(why) = match may {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    } {
        println!("SKIPPED: no network namespaces here ({}); run it as root with iproute2", why.trim());
        return;
    }
    let inside = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_machine_may_be_cut_off", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(inside.expect("unshare").success(), "it failed inside its own network; see above");
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {args}");
}

/// Inside a network namespace that nobody else has.
async fn cut_off() {
    ip("link set lo up");
    ip("link add fan0 type veth peer name fan1");
    // The other machine is a process that only keeps its namespace.
    let machine = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().expect("unshare");
    let machine = Machine(machine);
    let pid = machine.0.id();
    let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let moved = async || std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|there| there != own);
    assert!(until(PATIENCE, moved).await, "the other namespace is not there");
    ip(&format!("link set fan1 netns {pid}"));
    ip("addr add 10.77.0.1/24 dev fan0");
    ip("link set fan0 up");
    machine.run("ip link set lo up");
    machine.run("ip addr add 10.77.0.2/24 dev fan1");
    machine.run("ip link set fan1 up");

    let mut setting = Setting::start().await;
    let peer = setting.gateway.ready()["peer"].as_str().expect("an address").to_owned();
    let to_gateway = Proxy::start_on("10.77.0.1:0", &peer).await;
    let to_s3 = Proxy::start_on("10.77.0.1:0", setting.cluster.s3.endpoint()).await;
    let endpoint = format!("http://{}", to_s3.address());
    let gateway = to_gateway.address();
    let far = Start {
        args: &["--peer", "10.77.0.2:0"],
        env: &[("AWS_ENDPOINT_URL", &endpoint)],
        gateway: Some(&gateway),
        ..Start::default()
    };
    let command = setting.cluster.command("executor", "far", far);
    let _far = Platform::spawn(machine.inside(&command), std::path::Path::new("/")).expect("it starts");
    let _near = setting.cluster.executor("near", &[]);
    joined(&setting.gateway, 2).await;

    setting.under_way().await;
    ip("link set fan0 down");
    joined(&setting.gateway, 1).await;
    setting.check().await;
    ip("link set fan0 up");
    joined(&setting.gateway, 2).await;
    setting.under_way().await;
    setting.end().await;
}

/// A process with a network namespace of its own.
struct Machine(std::process::Child);

impl Machine {
    /// The same command, inside.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/proc/{}/ns/net", self.0.id()));
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    fn run(&self, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        assert!(self.inside(&command).status().expect("nsenter").success(), "{line}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
