//! The scheduled lane as its owner sees it: messages in, messages out, over guests that are real components.

mod common;

use common::{Fixture, inline, owner::Owner, root};
use fanfold_executor::{Config, peer::serve::Server};
use fanfold_protocol::{
    Code, Error, ExecutorId, Kind, PartitionId,
    call::Durability,
    direct::DirectLane as _,
    limit,
    link::Peer,
    message::{Argument, Assignment, FromExecutor, ToExecutor},
    value::{Output, Stored, Value},
};
use fanfold_store::Store;
use http_body_util::{BodyExt as _, Full};

/// An owner over the guest, and a root task of it.
async fn start(entry: &str, args: Vec<Value>) -> (Owner, Assignment) {
    let fixture = Fixture::with_guest().await;
    let assignment = root(fixture.function.version, entry, args);
    (Owner::new(fixture.session, fixture.events), assignment)
}

async fn run(entry: &str, args: Vec<Value>) -> Result<Vec<Output>, Error> {
    let (mut owner, assignment) = start(entry, args).await;
    owner.run(assignment).await.result
}

fn stored(output: &Output) -> &Stored {
    match output {
        Output::Stored(stored) => stored,
        other => panic!("not stored: {other:?}"),
    }
}

#[tokio::test]
async fn a_task_returns_what_it_was_given() {
    let outputs = run("echo", vec![inline(b"hello")]).await.unwrap();
    assert_eq!(common::bytes(&outputs[0]), b"hello");
}

#[tokio::test]
async fn a_driver_submits_waits_gets_and_drops() {
    let (mut owner, assignment) = start("fan", vec![inline(&[100, 0])]).await;
    owner.heard = Some(Vec::new());
    let end = owner.run(assignment.clone()).await;
    assert_eq!(common::bytes(&end.result.unwrap()[0]), [100, 0]);
    assert!(
        end.usage.cpu_us > 0 && end.usage.run_us >= end.usage.cpu_us && end.usage.memory_peak >= 64 << 10
    );
    let heard = owner.heard.unwrap();
    let of_root = |message: &&FromExecutor| match message {
        FromExecutor::Submit { attempt, .. } | FromExecutor::Wait { attempt, .. } => {
            *attempt == assignment.attempt
        }
        _ => false,
    };
    let said: Vec<_> = heard.iter().filter(of_root).collect();
    assert_eq!(said.len(), 101, "100 calls, then one wait: their answers are kept for `get`");
    let indices = said[..100].iter().map(|message| match message {
        FromExecutor::Submit { index, .. } => *index,
        other => panic!("{other:?}"),
    });
    assert!(indices.eq(0..100));
    let dropped: usize = heard
        .iter()
        .map(|message| if let FromExecutor::Drop { futures, .. } = message { futures.len() } else { 0 })
        .sum();
    assert!((limit::DROPS_HELD_MAX..=100).contains(&dropped), "{dropped}");
    let finished = heard.iter().filter(|message| matches!(message, FromExecutor::Finished { .. })).count();
    assert_eq!(finished, 101);
}

