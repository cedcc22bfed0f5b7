//! The fold's laws, on random histories over few ids so that duplicates and strays are common.

use bytes::Bytes;
use fanfold_protocol::{
    AttemptId, Code, Error, FunctionName, Kind, PartitionId,
    manifest::Retry,
    message::Usage,
    record::{Committed, Fired, HeldEvent, Input, Says},
    trigger::Batch,
    value::Output,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn job(n: u8) -> JobId {
    JobId(Uuid::from_u128(u128::from(n)))
}

fn digest(n: u8) -> Digest {
    Digest([n; 32])
}

fn output(n: u8) -> Output {
    Output::Inline(Bytes::from(vec![n; 3]).into())
}

fn id_task(job: JobId, child: u8) -> TaskId {
    let root = TaskId::root(job);
    if child == 0 { root } else { root.child(u64::from(child)) }
}

fn attempt(job: JobId, child: u8, number: u32) -> AttemptId {
    AttemptId { task: id_task(job, child), epoch: 1, number }
}

fn fired(n: u8) -> Fired {
    let events = (0..n).map(|key| digest(20 + key)).collect();
    let says = Says {
        partial: n == 1,
        concurrency: (n == 2).then_some(3),
        retry: (n == 2).then(Retry::default),
        ..Says::default()
    };
    let scheduled_ms = (n == 2).then_some(u64::from(n));
    Fired {
        trigger: "t".parse().unwrap(),
        scheduled_ms,
        events,
        hops: n.into(),
        ordering: (n == 3).then_some(Digest([3; 32])),
        says,
    }
}

fn held(n: u8) -> Record {
    Record::Held(Box::new(HeldEvent {
        trigger: "t".parse().unwrap(),
        function: String::from("f"),
        entry: String::new(),
        key: digest(20 + n),
        at_ms: n.into(),
        bytes: n.into(),
        event: Bytes::from_static(b"{}"),
        hops: 0,
        input: Default::default(),
        says: Says::default(),
    }))
}

fn accepted(id: JobId, key: Option<u8>, from: Option<JobId>) -> Record {
    Record::Accepted(Box::new(Accepted {
        job: id,
        name: "f".parse::<FunctionName>().unwrap(),
        version: digest(9),
        entry: String::new(),
        input: Input::Inline { body: Bytes::from_static(b"input").into(), content_type: "text/plain".into() },
        idempotency: key.map(|key| (digest(key), digest(1))),
        traceparent: None,
        at_ms: 5,
        retried_from: from,
        batch: false,
        fired: key.map(|key| Box::new(fired(key + 1))),
    }))
}

fn ended(id: JobId, result: Result<Vec<Output>, Error>) -> Record {
    let follow = result.is_ok();
    Record::Ended {
        job: id,
        at_ms: 8,
        result,
        usage: Usage::default(),
        spent: Default::default(),
        tasks: 2,
        follow,
    }
}

fn error(n: u8) -> Error {
    let code = if n.is_multiple_of(2) { Code::Cancelled } else { Code::Trap };
    Error::new(Kind::Platform, code, format!("failure {n}"))
}

fn any_record() -> impl Strategy<Value = Record> {
    let ids = (0..4u8, 0..3u8, 0..3u8);
    (0..18u8, ids, 0..4u8).prop_map(|(kind, (j, child, number), n)| {
        let id = job(j);
        let attempt = attempt(id, child, u32::from(number));
        match kind {
            0 | 1 => accepted(id, (n < 2).then_some(n), (n == 3).then(|| job((j + 1) % 4))),
            2 => Record::Committed(Box::new(Committed {
                job: id,
                attempt,
                parent: None,
                fingerprint: digest(n),
                outputs: vec![output(n)],
                usage: Usage::default(),
            })),
            15 => held(n),
            17 => Record::Followed { job: id },
            16 => Record::Passed { trigger: "t".parse().unwrap(), at_ms: n.into(), job: None },
            3 => Record::Made { job: id, attempt, output: u32::from(n), value: output(number) },
            4 => Record::Waited { job: id, task: attempt.task, wait: u64::from(n), ready: vec![n.into()] },
            5 => Record::Failed { job: id, task: attempt.task, error: error(n) },
            6 => Record::AttemptFailed { job: id, attempt, at_ms: 7, error: error(n) },
            7 => ended(id, Ok(vec![output(n)])),
            8 => ended(id, Err(error(n))),
            9 => Record::CancelAsked { job: id },
            10 => Record::Retried { job: id, again: job(n) },
            11 => Record::Forgotten { job: id },
            13 => {
                let kept = PartitionId { task: id_task(id, child), output: u32::from(number) };
                Record::Kept { job: id, partitions: vec![(kept, output(n))] }
            }
            12 => Record::Resolved { job: id, function: format!("f:{child}"), version: digest(n) },
            _ => Record::Answered {
                key: digest(n),
                request: digest(child),
                at_ms: u64::from(n),
                status: 200,
                content_type: String::new(),
                body: Bytes::from(vec![n; 5]),
            },
        }
    })
}

fn fold(records: impl IntoIterator<Item = Record>) -> State {
    let mut state = State::default();
    records.into_iter().for_each(|record| state.fold(record));
    state
}

proptest! {
    /// A checkpoint taken at any moment, and the journal's tail after it, give the state of the whole journal.
    #[test]
    fn a_checkpoint_stands_for_the_records_before_it(
        records in prop::collection::vec(any_record(), 0..60),
        at in 0..60usize,
    ) {
        let at = at.min(records.len());
        let (before, after) = records.split_at(at);
        let checkpoint = fold(before.iter().cloned()).records();
        // Keys are left out: two live jobs never hold the same one, as they do in these histories.
        let whole = fold(records.iter().cloned());
        let restored = fold(checkpoint.into_iter().chain(after.iter().cloned()));
        prop_assert_eq!(restored.jobs, whole.jobs);
        prop_assert_eq!(restored.makers, whole.makers);
        prop_assert_eq!(restored.letters, whole.letters);
        prop_assert_eq!(restored.answers, whole.answers);
        let (restored_triggers, triggers) = (&restored.triggers, &whole.triggers);
        prop_assert!(restored_triggers.cursors().eq(triggers.cursors()));
        prop_assert!(restored_triggers.failed().eq(triggers.failed()));
        prop_assert!(restored_triggers.ended().eq(triggers.ended()));
        prop_assert_eq!(restored.answer_bytes, whole.answer_bytes);
    }

    /// What happened once happens once: a record that is read twice in a row changes nothing.
    #[test]
    fn records_read_twice_count_once(records in prop::collection::vec(any_record(), 0..60)) {
        let twice = records.iter().flat_map(|record| [record.clone(), record.clone()]);
        prop_assert_eq!(fold(twice), fold(records.iter().cloned()));
    }

    /// A job's end, and a task's commit, never change once they are there.
    #[test]
    fn ends_and_commits_are_final(records in prop::collection::vec(any_record(), 0..60)) {
        let mut state = State::default();
        for record in records {
            let before = state.clone();
            let forgets = matches!(record, Record::Forgotten { .. });
            state.fold(record);
            for old in before.jobs() {
                let Some(new) = state.job(old.accepted.job) else {
                    prop_assert!(forgets);
                    continue;
                };
                prop_assert!(old.end.is_none() || old.end == new.end);
                let commits = |job: &Job| job.log.as_ref().map(|log| log.committed.clone()).unwrap_or_default();
                for (task, commit) in commits(old) {
                    prop_assert!(new.end.is_some() || commits(new).get(&task) == Some(&commit));
                }
            }
        }
    }
}

#[test]
fn a_job_keeps_what_its_future_needs() {
    let (good, bad, gone) = (job(1), job(2), job(3));
    let mut state =
        fold([accepted(good, Some(1), None), accepted(bad, Some(2), None), accepted(gone, None, None)]);
    let partition = PartitionId { task: TaskId::root(good), output: PartitionId::FIRST_PUT };
    let attempt = attempt(good, 0, 1);
    state.fold(Record::Made { job: good, attempt, output: partition.output, value: output(1) });
    let failed = Record::AttemptFailed { job: good, attempt, at_ms: 6, error: error(1) };
    state.fold(failed);
    let replay = state.job(good).unwrap().replay();
    assert_eq!((replay.root_attempts_failed, replay.made.get(&partition)), (1, Some(&output(1))));

    state.fold(ended(good, Ok(vec![output(1)])));
    state.fold(ended(bad, Err(error(1))));
    state.fold(Record::CancelAsked { job: gone });
    state.fold(ended(gone, Err(error(2))));
    let [good_job, bad_job, gone_job] = [good, bad, gone].map(|id| state.job(id).unwrap().clone());
    assert!(good_job.log.is_none() && good_job.input_bytes() == 0, "an ended job keeps no log and no input");
    assert!(bad_job.is_dead_letter() && bad_job.input_bytes() == 5, "a dead letter keeps its input");
    assert_eq!(state.letters(None).map(|job| job.accepted.job).collect::<Vec<_>>(), [bad]);
    assert!(gone_job.was_cancelled() && !gone_job.is_dead_letter());
    assert_eq!(state.newest_first(Some(gone)).map(|job| job.accepted.job).collect::<Vec<_>>(), [bad, good]);

    state.fold(Record::Retried { job: bad, again: job(4) });
    state.fold(Record::Retried { job: bad, again: job(5) });
    assert_eq!(state.job(bad).unwrap().retried_as, Some(job(4)));
    state.fold(Record::Forgotten { job: bad });
    assert!(state.job_of_key(digest(2)).is_none() && state.job_of_maker(TaskId::root(bad)).is_none());
    assert!(state.job_of_key(digest(1)).is_some());
}

#[test]
fn what_follows_from_an_end_is_remembered_until_it_is_done() {
    let mut state = fold([accepted(job(1), Some(0), None), ended(job(1), Ok(vec![output(1)]))]);
    let ended = |state: &State| state.triggers().ended().collect::<Vec<_>>();
    assert_eq!(ended(&state), [job(1)]);
    assert_eq!(state.job(job(1)).unwrap().input_bytes(), 5, "an item of its batch may have failed");
    assert_eq!(fold(state.records()), state);
    state.fold(Record::Followed { job: job(1) });
    assert_eq!((ended(&state), state.job(job(1)).unwrap().input_bytes()), (vec![], 0));
    assert_eq!(fold(state.records()), state);
}

#[test]
fn events_wait_for_their_batch_once() {
    let waiting =
        |state: &State| state.triggers().waiting().map(|(_, w)| (w.events, w.bytes)).collect::<Vec<_>>();
    let trigger: FunctionName = "t".parse().unwrap();
    let mut state = fold([held(3), held(1), held(3), held(0)]);
    assert_eq!(waiting(&state), [(3, 4)], "the same event waits once");
    let keys = |batch: Batch| -> Vec<Vec<_>> {
        let batches = state.held(&trigger, &batch, 2);
        batches.iter().map(|batch| batch.iter().map(|held| held.key).collect()).collect()
    };
    let [first, second, third] = [23, 21, 20].map(digest);
    assert_eq!(
        keys(Batch { max: 2, ..Batch::default() }),
        [vec![first, second], vec![third]],
        "the oldest first"
    );
    assert_eq!(keys(Batch { bytes: Some(3), ..Batch::default() }), [vec![first], vec![second, third]]);

    // A batch of the keys 20 and 21.
    state.fold(accepted(job(1), Some(1), None));
    assert_eq!(waiting(&state), [(1, 3)]);
    state.fold(held(0));
    assert_eq!(waiting(&state), [(1, 3)], "what ran does not wait again");
    assert_eq!(fold(state.records()), state);
    assert_eq!(state.triggers().cursors().map(|(_, cursor)| cursor.at_ms).collect::<Vec<_>>(), [2]);

    state.fold(ended(job(1), Err(error(1))));
    assert_eq!(state.triggers().failed().collect::<Vec<_>>(), [job(1)]);
    assert_eq!(fold(state.records()), state);
    state.fold(accepted(job(2), None, None));
    state.fold(Record::Retried { job: job(1), again: job(2) });
    assert_eq!(state.triggers().failed().count(), 0);
    state.fold(Record::Forgotten { job: job(1) });
    state.fold(held(0));
    assert_eq!(waiting(&state), [(2, 3)], "after its time an event is new");

    let mut single = accepted(job(3), Some(20), None);
    if let Record::Accepted(single) = &mut single {
        single.fired = Some(Box::new(fired(0)));
    }
    state.fold(single);
    assert_eq!(waiting(&state), [(1, 3)], "one that ran by itself waits no longer");
}

#[test]
fn answers_expire() {
    let answer = |n: u8, at_ms| Record::Answered {
        key: digest(n),
        request: digest(n),
        at_ms,
        status: 200,
        content_type: String::new(),
        body: Bytes::from(vec![0; 10]),
    };
    let mut state = fold([answer(1, 10), answer(2, 20), answer(1, 30)]);
    assert_eq!(state.answer_bytes(), 20);
    state.expire_answers(15);
    assert!(state.stored_answer(digest(1)).is_none(), "the first answer counts, a second did not renew it");
    assert_eq!(state.answer_bytes(), 10);
}
