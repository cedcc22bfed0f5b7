//! Every kind of message between an executor and its gateway is lost once, at each moment at which a message can be lost: a job
//! that uses every host call ends with the same report, and what was acknowledged is done once.

use fanfold_protocol::message::{FromExecutor, ToExecutor};
use fanfold_tests::{
    cluster::{Cluster, Start, joined},
    history::{Call, History},
    platform::Platform,
    rpc::{Fault, Moment, RpcProxy},
};
use serde_json::json;

/// Checks whose outcome does not depend on how often something ran, or how long it took.
const CHECKS: &[&str] = &[
    "values_are_passed_and_returned",
    "futures_are_arguments",
    "large_values_are_partitions",
    "readers_stream_and_seek",
    "put_values_are_shared",
    "references_nest",
    "results_are_forwarded",
    "generators_yield",
    "generators_fail_at_the_end",
    "failures_pass_through_dependants",
    "results_come_as_completed",
    "cancelled_tasks_fail",
];

/// Messages of that job.
const FROM_EXECUTOR: &[&str] = &["Submit", "Wait", "Next", "Yield", "Put", "Drop", "Cancel", "Finished"];
const TO_EXECUTOR: &[&str] = &["Run", "Stop", "Woken", "Next", "MayYield", "Free"];

struct Setting {
    cluster: Cluster,
    gateway: Platform,
    proxy: RpcProxy,
    _executor: Platform,
    history: History,
    /// The job, with its undisturbed answer.
    job: Call,
}

impl Setting {
    async fn start() -> Self {
        let cluster = Cluster::start();
        let gateway = cluster.gateway("g0");
        let proxy = RpcProxy::start(gateway.ready()["peer"].as_str().expect("an address")).await;
        let address = proxy.address();
        let far = Start { gateway: Some(&address), args: &["--slots", "2"], ..Start::default() };
        let executor = cluster.executor_with("far", far);
        joined(&gateway, 1).await;
        gateway.deploy("conformance").await.expect(201);
        let input = json!({ "only": CHECKS }).to_string();
        let answer = gateway.post("/function/conformance", input.clone()).await.expect(200);
        assert_eq!(answer.json()["failed"], json!([]), "{}", answer.text());
        let (input, expected) = (input.into(), answer.body);
        let job = Call { function: "conformance", key: String::new(), input, expected };
        Self { cluster, gateway, proxy, _executor: executor, history: History::new(), job }
    }

    /// Runs a job that has such a message while this happens.
    async fn lose(&self, kind: &'static str, moment: Moment) {
        let key = format!("{kind} {moment:?}");
        println!("losing {key}");
        self.proxy.arm(Fault { kind, moment });
        self.history.submit(&self.gateway, &Call { key: key.clone(), ..self.job.clone() }).await;
        let found = self.history.check(&self.gateway).await;
        assert_eq!((found.succeeded, found.dead), (self.history.len(), 0), "{key}");
        assert!(!self.proxy.disarm(), "no message to lose: {key}");
    }
}

async fn all_are_lost(kinds: &[&'static str]) {
    let setting = Setting::start().await;
    for kind in kinds {
        for moment in [Moment::Request, Moment::InFlight, Moment::Response] {
            setting.lose(kind, moment).await;
        }
    }
    setting.gateway.terminate();
    setting.history.check_journal(&setting.cluster, "g0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_the_gateway_may_be_lost() {
    all_are_lost(FROM_EXECUTOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_the_executor_may_be_lost() {
    all_are_lost(TO_EXECUTOR).await;
}

// A kind that is added has to be lost above, too, or be named here with the reason why not: else this does not compile.
const _: fn(&FromExecutor) = |message| match message {
    FromExecutor::Submit { .. }
    | FromExecutor::Wait { .. }
    | FromExecutor::Next { .. }
    | FromExecutor::Yield { .. }
    | FromExecutor::Put { .. }
    | FromExecutor::Drop { .. }
    | FromExecutor::Cancel { .. }
    | FromExecutor::Finished { .. } => {}
    // Say that a copy has come or is gone: `recovery.rs` deletes copies, and has executors die with theirs. Lines of a log, what
    // its late work cost, and word of objects, which listings find, may be lost with their executor. The others are
    // said by executors that are asked to change or to go.
    FromExecutor::Durable(_)
    | FromExecutor::Lost { .. }
    | FromExecutor::Status { .. }
    | FromExecutor::Logs { .. }
    | FromExecutor::Wrote { .. }
    | FromExecutor::Spent { .. }
    | FromExecutor::Offer(_)
    | FromExecutor::Leaving
    | FromExecutor::Left => {}
};
const _: fn(&ToExecutor) = |message| match message {
    ToExecutor::Run(_)
    | ToExecutor::Stop { .. }
    | ToExecutor::Woken { .. }
    | ToExecutor::Next { .. }
    | ToExecutor::MayYield { .. }
    | ToExecutor::Free(_) => {}
    // Advice, and an address book that is sent anew on every link.
    ToExecutor::Prefetch(_) | ToExecutor::Peers(_) => {}
};