#[tokio::test]
async fn only_answers_that_could_differ_are_numbered_for_the_record() {
    let (mut owner, assignment) = start("any", vec![inline(b"x")]).await;
    owner.heard = Some(Vec::new());
    let root = assignment.attempt;
    assert!(!common::bytes(&owner.run(assignment).await.result.unwrap()[0]).is_empty());
    let waits = owner.heard.unwrap().into_iter().filter_map(|message| match message {
        FromExecutor::Wait { attempt, wait, count, .. } if attempt == root => Some((wait, count)),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [(1 << 32, 1)]);
}

#[tokio::test]
async fn partitions_pass_from_task_to_task() {
    let fixture = Fixture::with_guest().await;
    let version = fixture.function.version;
    let mut owner = Owner::new(fixture.session, fixture.events);
    let written = owner.run(root(version, "write", vec![inline(&[3])])).await;
    let output = written.result.unwrap().remove(0);
    let partition = stored(&output);
    assert_eq!((partition.meta.bytes, partition.meta.blocks, partition.durable), (3 << 20, 3, false));
    assert_eq!(written.usage.bytes_written, 3 << 20);
    let argument =
        Argument { value: Value::Partition(partition.key.partition), output: Some(output.clone()) };
    let mut reader = root(version, "read", vec![]);
    reader.args = vec![argument];
    let read = owner.run(reader.clone()).await;
    let mut expected = (3_u64 << 20).to_le_bytes().to_vec();
    expected.extend([0, 1, 2]);
    assert_eq!(common::bytes(&read.result.unwrap()[0]), expected);
    assert_eq!(read.usage.bytes_read, 3 << 20);
    let mut returns = root(version, "echo", vec![]);
    returns.args = reader.args;
    let returned = owner.run(returns).await.result.unwrap();
    assert_eq!(returned, [Output::Alias(Box::new(Value::Partition(partition.key.partition)))]);
}

#[tokio::test]
async fn a_lost_copy_is_made_again_behind_the_guests_back() {
    let mut fixture = Fixture::with_guest().await;
    let version = fixture.function.version;
    fixture.session.send(ToExecutor::Run(Box::new(root(version, "write", vec![inline(&[2])])))).unwrap();
    let output = finished(fixture.events.recv().await).unwrap().remove(0);
    // The reader is told of a copy that nobody has; of the good one only when it asks.
    let mut gone = stored(&output).clone();
    gone.key.attempt += 1;
    let id = gone.key.partition;
    let mut reader = root(version, "read", vec![]);
    reader.args = vec![Argument { value: Value::Partition(id), output: Some(Output::Stored(gone.clone())) }];
    let attempt = reader.attempt;
    fixture.session.send(ToExecutor::Run(Box::new(reader))).unwrap();
    assert_eq!(fixture.events.recv().await, Some(FromExecutor::Lost { attempt, key: gone.key }));
    let Some(FromExecutor::Wait { wait, on, .. }) = fixture.events.recv().await else { panic!("no wait") };
    assert_eq!(on, [id]);
    let woken = ToExecutor::Woken { attempt, wait, ready: vec![(0, Ok(output))] };
    fixture.session.send(woken).unwrap();
    let outputs = finished(fixture.events.recv().await).unwrap();
    assert_eq!(common::bytes(&outputs[0])[8..], [0, 1]);
}

fn finished(message: Option<FromExecutor>) -> Result<Vec<Output>, Error> {
    match message {
        Some(FromExecutor::Finished { result, .. }) => result,
        other => panic!("not finished: {other:?}"),
    }
}

#[tokio::test]
async fn a_put_partition_can_be_passed_on() {
    let outputs = run("put", vec![inline(b"passed by reference")]).await.unwrap();
    assert_eq!(common::bytes(&outputs[0]), b"passed by reference");
}

#[tokio::test]
async fn eager_outputs_are_durable_before_they_are_announced() {
    let fixture = Fixture::with_guest().await;
    let mut owner = Owner::new(fixture.session, fixture.events);
    let mut assignment = root(fixture.function.version, "big", vec![]);
    assignment.durability = Durability::Eager;
    let outputs = owner.run(assignment).await.result.unwrap();
    let stored = stored(&outputs[0]);
    assert!(stored.durable && stored.meta.bytes == 100_000);
    let index = fixture.store.partitions().index(stored.key).await.unwrap();
    assert_eq!(index.meta(), stored.meta);
}

#[tokio::test]
async fn a_guests_own_mistakes_are_its_own() {
    for (entry, kind, code, message) in [
        ("trap", Kind::Guest, Code::Trap, "unreachable"),
        ("nothing", Kind::Guest, Code::MalformedResponse, "returned 0 values where 1 were asked for"),
        // It says `platform`, which is not for it to say.
        ("x", Kind::Guest, Code::ErrorReturned, "it is what it is"),
        // What the host said to it, it may say to its caller: nobody can tell whose mistake it was.
        ("stranger", Kind::Invalid, Code::ErrorReturned, "is not held by this task"),
        ("2", Kind::Conflict, Code::ErrorReturned, "output 0 is being written already"),
        ("generate", Kind::Invalid, Code::ErrorReturned, "only a generator yields"),
    ] {
        let error = run(entry, vec![inline(&[1])]).await.unwrap_err();
        assert_eq!((error.kind, error.code), (kind, code), "{entry}: {error}");
        assert!(error.message.contains(message), "{entry}: {error}");
    }
}

#[tokio::test]
async fn a_computing_guest_is_stopped_and_timed_out() {
    let mut fixture = Fixture::with_guest().await;
    let mut assignment = root(fixture.function.version, "loop", vec![]);
    assignment.timeout_ms = 20;
    fixture.session.send(ToExecutor::Run(Box::new(assignment.clone()))).unwrap();
    let error = finished(fixture.events.recv().await).unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Limit, Code::Timeout));
    assignment.attempt.number = 2;
    assignment.timeout_ms = 60_000;
    let attempt = assignment.attempt;
    fixture.session.send(ToExecutor::Run(Box::new(assignment))).unwrap();
    let why = Error::new(Kind::Platform, Code::Cancelled, "somebody changed their mind");
    fixture.session.send(ToExecutor::Stop { attempt, error: why.clone() }).unwrap();
    assert_eq!(finished(fixture.events.recv().await), Err(why));
}

#[tokio::test]
async fn generators_are_held_back_until_somebody_takes() {
    let mut fixture = Fixture::with_guest().await;
    let mut assignment = root(fixture.function.version, "generate", vec![inline(&[20])]);
    (assignment.generator, assignment.outputs) = (true, 0);
    let attempt = assignment.attempt;
    fixture.session.send(ToExecutor::Run(Box::new(assignment))).unwrap();
    for n in 0..limit::GENERATOR_AHEAD_MAX {
        let message = fixture.events.recv().await;
        assert!(matches!(message, Some(FromExecutor::Yield { output, .. }) if output == n), "{message:?}");
    }
    assert!(fixture.events.try_recv().is_err());
    fixture.session.send(ToExecutor::MayYield { attempt, below: 20 }).unwrap();
    for n in limit::GENERATOR_AHEAD_MAX..20 {
        let message = fixture.events.recv().await;
        assert!(matches!(message, Some(FromExecutor::Yield { output, .. }) if output == n), "{message:?}");
    }
    assert_eq!(finished(fixture.events.recv().await), Ok(vec![]));
}

