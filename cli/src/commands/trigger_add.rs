//! `fanfold trigger add`: a definition from options or from a file.

use std::path::PathBuf;

use fanfold_client::Client;
use fanfold_protocol::trigger::Trigger;
use serde_json::{Map, Value, json};

use crate::{failure::Failure, output::Output};

/// `trigger add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fanfold trigger add photos --function inbox --prefix inbox/ --suffix .jpg --batch 100 --partial --input manifest
  fanfold trigger add nightly --function report --cron '30 3 * * *' --timezone Europe/Berlin
  fanfold trigger add orders --function order --filter type=com.example.order.*
  fanfold trigger add alarm --function notify --after sort --on failed")]
#[command(override_usage = "fanfold trigger add [OPTIONS] <NAME> <--file FILE | --function FUNCTION ...>")]
pub struct Args {
    /// Its name
    name: String,
    /// A definition as TOML or JSON, with the keys of `[[trigger]]`, in place of all options below
    #[arg(long, conflicts_with_all = ["Definition"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    definition: Definition,
}

/// The keys of a definition as options. Objects are what it waits for unless a schedule or a filter says otherwise.
#[derive(Debug, clap::Args)]
struct Definition {
    /// What it calls: NAME or NAME:ALIAS
    #[arg(long)]
    function: Option<String>,
    /// Which entry of a task function
    #[arg(long)]
    entry: Option<String>,
    /// Objects whose keys begin so
    #[arg(long)]
    prefix: Option<String>,
    /// Objects whose keys end so
    #[arg(long)]
    suffix: Option<String>,
    /// Objects of this bucket, by its notifications; otherwise the platform's own
    #[arg(long)]
    bucket: Option<String>,
    /// Changes of objects: created, removed; ends of jobs: succeeded, failed
    #[arg(long, value_delimiter = ',')]
    on: Vec<String>,
    /// What the keys begin with that the function writes, for the guard against loops
    #[arg(long)]
    output: Option<String>,
    /// Time between two listings, such as 10m; 0s: none
    #[arg(long)]
    listing: Option<String>,
    /// Fire for objects that are there already, too
    #[arg(long)]
    backfill: bool,
    /// Times: minute, hour, day of month, month, day of week
    #[arg(long, group = "times")]
    cron: Option<String>,
    /// The zone of these times, such as Europe/Berlin
    #[arg(long, requires = "cron")]
    timezone: Option<String>,
    /// Every so often, such as 5m
    #[arg(long, group = "times")]
    every: Option<String>,
    /// Times that were missed: skip, one, all
    #[arg(long, requires = "times")]
    missed: Option<String>,
    /// Times while the run before goes on: skip, wait, allow
    #[arg(long, requires = "times")]
    overlap: Option<String>,
    /// The function's input at these times, as JSON
    #[arg(long, requires = "times")]
    body: Option<String>,
    /// CloudEvents whose attribute is this, or begins so with a * at the end: ATTRIBUTE=VALUE
    #[arg(long, value_parser = parse_filter, conflicts_with = "times")]
    filter: Vec<(String, String)>,
    /// Jobs of this function that end
    #[arg(long, conflicts_with_all = ["times", "filter", "prefix", "suffix", "bucket"])]
    after: Option<String>,
    /// Messages of this SQS-compatible queue: notifications of --bucket, or any events
    #[arg(long, conflicts_with_all = ["times", "after"])]
    queue: Option<String>,
    /// The queue's region
    #[arg(long, requires = "queue")]
    region: Option<String>,
    /// Entries of this Redis stream
    #[arg(long, conflicts_with_all = ["times", "filter", "prefix", "suffix", "bucket", "after", "queue"])]
    stream: Option<String>,
    /// The stream's Redis, as redis://HOST:PORT/DB; otherwise the gateway's own
    #[arg(long, requires = "stream")]
    redis: Option<String>,
    /// Gather up to so many events to one run
    #[arg(long)]
    batch: Option<u32>,
    /// Close a batch when its oldest event is this old, such as 5s
    #[arg(long, requires = "batch")]
    window: Option<String>,
    /// The function's answer says which events of a batch failed
    #[arg(long, requires = "batch")]
    partial: bool,
    /// What the function gets: event, data, manifest
    #[arg(long)]
    input: Option<String>,
    /// The type of the CloudEvents that its answers are, to be taken as events again
    #[arg(long)]
    emits: Option<String>,
    /// At most so many runs at once
    #[arg(long)]
    concurrency: Option<u32>,
    /// Run events with the same value of this attribute one after the other, in order
    #[arg(long, conflicts_with_all = ["times", "batch"])]
    ordering_key: Option<String>,
    /// Let events and times pass
    #[arg(long)]
    paused: bool,
}

