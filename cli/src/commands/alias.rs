//! `fanfold alias`: names for versions, with weights for gradual roll-outs.

use std::collections::BTreeMap;

use fanfold_client::Client;

use crate::{failure::Failure, output::Output};

/// `alias`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fanfold alias thumbnail prod 3fa2bc=90 77aa01=10")]
#[command(override_usage = "fanfold alias [OPTIONS] <NAME> <ALIAS> <VERSION[=WEIGHT]...|--remove>")]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Args {
    /// The function
    name: String,
    /// The alias
    alias: String,
    /// Versions (6 or more digits) with optional weights: 3fa2bc, or 3fa2bc=90 77aa01=10
    #[arg(group = "what", value_parser = parse_weight)]
    versions: Vec<(String, u32)>,
    /// Remove the alias
    #[arg(long, group = "what")]
    remove: bool,
}

fn parse_weight(text: &str) -> Result<(String, u32), String> {
    let (version, weight) = text.split_once('=').unwrap_or((text, "1"));
    let digits = version.len() >= 6 && version.bytes().all(|b| b.is_ascii_hexdigit());
    match weight.parse() {
        Ok(weight) if weight > 0 && digits => Ok((version.to_owned(), weight)),
        _ => {
            Err("write 6 or more digits of a version, and = and a weight above 0 if there are several".into())
        }
    }
}

/// Runs it.
pub async fn run(client: &Client, args: &Args, out: Output) -> Result<(), Failure> {
    let weights: BTreeMap<String, u32> = args.versions.iter().cloned().collect();
    let function = client.set_alias(&args.name, &args.alias, weights).await?;
    out.print(&function, |function| match function.aliases.get(args.alias.as_str()) {
        Some(weights) => {
            let versions: Vec<String> =
                weights.iter().map(|(v, weight)| format!("{}={weight}", v.short())).collect();
            format!("{}:{} is {}", args.name, args.alias, versions.join(" "))
        }
        None => format!("removed alias {} of {}", args.alias, args.name),
    })
}
