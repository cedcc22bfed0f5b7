//! The binary as scripts see it: exit codes, two-line errors, JSON errors, a reader that goes away.

use std::{
    net::TcpListener,
    process::{Command, Output, Stdio},
};

fn fanfold(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanfold"));
    command.args(args).env_remove("FANFOLD_TOKEN").env_remove("FANFOLD_URL").stdin(Stdio::null());
    command
}

fn check(args: &[&str], code: i32, parts: &[&str]) -> Output {
    let output = fanfold(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{args:?} lacks `{part}`: {stderr}");
    }
    output
}

#[test]
fn failures_say_what_and_what_to_do() {
    // A port that nobody listens on: it was free a moment ago, and is not given out again so soon.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let url = format!("http://{free}");
    check(&["ls", "--url", &url], 1, &["cannot connect to", "connection refused", "fix: start a platform"]);
    let output = check(&["ls", "--url", &url, "--json"], 1, &[]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(
        error["error"]["message"].as_str().unwrap().contains(&url) && error["fix"].is_string(),
        "{error}"
    );
    check(&["ls", "--url", "7070"], 2, &["is not the address of a gateway"]);
    check(&["depoly"], 2, &["similar subcommand", "deploy"]);
}

#[test]
fn mistakes_of_up_are_found_before_anything_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    check(&["up", "--dir", path, "--listen", &address], 1, &["cannot serve on", "--listen"]);
    check(&["up", "--dir", path, "--listen", "0.0.0.0:0"], 2, &["no token protects it", "--token-env"]);
    check(&["up", "--dir", path, "--token-env", "FANFOLD_NO_SUCH"], 2, &["FANFOLD_NO_SUCH is not set"]);
    check(&["up", "--dir", "/dev/null/x"], 1, &["fix: choose another --dir"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = fanfold(&["doctor", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}
