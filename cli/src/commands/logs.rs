//! `fanfold logs`: what an invocation wrote to stdout, stderr and its log.

use fanfold_client::{Client, Error, LogLine};
use fanfold_protocol::{Code, JobId};
use futures::TryStreamExt as _;

use crate::{failure::Failure, output::Output, table::printable, units};

/// `logs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The invocation or job
    id: JobId,
    /// Go on until it ends
    #[arg(short, long)]
    follow: bool,
}

/// Runs it.
pub async fn run(client: &Client, args: &Args, out: Output) -> Result<(), Failure> {
    let invocation = client.invocation(args.id);
    let mut lines = Box::pin(invocation.log_lines(args.follow).await.map_err(explained)?);
    while let Some(line) = lines.try_next().await? {
        out.print(&line, text)?;
    }
    Ok(())
}

/// What is not known may well have run: of synchronous calls, only logs are kept.
fn explained(error: Error) -> Failure {
    let unknown = error.problem().is_some_and(|problem| problem.code == Code::Invocation);
    let failure = Failure::from(error);
    if !unknown {
        return failure;
    }
    failure.fix(
        "a synchronous call has logs only if it wrote some, and lately; `fanfold job ls --all` lists all others",
    )
}

fn text(line: &LogLine) -> String {
    format!("{:>8}  {:<6}  {}", units::duration_us(line.at_us), line.stream, printable(&line.line))
}
