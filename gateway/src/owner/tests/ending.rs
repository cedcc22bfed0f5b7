//! Retries, dead letters, retention, the end of the owner.

use fanfold_protocol::{Code, limit, rest::State};

use super::{
    bed::{Bed, job},
    driver, function, version,
};

#[tokio::test(start_paused = true)]
async fn failures_are_retried_and_then_become_dead_letters() {
    let f = function("f");
    let bed = Bed::new(&[&f]).await;
    let flaky = bed.accept(&f, "flaky", "a").await;
    let view = bed.ended(flaky).await;
    assert_eq!((view.state, view.attempts), (State::Succeeded, 3));

    let long = "z".repeat(limit::INLINE_BYTES_MAX + 1);
    for input in ["b", &long] {
        let failed = bed.accept(&f, "fail", input).await;
        let view = bed.ended(failed).await;
        assert_eq!((view.state, view.attempts), (State::Failed, 3));
        assert_eq!(bed.output(failed).await.unwrap_err().code, Code::ErrorReturned);
        let letters = bed.owner.dead_letters(None, 1).await.unwrap();
        assert_eq!((letters.items[0].id, letters.items[0].attempts), (failed, 3));

        let (one, two) =
            tokio::join!(bed.owner.retry_dead_letter(failed), bed.owner.retry_dead_letter(failed));
        let again = one.unwrap();
        assert_eq!(two.unwrap(), again, "a letter is taken up once");
        assert_eq!(bed.owner.retry_dead_letter(failed).await.unwrap(), again);
        assert_eq!(bed.ended(again).await.state, State::Failed);
        let last = bed.script.runs().pop().unwrap();
        let fanfold_protocol::value::Value::Inline(payload) = &last.args[0].value else { unreachable!() };
        assert_eq!(payload.bytes, input, "it has the same input");
        let letters = bed.owner.dead_letters(None, 10).await.unwrap().items;
        assert_eq!(letters[1].retried_as, Some(again));
    }
    assert_eq!(bed.owner.retry_dead_letter(flaky).await.unwrap_err().code, Code::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn a_mended_function_gets_its_dead_letters() {
    let broken = function("f");
    let bed = Bed::new(&[&broken]).await;
    let failed = bed.accept(&broken, "fail", "a").await;
    bed.ended(failed).await;
    let mended = version("f", false, |manifest| manifest.timeout = 7_000);
    bed.deploy(&mended).await;
    let again = bed.owner.retry_dead_letter(failed).await.unwrap();
    assert_eq!(bed.owner.view(again).await.unwrap().version, mended.version);
}

#[tokio::test(start_paused = true)]
async fn results_are_forgotten_after_a_day() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    let id = bed.accept(&f, "big", "some output").await;
    bed.ended(id).await;
    let several = bed.accept(&f, "name", "2").await;
    bed.ended(several).await;
    let letter = bed.accept(&f, "fail", "x").await;
    bed.ended(letter).await;
    tokio::time::sleep(std::time::Duration::from_millis(limit::RESULT_KEPT_MS + 5_000)).await;
    while bed.owner.metrics().await.unwrap().kept > 1
        || bed.owner.metrics().await.unwrap().journal.waiting > 0
    {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(bed.owner.view(id).await.unwrap_err().code, Code::Invocation);
    assert_eq!(bed.owner.view(letter).await.unwrap().state, State::Failed, "a dead letter stays");
    let stored = fanfold_store::testing::paths(&bed.store, "job").await;
    assert!(stored.is_empty(), "{stored:?}");
    let bed = Bed::open(bed.stop().await).await;
    assert_eq!(bed.owner.view(id).await.unwrap_err().code, Code::Invocation, "also after a restart");
}

#[tokio::test(start_paused = true)]
async fn stopping_drains_what_runs_and_keeps_what_waits() {
    let f = version("f", false, |manifest| manifest.concurrency.max = 1);
    let bed = Bed::new(&[&f]).await;
    let running = bed.accept(&f, "hold", "a").await;
    bed.script.started(1).await;
    let waiting = bed.accept(&f, "echo", "b").await;
    let (script, owner) = (bed.script.clone(), bed.owner.clone());
    let (store, ()) = tokio::join!(bed.stop(), async {
        // Only once the owner drains is a new job refused.
        while owner.accept(job(&f, "echo", "c")).await.is_ok() {}
        script.release().await;
    });
    assert_eq!(owner.view(running).await.unwrap_err().code, Code::Draining);
    assert_eq!(owner.ended().await, None);
    let bed = Bed::open(store).await;
    assert_eq!(bed.owner.view(running).await.unwrap().state, State::Succeeded, "it was let finish");
    assert_eq!(bed.ended(waiting).await.state, State::Succeeded, "it goes on after the restart");
    assert_eq!(bed.script.root_runs(running), 0);
}