#[tokio::test]
async fn what_an_attempt_stored_goes_with_it() {
    let config = Config { cache_memory: 4 << 20, ..Config::default() };
    let fixture = Fixture::start(config, Store::in_memory(), common::guest()).await;
    let mut owner = Owner::new(fixture.session.clone(), fixture.events);
    // More than the cache holds, one after the other: each is freed before the next, and none is uploaded.
    for _ in 0..5 {
        let end = owner.run(root(fixture.function.version, "write", vec![inline(&[3])])).await;
        let key = stored(&end.result.unwrap()[0]).key;
        fixture.session.send(ToExecutor::Free(vec![key])).unwrap();
    }
    let kept = owner.run(root(fixture.function.version, "write", vec![inline(&[3])])).await;
    // Another one does not fit beside it: the first is written to the store to make room.
    let next = owner.run(root(fixture.function.version, "write", vec![inline(&[3])])).await;
    let keys = [kept, next].map(|end| stored(&end.result.unwrap()[0]).key);
    assert!(fixture.store.partitions().index(keys[0]).await.is_ok());
    let id = PartitionId { task: keys[0].partition.task, output: 0 };
    assert_eq!(id, keys[0].partition);
}

#[tokio::test]
async fn stopping_ends_what_runs_and_says_so() {
    let mut fixture = Fixture::with_guest().await;
    let assignment = root(fixture.function.version, "loop", vec![]);
    fixture.session.send(ToExecutor::Run(Box::new(assignment.clone()))).unwrap();
    fixture.executor.clone().stop().await;
    assert_eq!(finished(fixture.events.recv().await).unwrap_err().code, Code::Draining);
    let late = fixture.session.send(ToExecutor::Run(Box::new(assignment)));
    assert_eq!(late.unwrap_err().code, Code::Draining);
}

#[tokio::test]
async fn a_task_function_is_called_without_a_job() {
    let fixture = Fixture::with_guest().await;
    let input = bytes::Bytes::from(vec![7; 300_000]);
    let body = Full::new(input.clone()).map_err(|never| match never {}).boxed_unsync();
    let reply = fixture.executor.call(fixture.function, http::Request::new(body)).await.unwrap();
    // Longer than what a job would pass inline: here it is answered and stored nowhere.
    assert_eq!(reply.response.into_body().collect().await.unwrap().to_bytes(), input);
}

#[tokio::test]
async fn a_partition_is_read_from_the_executor_that_made_it() {
    let store = Store::in_memory();
    let mut maker = Fixture::start(Config::default(), store.clone(), common::guest()).await;
    let config = Config { executor: ExecutorId(2), ..Config::default() };
    let mut reader = Fixture::start(config, store.clone(), common::guest()).await;
    let version = maker.function.version;
    let mut write = root(version, "write", vec![inline(&[3])]);
    write.durability = Durability::None;
    maker.session.send(ToExecutor::Run(Box::new(write))).unwrap();
    let output = finished(maker.events.recv().await).unwrap().remove(0);
    let made = stored(&output).clone();
    let read = |output: Output| {
        let mut read = root(version, "read", vec![]);
        read.args = vec![Argument { value: Value::Partition(made.key.partition), output: Some(output) }];
        read
    };

    // Nobody said where the maker is, and the store does not have it.
    let blind = read(output.clone());
    reader.session.send(ToExecutor::Run(Box::new(blind))).unwrap();
    let mut lost = reader.events.recv().await;
    if let Some(FromExecutor::Spent { spent, .. }) = &lost {
        // It was looked for ahead of the guest, too.
        assert_eq!(spent.requests.get, 1);
        lost = reader.events.recv().await;
    }
    assert!(matches!(lost, Some(FromExecutor::Lost { key, .. }) if key == made.key), "{lost:?}");

    let server = Server::start("127.0.0.1:0".parse().unwrap(), maker.executor.clone()).await.unwrap();
    let peer = Peer { executor: ExecutorId(1), address: Some(server.address().to_string()) };
    reader.session.send(ToExecutor::Peers(vec![peer])).unwrap();
    let seeing = read(output);
    let attempt = seeing.attempt;
    reader.session.send(ToExecutor::Run(Box::new(seeing))).unwrap();
    let outputs = loop {
        match reader.events.recv().await {
            Some(FromExecutor::Finished { attempt: ended, result, .. }) if ended == attempt => {
                break result.unwrap();
            }
            Some(FromExecutor::Spent { .. }) => {}
            // The first reader waits for an owner that does not answer.
            Some(FromExecutor::Wait { attempt: other, .. }) if other != attempt => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(common::bytes(&outputs[0])[..8], made.meta.bytes.to_le_bytes());
    assert!(store.partitions().index(made.key).await.is_err(), "it never was in the store");
    server.stop().await;
}
