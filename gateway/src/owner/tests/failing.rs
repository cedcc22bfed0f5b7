//! What happens when a part fails: the disk, another owner, an executor.

use fanfold_protocol::{Code, Kind, rest::State};
use fanfold_store::{
    Journal,
    testing::{Fault, Operation, faulty_memory},
};

use super::{
    bed::{Bed, job, keyed},
    driver, function,
};

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_what_is_new_and_holds_what_runs() {
    let f = driver("f");
    let (store, faults) = faulty_memory();
    let bed = Bed::over(store, &[&f]).await;
    let running = bed.accept(&f, "fan-hold", "2").await;
    let other = bed.accept(&f, "hold", "x").await;
    bed.script.started(4).await;

    faults.always(Operation::Put, "", Fault::DiskFull);
    let refused = bed.owner.accept(job(&f, "echo", "a")).await.unwrap_err();
    assert_eq!((refused.kind, refused.code, refused.retryable), (Kind::Platform, Code::DiskFull, true));
    let answer = bed.owner.run(job(&f, "fan", "3"), false).await.unwrap();
    assert_eq!(answer.tasks, 4, "what needs no journal goes on");

    let refused = bed.owner.cancel(other).await.unwrap_err();
    assert!(refused.retryable, "a cancel that would not survive is not acknowledged either");

    bed.script.release().await;
    // The job's end is decided now and cannot be written.
    while bed.owner.metrics().await.unwrap().journal.failing.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.owner.view(running).await.unwrap().state, State::Running, "nothing is announced");
    assert_eq!(bed.owner.accept(job(&f, "echo", "b")).await.unwrap_err().code, Code::DiskFull);

    faults.clear();
    assert_eq!(bed.ended(running).await.state, State::Succeeded, "it finishes when there is room");
    assert_eq!(bed.ended(other).await.state, State::Succeeded);
    let after = bed.accept(&f, "echo", "c").await;
    assert_eq!(bed.ended(after).await.state, State::Succeeded);

    let bed = Bed::open(bed.crash().await).await;
    for id in [running, other, after] {
        assert_eq!(bed.owner.view(id).await.unwrap().state, State::Succeeded);
    }
    assert_eq!(
        bed.owner.list(None, 10, false).await.unwrap().items.len(),
        3,
        "what was refused is not there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_store_loses_no_job() {
    let f = function("f");
    let (store, faults) = faulty_memory();
    let bed = Bed::over(store, &[&f]).await;
    faults.always(Operation::Put, "log/", Fault::AnswerLost);
    faults.always(Operation::Get, "log/", Fault::Refused);
    let new = || keyed(job(&f, "echo", "a"), "key");
    let error = bed.owner.accept(new()).await.unwrap_err();
    assert_eq!((error.code, error.retryable), (Code::Storage, true));
    faults.clear();
    let id = bed.owner.accept(new()).await.unwrap();
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
    let bed = Bed::open(bed.crash().await).await;
    assert_eq!(
        bed.owner.accept(new()).await.unwrap(),
        id,
        "the key belongs to the job that was acknowledged"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_for_a_store_that_says_nothing() {
    let f = function("f");
    let (store, faults) = faulty_memory();
    let bed = Bed::over(store, &[&f]).await;
    faults.always(Operation::Put, "log/", Fault::Held);
    let new = || keyed(job(&f, "echo", "a"), "key");
    for _ in 0..2 {
        let error = bed.owner.accept(new()).await.unwrap_err();
        assert_eq!((error.code, error.retryable), (Code::Storage, true));
        assert!(error.message.contains("does not answer"), "{error}");
    }
    assert!(bed.owner.accept(job(&f, "echo", "b")).await.is_err(), "nothing is acknowledged meanwhile");
    faults.clear();
    faults.release(1);
    let id = loop {
        match bed.owner.accept(new()).await {
            Ok(id) => break id,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(bed.ended(id).await.state, State::Succeeded, "it was recorded after all, and once");
    assert_eq!(bed.owner.list(None, 10, false).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_replaced_owner_stops_at_once() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let running = bed.accept(&f, "hold", "a").await;
    bed.script.started(1).await;
    let _usurper = Journal::open(&bed.store, "test").await.unwrap();
    let error = bed.owner.accept(job(&f, "echo", "b")).await.unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Conflict, Code::Fenced));
    assert_eq!(bed.owner.ended().await.unwrap().code, Code::Fenced);
    assert_eq!(bed.owner.view(running).await.unwrap_err().code, Code::Fenced);
    bed.owner.clone().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_executor_costs_attempts_not_jobs() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "hold", "a").await;
    bed.script.started(1).await;
    bed.script.leave().await;
    while !bed.owner.metrics().await.unwrap().executors.is_empty() {
        tokio::task::yield_now().await;
    }
    let view = bed.owner.view(id).await.unwrap();
    assert!(view.waiting_for.contains("there is no executor"), "{}", view.waiting_for);
    let bed = Bed::open(bed.stop().await).await;
    bed.script.started(1).await;
    bed.script.release().await;
    assert_eq!(bed.ended(id).await.state, State::Succeeded);
}
