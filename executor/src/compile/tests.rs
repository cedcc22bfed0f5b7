//! Compilation in its child process, sealing, and damaged compiled code.

use super::*;
use crate::testing;

fn module() -> Bytes {
    wat::parse_str(testing::program("", "call $echo")).unwrap().into()
}

fn shell(script: &str) -> Compiler {
    Compiler::new(vec!["/bin/sh".into(), "-c".into(), script.into()])
}

#[tokio::test]
async fn a_child_answers_as_this_process_would() {
    let child = Compiler::new(testing::compile_child());
    let (far, near) = (child.compile(module()).await.unwrap(), compile_here(&module()).unwrap());
    assert_eq!((&far.admitted, &far.engine), (&near.admitted, &near.engine));
    assert_eq!(far.code, near.code, "compiling is deterministic, or its settings differ");
    for (bytes, code) in [(&b"junk"[..], Code::NotWasm), (&module()[..100], Code::MalformedComponent)] {
        let error = child.compile(Bytes::copy_from_slice(bytes)).await.map(|_| ()).unwrap_err();
        assert_eq!((error.kind, error.code), (Kind::Invalid, code), "{error}");
    }
}

/// Whatever a child does, there is a clear error and nothing hangs.
#[tokio::test]
async fn a_child_that_dies_is_an_error() {
    let fails = async |compiler: Compiler, code: Code, part: &str| {
        let error = compiler.compile(module()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(part), "{error}");
    };
    fails(
        shell("echo memory allocation failed >&2; kill -ABRT $$"),
        Code::Compile,
        "bytes of memory (memory",
    )
    .await;
    fails(shell("kill -XCPU $$"), Code::Compile, "60 s of processor time").await;
    fails(shell("kill -KILL $$"), Code::Compile, "was killed").await;
    fails(shell("exit 7"), Code::Compile, "exit status: 7").await;
    fails(shell("echo nonsense"), Code::Internal, "answer").await;
    fails(shell(":"), Code::Internal, "cut off").await;
    fails(Compiler::new(vec!["/nonexistent/compiler".into()]), Code::Internal, "does not start").await;
    // It would take for ever, and holds its pipes open.
    let slow = Compiler { wall: Duration::from_millis(50), ..shell("exec cat /dev/zero >/dev/null") };
    fails(slow, Code::Compile, "was stopped").await;
}

/// Before it has read anything.
#[tokio::test]
async fn a_child_limits_itself() {
    let argv = testing::compile_child();
    let child = spawn(&argv[0], &argv[1..]).unwrap();
    let limits = format!("/proc/{}/limits", child.id().unwrap());
    let wanted = [
        ("Max cpu time", limit::COMPILE_CPU_SECONDS_MAX),
        ("Max address space", limit::COMPILE_MEMORY_BYTES_MAX),
        ("Max file size", 0),
        ("Max core file size", 0),
    ];
    let holds = |text: &str, (name, max): (&str, u64)| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).all(|value| value == max.to_string())
    };
    let set = async {
        while !wanted.iter().all(|limit| holds(&std::fs::read_to_string(&limits).unwrap(), *limit)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), set).await.expect("the child never limited itself");
}
