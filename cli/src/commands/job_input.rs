//! The input of `job run`: JSON as a whole, or fields given as options of their own.
//!
//! `job run sort --input in/ --output out/ --reducers 48` is the same as `--data '{"input": "in/", "output": "out/",
//! "reducers": 48}'`. Options that `job run` does not have are fields; clap has no word for that, so [`expand`] turns
//! them into `--set NAME=VALUE`, which it has, before it sees the line.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{Arg, ArgAction, CommandFactory as _};
use serde_json::{Map, Value};

use crate::{args::Cli, commands::input, failure::Failure};

/// What of the input the command line has.
#[derive(Debug, clap::Args)]
pub struct Given {
    /// The input as JSON, @FILE to read it from a file, - to read it from stdin
    #[arg(short, long, value_name = "JSON", conflicts_with = "input")]
    data: Option<String>,
    /// The same; but text that is no JSON is the field `input`
    #[arg(short, long, value_name = "JSON|TEXT")]
    input: Option<String>,
    /// A field of the input. Any option that is not listed here is one: `--reducers 48` is `--set reducers=48`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = field)]
    fields: Vec<(String, Value)>,
}

impl Given {
    /// The input; `null` where nothing was given.
    pub async fn read(self) -> Result<Value, Failure> {
        let mut fields = Map::new();
        for (name, value) in self.fields {
            if fields.insert(name.clone(), value).is_some() {
                return Err(Failure::usage(format!("`{name}` is given twice"), "give it once"));
            }
        }
        let whole = match (self.data, self.input) {
            (Some(text), _) => Some(whole(&text).await?),
            (None, Some(text)) => of_input(text, &mut fields).await?,
            (None, None) => None,
        };
        merged(whole, fields)
    }
}

/// What `--input` says: the whole input, or one more field.
async fn of_input(text: String, fields: &mut Map<String, Value>) -> Result<Option<Value>, Failure> {
    let from_elsewhere = text == "-" || text.starts_with('@');
    // What begins like JSON and is none is a mistake, not a name.
    let like_json = text.starts_with(['{', '[', '"']);
    let is_json = serde_json::from_str::<Value>(&text).is_ok();
    if from_elsewhere || like_json || is_json && fields.is_empty() {
        return whole(&text).await.map(Some);
    }
    match fields.insert("input".to_owned(), value(&text)) {
        None => Ok(None),
        Some(_) => Err(Failure::usage("`input` is given twice", "give --input or --set input=, not both")),
    }
}

async fn whole(text: &str) -> Result<Value, Failure> {
    let bytes = match text.strip_prefix('@') {
        Some(path) => tokio::fs::read(path).await.map_err(|e| Failure::file(path.as_ref(), &e))?,
        None if text == "-" => input::stdin().await?.to_vec(),
        None => text.as_bytes().to_vec(),
    };
    serde_json::from_slice(&bytes).map_err(|e| {
        Failure::usage(format!("the input is not JSON: {e}"), "quote it for the shell: --data '{\"a\": 1}'")
    })
}

fn merged(whole: Option<Value>, fields: Map<String, Value>) -> Result<Value, Failure> {
    match whole {
        None if fields.is_empty() => Ok(Value::Null),
        None => Ok(Value::Object(fields)),
        Some(whole) if fields.is_empty() => Ok(whole),
        Some(Value::Object(mut whole)) => {
            for (name, value) in fields {
                if whole.insert(name.clone(), value).is_some() {
                    let what = format!("`{name}` is in the JSON input and an option");
                    return Err(Failure::usage(what, "give it once"));
                }
            }
            Ok(Value::Object(whole))
        }
        Some(_) => Err(Failure::usage(
            "the JSON input is no object, so there is no place for fields in it",
            "give an object, or the fields alone",
        )),
    }
}

/// `NAME=VALUE`.
fn field(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() => Ok((name.replace('-', "_"), value(text))),
        _ => Err("write NAME=VALUE, as in reducers=48".to_owned()),
    }
}

/// Numbers, `true`, `false` and all else that is JSON as such; other text as it is.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Turns the options after `job run FUNCTION` that the command does not have into `--set`. Other command lines stay as
/// they are.
pub fn expand(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let line: Vec<OsString> = line.into_iter().collect();
    let Some(begin) = after_run(&line) else { return line };
    let ours = Options::of_job_run();
    let mut expanded = line[..begin].to_vec();
    let mut rest = line[begin..].iter().peekable();
    let mut named = false;
    while let Some(token) = rest.next() {
        let text = token.to_str().unwrap_or_default();
        let Some(option) = text.strip_prefix("--").filter(|option| !option.is_empty()) else {
            named |= !text.starts_with('-');
            expanded.push(token.clone());
            if text == "--" {
                expanded.extend(rest.cloned());
                break;
            }
            if ours.takes_value(text)
                && let Some(value) = rest.next()
            {
                expanded.push(value.clone());
            }
            continue;
        };
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if let Some(takes_value) = ours.long.get(name).copied() {
            expanded.push(token.clone());
            if takes_value
                && value.is_none()
                && let Some(value) = rest.next()
            {
                expanded.push(value.clone());
            }
        } else if named {
            let next = rest.next_if(|next| value.is_none() && !next.to_string_lossy().starts_with("--"));
            let value = value.or_else(|| next.and_then(|next| next.to_str())).unwrap_or("true");
            expanded.extend(["--set".into(), format!("{name}={value}").into()]);
        } else {
            expanded.push(token.clone());
        }
    }
    expanded
}

