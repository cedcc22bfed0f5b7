//! `fanfold invoke`: one call, now or later.

use fanfold_client::{Call, Client, Head, Reply, Streamed};
use serde_json::{Value, json};

use crate::{
    commands::{input::Input, save::Target},
    failure::Failure,
    output::{Output, note},
    progress, units,
};

/// `invoke`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fanfold invoke echo --data hello
  fanfold invoke thumbnail --file photo.jpg -o small.jpg
  fanfold invoke api --method GET --path '/users?page=2'
  fanfold invoke wordcount --async --wait --data '{\"prefix\":\"texts/\"}'")]
pub struct Args {
    /// NAME, NAME:ALIAS or NAME:VERSION
    function: String,
    #[command(flatten)]
    input: Input,
    /// Media type of the body
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Which entry of a task function
    #[arg(long)]
    entry: Option<String>,
    /// An argument of a program, for synchronous calls; repeat for more
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    args: Vec<String>,
    /// The method, for HTTP functions [default: POST; GET with --path and no body]
    #[arg(short = 'X', long)]
    method: Option<http::Method>,
    /// Path and query below the function, for HTTP functions
    #[arg(long)]
    path: Option<String>,
    /// A header, as `name: value`; repeat for more
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Run it once and answer alike, however often this is sent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Record the call and run it later; prints its id
    #[arg(long = "async", conflicts_with_all = ["method", "path", "args"])]
    later: bool,
    /// With --async: wait for it and print its output
    #[arg(long, requires = "later")]
    wait: bool,
    /// Tell on stderr how long each step took
    #[arg(long, conflicts_with = "later")]
    timing: bool,
    #[command(flatten)]
    target: Target,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as `name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Runs it.
pub async fn run(client: &Client, args: Args, out: Output) -> Result<(), Failure> {
    let call = build(client, &args).await?;
    if args.later {
        return submit(call, &args, out).await;
    }
    if out.json && args.target.path().is_none() {
        let reply = call.send().await?;
        out.json(&as_json(&reply)?)?;
        return judge(&reply.head);
    }
    let Streamed { head, body } = call.stream().await?;
    let bytes = args.target.save("reply", body, None, out).await?;
    if out.json {
        let mut told = head_as_json(&head);
        told["file"] = json!(args.target.path());
        told["bytes"] = json!(bytes);
        out.json(&told)?;
    } else if args.timing {
        note(steps(&head));
    }
    judge(&head)
}

/// Sets one option of a call.
type Setter = fn(Call, &str) -> Call;

async fn build(client: &Client, args: &Args) -> Result<Call, Failure> {
    let body = args.input.body().await?;
    let method = match (&args.method, &args.path, &body) {
        (Some(method), _, _) => method.clone(),
        (None, Some(_), None) => http::Method::GET,
        (None, _, _) => http::Method::POST,
    };
    let mut call = client.call(&args.function).method(method);
    if let Some(body) = body {
        call = call.body(body);
    }
    call = args.args.iter().fold(call, |call, arg| call.arg(arg));
    call = args.headers.iter().fold(call, |call, (name, value)| call.header(name, value));
    let options: [(&Option<String>, Setter); 4] = [
        (&args.content_type, |call, media_type| call.content_type(media_type)),
        (&args.entry, |call, entry| call.entry(entry)),
        (&args.path, |call, path| call.path(path)),
        (&args.idempotency_key, |call, key| call.idempotency_key(key)),
    ];
    let given = options.iter().filter_map(|(value, set)| Some((value.as_deref()?, set)));
    Ok(given.fold(call, |call, (value, set)| set(call, value)))
}

async fn submit(call: Call, args: &Args, out: Output) -> Result<(), Failure> {
    let invocation = call.submit().await?;
    let id = invocation.id();
    if !args.wait {
        return out.print(&json!({ "id": id }), |_| id.to_string());
    }
    let bar = progress::spinner(&format!("{id} runs"));
    let ended = invocation.result().await;
    bar.finish_and_clear();
    let body = ended?;
    if out.json && args.target.path().is_none() {
        return out.json(&json!({ "id": id, "body": body_as_json(&body)? }));
    }
    let body = futures::stream::once(async { Ok(body) });
    let bytes = args.target.save("output", Box::pin(body), None, out).await?;
    match out.json {
        true => out.json(&json!({ "id": id, "file": args.target.path(), "bytes": bytes })),
        false => Ok(()),
    }
}

/// A function that answers 4xx or 5xx has failed, as far as a script is concerned.
fn judge(head: &Head) -> Result<(), Failure> {
    if !head.status.is_client_error() && !head.status.is_server_error() {
        return Ok(());
    }
    let fix = match head.invocation {
        Some(id) => {
            format!("that is the function's own answer; `fanfold logs {id}` shows what it logged, if it did")
        }
        None => "that is the function's own answer".to_owned(),
    };
    Err(Failure::guest(format!("the function answered {}", head.status), fix))
}

fn as_json(reply: &Reply) -> Result<Value, Failure> {
    let mut told = head_as_json(&reply.head);
    told["body"] = body_as_json(&reply.body)?;
    Ok(told)
}

fn head_as_json(head: &Head) -> Value {
    let Head { status, headers, version, invocation, timing } = head;
    let headers = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    json!({
        "status": status.as_u16(),
        "version": version,
        "invocation": invocation,
        "headers": headers.collect::<serde_json::Map<_, _>>(),
        "timing": {
            "cold": timing.cold,
            "queue_us": timing.queue_us,
            "compile_us": timing.compile_us,
            "instantiate_us": timing.instantiate_us,
            "run_us": timing.run_us,
        },
    })
}

/// A body that is JSON as it is, any other text as a string.
fn body_as_json(body: &[u8]) -> Result<Value, Failure> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body);
    let binary =
        |_| Failure::new("the function ran, but JSON cannot hold its answer: it is not text", "add -o FILE");
    text.map(Value::from).map_err(binary)
}

fn steps(head: &Head) -> String {
    let timing = &head.timing;
    let steps = [
        ("queue", timing.queue_us),
        ("compile", timing.compile_us),
        ("instantiate", timing.instantiate_us),
        ("run", timing.run_us),
    ];
    let told = steps.iter().filter_map(|(name, us)| Some(format!("{name} {}", units::duration_us((*us)?))));
    let start = timing.cold.map(|cold| if cold { "cold" } else { "warm" }.to_owned());
    let version = head.version.map(|version| format!("version {}", version.short()));
    version.into_iter().chain(start).chain(told).collect::<Vec<_>>().join(", ")
}
