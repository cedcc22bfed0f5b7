//! `fanfold job`: batch jobs from start to bill.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use clap::Subcommand;
use fanfold_client::{
    Client,
    rest::{JobRequest, JobView},
};
use fanfold_protocol::JobId;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use crate::{
    commands::{
        job_graph::{self, Format},
        job_input::Given,
        job_view,
        job_watch::{self, Show},
        save::Target,
        timeline,
    },
    failure::Failure,
    output::{Output, note},
};

/// `job`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a job and watch it to its end
    Run(Run),
    /// List jobs, newest first
    Ls {
        /// At most this many
        #[arg(short = 'n', long, default_value_t = 20)]
        limit: usize,
        /// All invocations, not only those of functions that call others
        #[arg(short, long)]
        all: bool,
    },
    /// Show where a job stands
    Show {
        /// The job
        id: JobId,
        /// Show its bill
        #[arg(long)]
        cost: bool,
        /// Draw its tasks over time, by executor, into this SVG file (`-`: print it)
        #[arg(long, value_name = "FILE", conflicts_with = "cost")]
        timeline: Option<PathBuf>,
    },
    /// Watch a job to its end, stage by stage
    Watch {
        /// The job
        id: JobId,
    },
    /// Stop a job
    Cancel {
        /// The job
        id: JobId,
    },
    /// Read the output of a job that has succeeded
    Output {
        /// The job
        id: JobId,
        #[command(flatten)]
        target: Target,
    },
    /// Show a job's tasks
    Graph {
        /// The job
        id: JobId,
        /// One line per stage instead of one per task
        #[arg(long, conflicts_with = "format")]
        summary: bool,
        /// How to print it: a table, a graph for Graphviz, or JSON
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

/// `job run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples: fanfold job run wordcount --input '{\"prefix\": \"texts/\", \"top\": 10}'\n          fanfold job run sort --input in/ --output out/ --reducers 48"
)]
pub struct Run {
    /// NAME, NAME:ALIAS or NAME:VERSION
    function: String,
    #[command(flatten)]
    pub(super) input: Given,
    /// Which entry of the function
    #[arg(long, default_value = "")]
    entry: String,
    /// Print the id and do not wait
    #[arg(long)]
    detach: bool,
}

/// Runs one of them.
pub async fn run(client: &Client, command: Command, out: Output) -> Result<(), Failure> {
    match command {
        Command::Run(args) => start(client, args, out).await,
        Command::Ls { limit, all } => {
            let jobs: Vec<JobView> = match all {
                true => client.invocations().take(limit).try_collect().await?,
                false => client.jobs().take(limit).try_collect().await?,
            };
            out.print(&jobs, |jobs| job_view::listing(jobs))
        }
        Command::Show { id, timeline: Some(path), .. } => {
            let invocation = client.invocation(id);
            let (view, graph) = (invocation.status().await?, invocation.graph().await?);
            timeline::write(&view, &graph, &path, out)
        }
        Command::Show { id, cost: true, .. } => {
            out.print(&client.invocation(id).cost().await?, job_view::bill)
        }
        Command::Show { id, .. } => out.print(&client.invocation(id).status().await?, job_view::details),
        Command::Watch { id } => watch(&client.invocation(id), out).await,
        Command::Cancel { id } => {
            let invocation = client.invocation(id);
            invocation.cancel().await?;
            out.print(&invocation.wait().await?, |view| format!("{id} {}", job_view::state(view.state)))
        }
        Command::Output { id, target } => {
            let body = client.invocation(id).output().await?;
            target.save("output", body, None, out).await.map(drop)
        }
        Command::Graph { id, summary, format } => {
            let graph = client.invocation(id).graph().await?;
            match (summary, out.json, format) {
                (true, true, _) => out.json(&job_view::stages(&graph)),
                (true, false, _) => out.text(job_view::stages_table(&graph)),
                (false, _, Format::Dot) => out.text(job_graph::dot(&graph)),
                (false, true, _) | (false, _, Format::Json) => out.json(&graph),
                (false, false, Format::Text) => out.text(job_graph::text(&graph)),
            }
        }
    }
}

async fn start(client: &Client, args: Run, out: Output) -> Result<(), Failure> {
    let input = args.input.read().await?;
    let request = JobRequest { function: args.function, entry: args.entry, input };
    let invocation = client.run_job(&request).await?;
    let id = invocation.id();
    if args.detach {
        return out.print(&json!({ "id": id }), |_| id.to_string());
    }
    if !out.json {
        note(format_args!("job {id}"));
    }
    let show = match out.json {
        true => Show::Nothing,
        false if io::stderr().is_terminal() => Show::Bars,
        false => Show::Notes,
    };
    let view = job_watch::watch(&invocation, show, out).await?;
    match out.json {
        true => out.json(&view)?,
        false => note(job_view::summary(&view)),
    }
    job_watch::ended_well(&invocation, &view)?;
    // A program reads the output with `job output`; a person wants to see it now.
    if !out.json && view.output_bytes.unwrap_or(0) > 0 {
        out.stream(invocation.output().await?).await?;
    }
    Ok(())
}

/// Shows a job until it has ended; one that did not succeed is a failure.
async fn watch(invocation: &fanfold_client::Invocation, out: Output) -> Result<(), Failure> {
    let show = match out.json {
        true => Show::Json,
        false if io::stderr().is_terminal() => Show::Bars,
        false => Show::Lines,
    };
    let view = job_watch::watch(invocation, show, out).await?;
    if !out.json {
        note(job_view::summary(&view));
    }
    job_watch::ended_well(invocation, &view)
}