fn parse_filter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write ATTRIBUTE=VALUE, such as type=com.example.*")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs it.
pub async fn run(client: &Client, args: Args, out: Output) -> Result<(), Failure> {
    let definition = match &args.file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, &e))?;
            parse(&text)
                .map_err(|why| Failure::usage(format!("{}: {why}", path.display()), "correct the file"))?
        }
        None => args.definition.read()?,
    };
    let trigger = client.set_trigger(&args.name, &definition).await?;
    out.print(&trigger, |trigger| format!("trigger {} calls {}", trigger.name, trigger.definition.function))
}

/// A definition as TOML or JSON, whichever it is.
fn parse(text: &str) -> Result<Trigger, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|e| e.to_string());
    }
    toml::from_str(text).map_err(|e| e.to_string())
}

impl Definition {
    fn read(self) -> Result<Trigger, Failure> {
        let wrong = |why: String| Failure::usage(why, "`fanfold trigger add --help` shows examples");
        let kind = match (&self.cron, &self.every, self.filter.is_empty()) {
            (Some(_), _, _) => "cron",
            (_, Some(_), _) => "interval",
            (_, _, false) => "event",
            _ if self.after.is_some() => "job",
            _ if self.stream.is_some() => "stream",
            _ if self.queue.is_some() && self.bucket.is_none() => "event",
            _ => "objects",
        };
        let mut keys = Map::from_iter([("kind".to_owned(), json!(kind))]);
        let texts = [
            ("function", self.function),
            ("entry", self.entry),
            ("prefix", self.prefix),
            ("suffix", self.suffix),
            ("bucket", self.bucket),
            ("output", self.output),
            ("listing", self.listing),
            ("schedule", self.cron),
            ("timezone", self.timezone),
            ("every", self.every),
            ("missed", self.missed),
            ("overlap", self.overlap),
            ("input", self.input),
            ("emits", self.emits),
            ("ordering_key", self.ordering_key),
            ("after", self.after),
            ("queue", self.queue),
            ("region", self.region),
            ("stream", self.stream),
            ("redis", self.redis),
        ];
        keys.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::String(text?)))));
        if !self.on.is_empty() {
            keys.insert("on".into(), json!(self.on));
        }
        if !self.filter.is_empty() {
            let filter = self.filter.into_iter().map(|(name, value)| (name, Value::String(value)));
            keys.insert("filter".into(), Value::Object(filter.collect()));
        }
        keys.extend(self.concurrency.map(|max| ("concurrency".to_owned(), json!(max))));
        if let Some(body) = self.body {
            let body =
                serde_json::from_str::<Value>(&body).map_err(|e| wrong(format!("--body is no JSON: {e}")))?;
            keys.insert("body".into(), body);
        }
        if let Some(max) = self.batch {
            let window = self.window.map(|window| ("window".to_owned(), Value::String(window)));
            let batch = [("max".to_owned(), json!(max)), ("partial".to_owned(), json!(self.partial))];
            let batch = Map::from_iter(batch.into_iter().chain(window));
            keys.insert("batch".into(), Value::Object(batch));
        }
        keys.extend(
            [("backfill", self.backfill), ("paused", self.paused)].map(|(key, on)| (key.into(), json!(on))),
        );
        serde_json::from_value(Value::Object(keys)).map_err(|e| wrong(e.to_string()))
    }
}
