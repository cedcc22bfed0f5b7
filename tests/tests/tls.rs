//! A cluster whose processes have certificates: all they do works, and others stay outside.

use fanfold_tests::{
    certificates::Certificates,
    cluster::{Cluster, joined},
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn members_with_certificates_trust_each_other_and_nobody_else() {
    let ours = Certificates::of("ours");
    let cluster = Cluster::with(ours.environment());
    let gateway = cluster.gateway("g0");
    let executors = [cluster.executor("e1", &[]), cluster.executor("e2", &[])];
    joined(&gateway, 2).await;
    gateway.deploy("echo").await.expect(201);
    gateway.deploy("pass").await.expect(201);

    // A direct call, there and back.
    let large = vec![7; 3 << 20];
    assert_eq!(gateway.post("/function/echo", large.clone()).await.expect(200).body, large);
    // Tasks over links; each reads what the other executor has.
    let ids = executors.each_ref().map(|executor| executor.ready()["executor"].clone());
    let passed = json!({ "steps": 20, "bytes": 1 << 20, "executors": ids }).to_string();
    let passed = gateway.post("/function/pass", passed).await.expect(200).json();
    assert!(passed["p50_us"].as_u64() > Some(0), "{passed}");

    let theirs = Certificates::of("theirs");
    let mut stranger = cluster.stranger(&theirs.environment());
    let mut plain = cluster.stranger(&[]);
    tokio::task::spawn_blocking(move || {
        let ca = theirs.ca().display().to_string();
        // Again and again: somebody may mend it meanwhile.
        for _ in 0..2 {
            stranger.says(&["no link to the gateway", "not signed by an authority in", &ca]);
            plain.says(&["no link to the gateway", "wants TLS", "--tls-cert"]);
        }
    })
    .await
    .expect("both say so");
    joined(&gateway, 2).await;
}
