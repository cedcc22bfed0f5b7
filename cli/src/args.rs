//! The command line: every command, its options, and their help.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    cluster,
    commands::{ClientCommand, infra},
    doctor,
    failure::Failure,
    new, up,
};

/// Fanfold runs WebAssembly functions over data in object storage.
#[derive(Debug, Parser)]
#[command(name = "fanfold", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the function failed.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    // The client reads FANFOLD_URL itself: clap would take a set variable for an argument and show it in every usage.
    /// Address of the gateway [default: FANFOLD_URL, or http://127.0.0.1:7070]; its token is read from FANFOLD_TOKEN
    #[arg(long, global = true)]
    pub url: Option<String>,

    /// Print JSON: one document, or one line per item of a stream
    #[arg(long, global = true)]
    pub json: bool,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole platform in this process, with its data in one directory
    Up(up::Args),
    /// Run a gateway of a cluster: serves REST, owns jobs, schedules
    Gateway(cluster::GatewayArgs),
    /// Run an executor of a cluster: runs functions for its gateways
    Executor(cluster::ExecutorArgs),
    /// Check this machine and say how to fix what it lacks
    Doctor(doctor::Args),
    /// Prepare what a platform needs
    #[command(subcommand)]
    Infra(infra::Command),
    /// Write a new function's project
    New(new::Args),
    /// The limited child process that compiles one component. Started by the executor.
    #[command(hide = true)]
    CompileComponent,
    /// The process that has an executor's gpu. Started by the executor.
    #[command(hide = true)]
    GpuWorker,
    /// Everything that asks a gateway.
    #[command(flatten)]
    Client(ClientCommand),
}

/// Tells what is wrong with the command line, as JSON where that was asked for; or shows the help or version that
/// was asked for.
pub fn refuse(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !json {
        error.exit();
    }
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
    Failure::usage(what.trim(), "`fanfold help COMMAND` shows how to call it").report(json)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, error::ErrorKind};

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_are_understood() {
        for line in [
            "fanfold up --dir d --listen 127.0.0.1:0 --slots 2 --memory 4GiB --json",
            "fanfold gateway --store s3://bucket/prefix --name g1 --peer 127.0.0.1:0 --redis redis://127.0.0.1:6379",
            "fanfold executor --store s3://bucket/prefix --gateway 127.0.0.1:7071 --slots 2 --memory 1GiB",
            "fanfold doctor --dir d",
            "fanfold infra bootstrap --store s3://bucket/prefix --endpoint http://127.0.0.1:9000",
            "fanfold new hello --template task",
            "fanfold deploy functions/echo --component echo.wasm",
            "fanfold deploy --build",
            "fanfold ls --json",
            "fanfold describe echo",
            "fanfold invoke echo:prod --data hello --arg a --arg=-b",
            "fanfold invoke echo --async --wait --file -",
            "fanfold logs -f 01890a5d-ac96-774b-bcce-b302099a8057",
            "fanfold alias echo prod 3fa2bc=90 77aa01=10",
            "fanfold rollback echo",
            "fanfold rm echo",
            "fanfold job run wordcount --input {} --json",
            "fanfold job show 01890a5d-ac96-774b-bcce-b302099a8057 --cost",
            "fanfold job show 01890a5d-ac96-774b-bcce-b302099a8057 --timeline job.svg",
            "fanfold job graph 01890a5d-ac96-774b-bcce-b302099a8057 --summary",
            "fanfold job graph 01890a5d-ac96-774b-bcce-b302099a8057 --format dot",
            "fanfold top --once --json",
            "fanfold object put --recursive dir sources/",
            "fanfold object get a/b -o file",
            "fanfold object rm a b",
            "fanfold part lineage 00000000000000000000000000000001.0",
            "fanfold dead-letters retry 01890a5d-ac96-774b-bcce-b302099a8057",
            "fanfold trigger add photos --function inbox --prefix inbox/ --suffix .jpg --batch 100 --partial --input manifest",
            "fanfold object watch ./photos inbox/",
            "fanfold trigger add calm --function echo --filter type=a --concurrency 2 --ordering-key subject",
            "fanfold dead-letters show 01890a5d-ac96-774b-bcce-b302099a8057 --input input.json",
            "fanfold dead-letters rm --retried",
            "fanfold trigger add alarm --function notify --after sort --on failed",
            "fanfold trigger add told --function echo --bucket photos --queue https://sqs.eu-central-1.amazonaws.com/1/q --region eu-central-1",
            "fanfold trigger add entries --function order --stream orders --redis redis://127.0.0.1:6379",
            "fanfold trigger add nightly --function wordcount --cron @daily --timezone Europe/Berlin",
            "fanfold trigger add orders --function order --filter type=com.example.* --filter subject=a",
            "fanfold trigger add any --file trigger.toml",
            "fanfold trigger test photos --event event.json",
            "fanfold --url http://h:1 ls",
        ] {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    #[test]
    fn mistakes_are_refused_before_anything_happens() {
        for (line, kind) in [
            ("fanfold infra bootstrap --store ftp://x", ErrorKind::ValueValidation),
            ("fanfold up", ErrorKind::MissingRequiredArgument),
            ("fanfold gateway --store s3://bucket --name G/1", ErrorKind::ValueValidation),
            ("fanfold executor --store s3://bucket", ErrorKind::MissingRequiredArgument),
            ("fanfold up --dir d --slots 0", ErrorKind::ValueValidation),
            ("fanfold up --dir d --memory lots", ErrorKind::ValueValidation),
            ("fanfold logs 17", ErrorKind::ValueValidation),
            ("fanfold part get abc", ErrorKind::ValueValidation),
            ("fanfold invoke echo --data a --file b", ErrorKind::ArgumentConflict),
            ("fanfold top --interval 0", ErrorKind::ValueValidation),
            ("fanfold invoke echo --wait", ErrorKind::MissingRequiredArgument),
            ("fanfold new hello --template cobol", ErrorKind::InvalidValue),
            ("fanfold trigger add photos --file a --prefix in/", ErrorKind::ArgumentConflict),
            ("fanfold trigger add beat --every 5m --cron daily", ErrorKind::ArgumentConflict),
            ("fanfold depoly", ErrorKind::InvalidSubcommand),
        ] {
            assert_eq!(parse(line).map(|_| ()).unwrap_err().kind(), kind, "{line}");
        }
    }
}
