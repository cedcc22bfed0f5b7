//! Crashes: everything in memory is dropped, and an owner over the same store goes on.

use std::collections::HashMap;

use fanfold_protocol::{Code, JobId, PartitionId, TaskId, record::Record, rest::State};
use fanfold_store::{
    Journal, Store,
    testing::{Fault, Operation, faulty_memory},
};

use super::{
    bed::{Bed, job, keyed},
    driver, function, version,
};
use crate::registry::Change;

#[tokio::test]
async fn nothing_acknowledged_is_lost_and_no_result_changes() {
    let (f, slow) = (function("f"), version("slow", false, |manifest| manifest.concurrency.max = 4));
    let mut bed = Bed::new(&[&f, &slow]).await;
    let (mut ids, mut results): (Vec<JobId>, HashMap<JobId, _>) = (Vec::new(), HashMap::new());
    for round in 0..10 {
        let inputs: Vec<String> = (0..50).map(|n| format!("{round}-{n}")).collect();
        let accepts = inputs.iter().enumerate().map(|(n, input)| {
            let function = if n % 10 == 0 { &slow } else { &f };
            bed.owner.accept(job(function, "echo", input))
        });
        ids.extend(futures::future::join_all(accepts).await.into_iter().map(Result::unwrap));
        for id in &ids {
            let view = bed.owner.view(*id).await.unwrap();
            if view.state.ended() {
                let seen = (view.ended_at_ms, bed.output(*id).await.unwrap());
                assert_eq!(*results.entry(*id).or_insert_with(|| seen.clone()), seen);
            } else {
                assert!(!results.contains_key(id), "an announced end is still there");
            }
        }
        bed = Bed::open(bed.crash().await).await;
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(bed.ended(*id).await.state, State::Succeeded);
        assert_eq!(bed.output(*id).await.unwrap(), format!("{}-{}", n / 50, n % 50));
    }
    assert_eq!(bed.owner.metrics().await.unwrap().kept, 500);
    let store = bed.crash().await;
    let (_journal, records) = Journal::open(&store, "test").await.unwrap();
    let ends = records.iter().filter(|record| matches!(record, Record::Ended { .. })).count();
    assert_eq!(ends, ids.len(), "each job ended once");
}

#[tokio::test]
async fn a_driver_goes_on_where_its_children_committed() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "fan-hold", "8").await;
    bed.script.started(9).await;
    bed.script.release().await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);

    let id = bed.accept(&f, "helper", "0").await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded, "a driver that calls nothing is fine");

    // Its children commit, then the process dies before the driver's own end is in the journal.
    let id = bed.accept(&f, "fan-hold", "8").await;
    bed.script.started(9 + 1 + 9).await;
    let bed = Bed::open(bed.crash().await).await;
    bed.script.started(9).await;
    bed.script.release().await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    assert_eq!(bed.script.root_runs(id), 1);
}

#[tokio::test]
async fn committed_children_are_not_run_again_and_names_keep_their_meaning() {
    let (f, helper) = (driver("f"), function("helper"));
    let (store, faults) = faulty_memory();
    let bed = Bed::over(store, &[&f, &helper]).await;
    let id = bed.accept(&f, "helper", "5").await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);

    // Everything up to the children's commits is written, the driver's end is not.
    let (gate, runs) = (faults.clone(), bed.script.runs().len());
    let id = bed.accept(&f, "helper-hold", "5").await;
    bed.script.started(runs + 7).await;
    while bed.owner.view(id).await.unwrap().progress.finished < 5
        || bed.owner.metrics().await.unwrap().journal.waiting > 0
    {}
    gate.always(Operation::Put, "log/", Fault::DiskFull);
    bed.script.release().await;
    while bed.owner.metrics().await.unwrap().journal.failing.is_none() {
        tokio::task::yield_now().await;
    }
    let store = bed.crash().await;
    faults.clear();
    let bed = Bed::open(store).await;
    bed.deploy(&version("helper", false, |manifest| manifest.timeout = 1_234)).await;
    bed.script.started(2).await;
    bed.script.release().await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    let again: Vec<_> = bed.script.runs().into_iter().filter(|run| run.entry == "echo").collect();
    assert!(again.is_empty(), "they had committed: {again:?}");
}

