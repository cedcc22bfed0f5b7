//! What other gateways answer of a gateway's jobs in the seconds in which it is gone and nobody has taken over.

use std::time::Duration;

use fanfold_store::Mirror;
use fanfold_tests::{
    cluster::{Cluster, joined},
    platform::Platform,
};

const NAMESPACE: &str = "fanfold";

/// Waits until a job's end was told: nothing else waits for that.
async fn told(mirror: &Mirror, job: &str) {
    let job = job.parse().expect("an id");
    let told = async {
        loop {
            let view = mirror.field(job, "view").await.expect("the Redis is there");
            if view.is_some_and(|view| String::from_utf8_lossy(&view).contains("\"succeeded\"")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), told).await.expect("it is told within ten seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_answers_for_one_that_was_just_killed() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.gateway("g1"), cluster.gateway("g2"));
    let _executor = cluster.executor("e1", &[]);
    joined(&one, 1).await;
    one.deploy("echo").await;
    let id = one.invoke_async("echo", "remember me").await;
    one.ended(&id).await;
    let mirror = Mirror::redis(&cluster.redis.url(), NAMESPACE).expect("a URL");
    told(&mirror, &id).await;
    one.post("/function/echo", "a synchronous call").await.expect(200);

    one.kill();
    let view = two.get(&format!("/v1/invocations/{id}")).await.expect(200).json();
    assert_eq!((view["state"].as_str(), view["function"].as_str()), (Some("succeeded"), Some("echo")));
    let output = two.get(&format!("/v1/invocations/{id}/output")).await.expect(200);
    assert_eq!(output.text(), "remember me");
    // What is not told, and what wants an owner, has to wait for one.
    cluster.redis.flush();
    asks_for_an_owner(&two, &id).await;
}

/// Nobody owns the job for a moment: asking for it is refused, or, once it has an owner again, answered.
async fn asks_for_an_owner(gateway: &Platform, id: &str) {
    let answer = gateway.get(&format!("/v1/invocations/{id}")).await;
    match answer.status {
        200 => assert_eq!(answer.json()["state"], "succeeded"),
        _ => drop(answer.expect_problem(503, "overloaded", "unreachable", "ask again")),
    }
}
