//! Accepting, running, answering, cancelling.

use bytes::Bytes;
use fanfold_protocol::{Code, Kind, PartitionId, TaskId, limit, rest::State};
use fanfold_store::Store;

use super::{
    bed::{Bed, collect, job, keyed},
    driver, function, version,
};

#[tokio::test]
async fn an_accepted_job_runs_and_its_output_can_be_read() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "log", "hello").await;
    let view = bed.ended(id).await;
    assert_eq!((view.state, view.attempts, view.output_bytes), (State::Succeeded, 1, Some(5)));
    assert_eq!(bed.output(id).await.unwrap(), "hello");
    let logs = String::from_utf8(bed.owner.logs(id, 0).await.unwrap().to_vec()).unwrap();
    assert!(logs.contains("\"line\":\"hello\"") && logs.contains("\"attempt\":1"), "{logs}");
    let root = &bed.script.runs()[0];
    assert_eq!(
        (root.job, root.version, root.durability),
        (id, f.version, fanfold_protocol::call::Durability::Eager)
    );
    assert_eq!(bed.owner.list(None, 10, false).await.unwrap().items, [view]);
    assert!(bed.owner.list(None, 10, true).await.unwrap().items.is_empty(), "it is no driver");
}

#[tokio::test]
async fn long_inputs_and_outputs_pass_through_the_store() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let long = "x".repeat(3 << 20);
    let id = bed.accept(&f, "big", &long).await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    assert_eq!(bed.output(id).await.unwrap(), long);
    let partition = PartitionId { task: TaskId::root(id), output: 0 };
    let (length, body) = bed.owner.partition(partition).await.unwrap();
    assert_eq!((length, collect(body).await.len()), (3 << 20, 3 << 20));

    let answer = bed.owner.run(job(&f, "big", &long), false).await.unwrap();
    let (_, body) = answer.body().await.unwrap();
    drop(answer);
    assert_eq!(collect(body).await, long, "the body alone keeps the output");
    while fanfold_store::testing::paths(&bed.store, "job")
        .await
        .iter()
        .any(|path| !path.contains(&id.to_string()))
    {
        tokio::task::yield_now().await;
    }
    let too_long = "x".repeat((8 << 20) + 1);
    let refused = bed.owner.accept(job(&f, "big", &too_long)).await.unwrap_err();
    assert_eq!(refused.code, Code::BodyTooLarge);
}

#[tokio::test]
async fn the_same_key_is_the_same_job() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let long = "y".repeat(100_000);
    let new = || keyed(job(&f, "hold", &long), "key");
    let (first, second) = tokio::join!(bed.owner.accept(new()), bed.owner.accept(new()));
    let id = first.unwrap();
    assert_eq!(second.unwrap(), id, "also while the first is on its way to the journal");
    let other = bed.owner.accept(keyed(job(&f, "hold", "other"), "key")).await.unwrap_err();
    assert_eq!((other.kind, other.code), (Kind::Conflict, Code::IdempotencyKey));

    bed.script.started(1).await;
    let (answer, ()) = tokio::join!(bed.owner.run(new(), true), bed.script.release());
    assert_eq!(answer.unwrap().job, id, "a synchronous call with the key gets the job's answer");
    let again = bed.owner.run(new(), true).await.unwrap();
    assert_eq!(again.outputs[0].bytes(), 100_000);
    assert_eq!(bed.script.root_runs(id), 1);
    let stored = fanfold_store::testing::paths(&bed.store, "job").await;
    assert!(
        stored.iter().all(|path| path.contains(&id.to_string())),
        "superfluous inputs are removed: {stored:?}"
    );
}

#[tokio::test]
async fn a_driver_fans_out_and_names_functions_once() {
    let (f, helper) = (driver("f"), function("helper"));
    let bed = Bed::new(&[&f, &helper]).await;
    let id = bed.accept(&f, "fan", "1000").await;
    let view = bed.ended(id).await;
    assert_eq!((view.state, view.progress.tasks, view.progress.finished), (State::Succeeded, 1001, 1001));
    assert_eq!(view.progress.stages["noop"].finished, 1000);
    assert_eq!(bed.owner.graph(id).await.unwrap().tasks.len(), 1001);
    assert_eq!(bed.output(id).await.unwrap(), "1000");
    assert_eq!(bed.owner.list(None, 10, true).await.unwrap().items.len(), 1);

    let id = bed.accept(&f, "helper", "3").await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    let called: Vec<_> = bed.script.runs().into_iter().filter(|run| run.version == helper.version).collect();
    assert_eq!(called.len(), 3);
}

#[tokio::test]
async fn calls_that_cannot_be_made_fail_as_tasks() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let error = bed.owner.run(job(&f, "helper", "1"), false).await.unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::NotFound, Code::Function));
}

