//! What to do about each failure that the platform names.

use fanfold_protocol::{Code, Kind};

/// Whether it was the function that failed, not the platform, and not the request before anything ran.
pub fn is_guests_fault(kind: Kind, code: Code) -> bool {
    matches!(kind, Kind::Guest | Kind::Limit) || code == Code::ErrorReturned
}

/// The next step.
pub fn fix(code: Code) -> &'static str {
    match code {
        Code::Name => "choose another name",
        Code::Manifest => "correct fanfold.toml; docs/functions.md lists its keys",
        Code::NotWasm | Code::MalformedComponent => {
            "build it with `cargo build --release --target wasm32-wasip2`, or deploy with --build"
        }
        Code::MissingImports => "build it against WASI 0.2 and fanfold:function only",
        Code::NoExport => "export wasi:http/incoming-handler, wasi:cli/run or fanfold:function/handler",
        Code::ComponentTooLarge => "set `strip = true` and `opt-level = \"s\"` in the release profile",
        Code::BodyTooLarge => "put the data in as an object (`fanfold object put`) and pass its key",
        Code::Method => "call it with another method; docs/rest.md lists them",
        Code::RequestTimeout => "send the request faster, or in smaller parts",
        Code::Request | Code::Call => "correct the request; `fanfold help COMMAND` shows how",
        Code::Certificate => "look at the file it names; docs/tls.md shows how to make certificates",
        Code::Gpu => "correct the call that the message names; docs/gpu.md has the rules",
        Code::Shader => "mend the shader that the message names, or make it smaller",
        Code::GpuAdapter => {
            "set gpu.software = \"allow\" in fanfold.toml, or start an executor where there is a gpu"
        }
        Code::Trigger => "`fanfold trigger ls` lists triggers; docs/triggers.md lists their keys",
        Code::Event => "docs/triggers.md shows what events look like",
        Code::Token => "put the gateway's token into FANFOLD_TOKEN",
        Code::Egress => "add the origin to egress.allow in fanfold.toml",
        Code::Function => "`fanfold ls` lists what is deployed",
        Code::Version => "`fanfold describe NAME` lists versions and aliases",
        Code::Invocation => "`fanfold job ls --all` lists those that are known",
        Code::Partition => "a partition lives as long as something refers to it; run the job again",
        Code::Object => "`fanfold object ls` lists objects",
        Code::Route => "check --path and FANFOLD_URL, and that platform and CLI are of the same version",
        Code::DeadLetter => "`fanfold dead-letters ls` lists them",
        Code::Fenced => "another gateway has taken this directory over; use that one",
        Code::DirectoryInUse => "stop the other platform, or give this one its own --dir",
        Code::IdempotencyKey => "use a new key for a new request",
        Code::AlreadyFinished => "nothing is left to do",
        Code::NotFinished => "ask again when it has ended, or wait with `fanfold job watch ID`",
        Code::Precondition => "look at what is there now, then repeat",
        Code::QueueFull => "try again later, or raise concurrency in fanfold.toml",
        Code::Memory => "try again later, or start the platform with more --memory",
        Code::Draining => "the platform is stopping; try again when it is back",
        Code::Trap | Code::ExitStatus => "mend the function",
        Code::ErrorReturned => "correct the input, or mend the function",
        Code::MalformedResponse => "mend the function; docs/functions.md says what it may answer",
        Code::NonDeterministic => "remove what differs between runs, or set deterministic = false",
        Code::Timeout => "raise `timeout` in fanfold.toml",
        Code::OutOfMemory => "raise resources.memory (or memory_max) in fanfold.toml",
        Code::StackOverflow => "recurse less deeply",
        Code::LogOverflow => "log less: 1 MiB is kept per attempt",
        Code::OutputTooLarge => "return less, or write an object or partition",
        Code::Compile => "make the component smaller, or its functions shorter",
        Code::GpuMemory => "use smaller buffers, or drop those that are no longer needed",
        Code::GpuTime => "submit less work at a time, or look for a loop without an end in the shader",
        Code::GpuLost => "run it again; the platform's log has the last words of the gpu's process",
        Code::Deadline => "give the task a later deadline",
        Code::ExecutorLost | Code::PartitionLost => "run it again",
        Code::Corrupt => "restore the data from its source; the platform's log names the file",
        Code::Cancelled => "run it again if that was not meant",
        Code::Storage => "look at the platform's log; its directory may be unreachable",
        Code::Protocol => "run the same release of fanfold in every process of the cluster",
        Code::Unreachable => {
            "look whether that process runs, and whether its address can be reached from here"
        }
        Code::DiskFull => "free space on the platform's disk",
        Code::Internal => "look at the platform's log and report this",
    }
}