#[tokio::test]
async fn the_graph_and_lineage_of_an_ended_job_outlive_its_owner() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "name", "3").await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    let root = TaskId::root(id);
    let [named, other] = [0, 1].map(|n| PartitionId { task: root.child(n), output: 0 });
    let lineage = bed.owner.lineage(other, None).await.unwrap();
    assert_eq!((lineage.task.entry.as_str(), lineage.version), ("big", f.version), "its job ended just now");
    let graph = bed.owner.graph(id).await.unwrap();
    let child = graph.tasks.iter().find(|task| task.id == other.task).unwrap();
    assert_eq!((child.parent, child.state.as_str()), (Some(root), "committed"));
    assert_eq!((child.outputs[0].bytes, child.outputs[0].crc32c), (1, Some(crc32c::crc32c(b"1"))));
    assert!(child.executor.is_some() && child.started_at_ms <= child.ended_at_ms && !graph.truncated);

    let bed = Bed::open(bed.crash().await).await;
    assert_eq!(bed.owner.graph(id).await.unwrap(), graph);
    assert_eq!(bed.owner.lineage(other, Some(id)).await.unwrap(), lineage);
    let refused = bed.owner.lineage(other, None).await.unwrap_err();
    assert!(refused.message.contains("?job="), "{refused:?}");
    let result = bed.owner.lineage(PartitionId { task: root, output: 0 }, None).await.unwrap();
    assert_eq!(result.inputs[0].partition, named.to_string(), "the result names it");
    let none = PartitionId { task: root.child(9), output: 0 };
    assert_eq!(bed.owner.lineage(none, Some(id)).await.unwrap_err().code, Code::Partition);
}

#[tokio::test]
async fn a_removed_function_finishes_what_was_accepted() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "hold", "a").await;
    bed.registry.change(Change::Remove { name: f.name.clone() }).await.unwrap();
    let bed = Bed::open(bed.crash().await).await;
    bed.script.started(1).await;
    bed.script.release().await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
}

#[tokio::test]
async fn a_cancel_survives() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.owner.accept(keyed(job(&f, "hold", "a"), "key")).await.unwrap();
    bed.script.started(1).await;
    bed.owner.cancel(id).await.unwrap();
    let bed = Bed::open(bed.crash().await).await;
    assert_eq!(bed.ended(id).await.state, State::Cancelled);
    assert_eq!(bed.owner.accept(keyed(job(&f, "hold", "a"), "key")).await.unwrap(), id);
}

#[tokio::test]
async fn a_directory_serves_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let f = function("f");
    let bed = Bed::over(Store::open_dir(dir.path()).await.unwrap(), &[&f]).await;
    let long = "x".repeat(200_000);
    let done = bed.accept(&f, "big", &long).await;
    bed.ended(done).await;
    let store = bed.stop().await;
    drop(store);
    let bed = Bed::open(Store::open_dir(dir.path()).await.unwrap()).await;
    assert_eq!(bed.output(done).await.unwrap(), long);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_stands_for_the_journal() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let mut ids = Vec::new();
    // One write each, so that there are many segments.
    while bed.journal.segments_since_checkpoint() < fanfold_protocol::limit::CHECKPOINT_SEGMENTS {
        let id = bed.accept(&f, "echo", "a").await;
        bed.ended(id).await;
        ids.push(id);
    }
    let held = bed.accept(&f, "hold", "b").await;
    bed.script.started(ids.len() + 1).await;
    while bed.journal.segments_since_checkpoint() > 100 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let later = bed.accept(&f, "echo", "c").await;
    bed.ended(later).await;
    let bed = Bed::open(bed.crash().await).await;
    for id in ids.into_iter().chain([later]) {
        assert_eq!(bed.owner.view(id).await.unwrap().state, State::Succeeded);
    }
    bed.script.started(1).await;
    bed.script.release().await;
    assert_eq!(bed.ended(held).await.state, State::Succeeded);
}