#[tokio::test]
async fn a_synchronous_job_leaves_nothing_and_is_cancelled_with_its_caller() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let answer = bed.owner.run(job(&f, "fan", "10"), false).await.unwrap();
    assert_eq!((answer.tasks, answer.content_type), (11, "application/json"));
    assert!(bed.owner.view(answer.job).await.is_err(), "it is forgotten");

    let before = bed.script.runs().len();
    {
        let mut call = std::pin::pin!(bed.owner.run(job(&f, "fan-hold", "5"), false));
        tokio::select! {
            _ = &mut call => unreachable!("its children are held"),
            () = bed.script.started(before + 6) => {}
        }
    }
    // The cancel is taken at the owner's next turn; once nothing runs, all of it was stopped.
    while bed.owner.metrics().await.unwrap().running > 0 {}
    while bed.script.stopped().len() < 6 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.owner.metrics().await.unwrap().cancelled, 1);
}

#[tokio::test]
async fn jobs_can_be_cancelled_while_they_wait_and_while_they_run() {
    let f = version("f", false, |manifest| manifest.concurrency.max = 1);
    let bed = Bed::new(&[&f]).await;
    let running = bed.accept(&f, "hold", "a").await;
    bed.script.started(1).await;
    let waiting = bed.accept(&f, "hold", "b").await;
    let view = bed.owner.view(waiting).await.unwrap();
    assert_eq!(view.state, State::Queued);
    assert!(view.waiting_for.contains("1 of `f` run at once"), "{}", view.waiting_for);

    bed.owner.cancel(waiting).await.unwrap();
    bed.owner.cancel(running).await.unwrap();
    for id in [waiting, running] {
        let view = bed.ended(id).await;
        assert_eq!((view.state, view.error.unwrap().code), (State::Cancelled, Code::Cancelled));
        assert_eq!(bed.owner.cancel(id).await.unwrap().state, State::Cancelled, "again is fine");
    }
    assert!(bed.owner.dead_letters(None, 10).await.unwrap().items.is_empty());
    let done = bed.accept(&f, "echo", "c").await;
    bed.ended(done).await;
    assert_eq!(bed.owner.cancel(done).await.unwrap_err().code, Code::AlreadyFinished);
}

#[tokio::test(start_paused = true)]
async fn what_waits_too_long_for_a_place_is_given_up() {
    let f = version("f", false, |manifest| {
        manifest.concurrency.max = 1;
        manifest.retry.max_age = 3_000;
    });
    let slow = version("slow", false, |manifest| manifest.retry.max_age = 600_000);
    let bed = Bed::new(&[&f, &slow]).await;
    // The first one is given up by the scheduler, the second by the owner.
    let ids = [bed.accept(&f, "hold", "a").await, bed.accept(&f, "hold", "b").await];
    for id in ids {
        let view = bed.ended(id).await;
        assert_eq!((view.state, view.error.unwrap().code), (State::Failed, Code::Deadline));
    }
}

#[tokio::test]
async fn answers_are_remembered() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let (key, request) = (fanfold_protocol::Digest::of(b"key"), fanfold_protocol::Digest::of(b"request"));
    assert_eq!(bed.owner.answered(key, request).await.unwrap(), None);
    let answer = crate::owner::StoredAnswer {
        request,
        at_ms: u64::MAX,
        status: 201,
        content_type: "text/plain".into(),
        body: Bytes::from_static(b"made"),
    };
    bed.owner.remember(key, answer.clone()).await.unwrap();
    assert_eq!(bed.owner.answered(key, request).await.unwrap(), Some(answer));
    let other = bed.owner.answered(key, fanfold_protocol::Digest::of(b"other")).await.unwrap_err();
    assert_eq!(other.code, Code::IdempotencyKey);
}

#[tokio::test]
async fn narrow_channels_slow_things_down_and_no_more() {
    let f = driver("f");
    let bed = Bed::open_with(Store::in_memory(), 1).await;
    bed.deploy(&f).await;
    let calls = (0..4).map(|_| bed.owner.run(job(&f, "fan", "3000"), false));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.unwrap().tasks, 3001);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_job_shows_its_progress_ten_times_a_second_and_its_end() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "fan-hold", "3").await;
    let mut watch = bed.owner.watch(id).await.unwrap();
    bed.script.started(4).await;
    let since = tokio::time::Instant::now();
    while watch.borrow_and_update().progress.running < 4 {
        watch.changed().await.unwrap();
    }
    assert!(since.elapsed() <= std::time::Duration::from_millis(2 * limit::WATCH_INTERVAL_MS));
    assert_eq!(watch.borrow().progress.stages["hold"].running, 3);
    bed.script.release().await;
    while watch.changed().await.is_ok() {}
    assert_eq!(watch.borrow().state, State::Succeeded, "the last view is that of the end");
}

#[tokio::test]
async fn what_a_result_names_can_be_read_as_long_as_the_result() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "name", "2").await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    let root = TaskId::root(id);
    let [named, other] = [0, 1].map(|n| PartitionId { task: root.child(n), output: 0 });
    let bed = Bed::open(bed.crash().await).await;
    let (_, body) = bed.owner.partition(named).await.unwrap();
    assert_eq!(collect(body).await, "0", "each child echoes its number");
    assert_eq!(bed.owner.partition(other).await.err().unwrap().code, Code::Partition);
    assert!(bed.owner.lineage(PartitionId { task: root, output: 0 }, None).await.is_ok());
}