/// Where the arguments of `job run` begin, if it is that.
fn after_run(line: &[OsString]) -> Option<usize> {
    let job = line.iter().position(|token| token == "job")?;
    // Before it there is nothing but options that all commands share.
    let ours = Options::of(&Cli::command());
    let mut before = line.get(1..job)?.iter();
    while let Some(token) = before.next() {
        let name = token.to_str()?.strip_prefix("--")?;
        if !name.contains('=') && *ours.long.get(name)? {
            before.next();
        }
    }
    let run = job + 1 + line[job + 1..].iter().position(|token| !token.to_string_lossy().starts_with('-'))?;
    (line[run] == "run").then_some(run + 1)
}

/// Options that a command has, and whether they take a value.
struct Options {
    long: BTreeMap<String, bool>,
    short: BTreeMap<char, bool>,
}

impl Options {
    fn of_job_run() -> Self {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("job").and_then(|job| job.find_subcommand("run"));
        run.map_or_else(|| Self::of(&cli), Self::of)
    }

    fn of(command: &clap::Command) -> Self {
        let takes_value = |arg: &Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let arguments = || command.get_arguments();
        let long = arguments().filter_map(|arg| Some((arg.get_long()?.to_owned(), takes_value(arg))));
        let short = arguments().filter_map(|arg| Some((arg.get_short()?, takes_value(arg))));
        Self { long: long.collect(), short: short.collect() }
    }

    /// Whether a token is a short option whose value is the next one.
    fn takes_value(&self, token: &str) -> bool {
        let mut letters = token.chars();
        letters.next() == Some('-')
            && letters.next().is_some_and(|letter| self.short.get(&letter) == Some(&true))
            && letters.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::{
        args::Command,
        commands::{ClientCommand, job},
    };

    /// The input that a command line gives.
    async fn input(line: &[&str]) -> Result<Value, String> {
        let line = ["fanfold", "job", "run"].iter().chain(line).map(OsString::from);
        let cli = Cli::try_parse_from(expand(line)).map_err(|e| e.to_string())?;
        let Command::Client(ClientCommand::Job(job::Command::Run(run))) = cli.command else {
            return Err("another command".to_owned());
        };
        run.input.read().await.map_err(|failure| format!("{failure:?}"))
    }

    #[tokio::test]
    async fn options_of_the_function_are_fields() {
        let line = ["sort", "--input", "in/", "--output", "out/", "--reducers", "48", "--strategy=auto"];
        let wanted = json!({ "input": "in/", "output": "out/", "reducers": 48, "strategy": "auto" });
        assert_eq!(input(&line).await, Ok(wanted.clone()));
        // Ours among them, in any order.
        let line = ["sort", "--reducers", "48", "--detach", "--strategy", "auto", "-i", "in/", "--json"];
        let line: Vec<&str> = line.into_iter().chain(["--output=out/", "--url", "http://h:1"]).collect();
        assert_eq!(input(&line).await, Ok(wanted));
        let line =
            ["f", "--check", "--rate", "0.5", "--sample-size=-3", "--name", "\"7\"", "--dry-run", "false"];
        let wanted = json!({ "check": true, "rate": 0.5, "sample_size": -3, "name": "7", "dry_run": false });
        assert_eq!(input(&line).await, Ok(wanted));
        assert_eq!(input(&["f", "--input", "2024", "--n", "1"]).await, Ok(json!({ "input": 2024, "n": 1 })));
    }

    #[tokio::test]
    async fn values_are_json_or_text() {
        let line = ["f", "--only", "[\"a\"]", "--top", "null", "--word", "nulls"];
        assert_eq!(input(&line).await, Ok(json!({ "only": ["a"], "top": null, "word": "nulls" })));
    }

    #[tokio::test]
    async fn a_whole_input_is_as_before() {
        for (line, wanted) in [
            (&["f"][..], json!(null)),
            (&["f", "--input", "{\"a\": 1}"], json!({ "a": 1 })),
            (&["f", "--input", "[1]"], json!([1])),
            (&["f", "--data", "\"text\""], json!("text")),
            (&["f", "-i", "7", "--detach"], json!(7)),
            (&["f", "--input", "texts/"], json!({ "input": "texts/" })),
            (&["f", "--input", "{\"a\": 1}", "--b", "2"], json!({ "a": 1, "b": 2 })),
            (
                &["f", "--data", "{\"input\": \"in/\"}", "--set", "b=x=y"],
                json!({ "input": "in/", "b": "x=y" }),
            ),
        ] {
            assert_eq!(input(line).await, Ok(wanted), "{line:?}");
        }
    }

    #[tokio::test]
    async fn what_is_ambiguous_is_refused() {
        for (line, words) in [
            (&["f", "--input", "{\"a\": 1"][..], "not JSON"),
            (&["f", "--a", "1", "--a", "2"], "twice"),
            (&["f", "--data", "{\"a\": 1}", "--a", "2"], "`a` is in the JSON input and an option"),
            (&["f", "--data", "[1]", "--a", "2"], "no object"),
            (&["f", "--data", "1", "--input", "x"], "cannot be used with"),
            (&["--reducers", "3", "f"], "unexpected argument"),
        ] {
            let refused = input(line).await.unwrap_err();
            assert!(refused.contains(words), "{line:?}: {refused}");
        }
    }

    #[test]
    fn other_commands_keep_their_words() {
        for line in
            ["fanfold job show --cost x --json", "fanfold invoke job --data run --x 1", "fanfold --json ls"]
        {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(expand(line.clone()), line);
        }
        let line = ["fanfold", "--url", "http://h:1", "--json", "job", "run", "f", "--n", "1"];
        let expanded = expand(line.iter().map(OsString::from));
        assert_eq!(expanded[6..], ["f", "--set", "n=1"].map(OsString::from));
    }
}
