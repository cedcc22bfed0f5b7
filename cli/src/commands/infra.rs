//! `fanfold infra`: what has to be there before a platform starts. Asks no gateway.

use clap::Subcommand;
use fanfold_store::{Bootstrapped, Bucket, S3Options, StoreUrl, UploadRule, bootstrap};
use serde_json::json;

use crate::{failure::Failure, output::Output};

/// `infra`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a bucket for a store and set its rules; doing it again changes nothing
    #[command(after_help = "Example: fanfold infra bootstrap --store s3://my-bucket/fanfold\n\n\
        The server, the region and the access key come from AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and \
        AWS_SECRET_ACCESS_KEY, or from the machine it runs on.")]
    Bootstrap(Bootstrap),
}

/// `infra bootstrap`.
#[derive(Debug, clap::Args)]
pub struct Bootstrap {
    /// The bucket, and the prefix in it where the store begins: s3://BUCKET[/PREFIX]
    #[arg(long, env = "FANFOLD_STORE")]
    store: StoreUrl,
    /// URL of a server that is not AWS, such as http://127.0.0.1:9000
    #[arg(long)]
    endpoint: Option<String>,
}

/// Runs one of them.
pub async fn run(command: Command, out: Output) -> Result<(), Failure> {
    let Command::Bootstrap(args) = command;
    let StoreUrl::S3(bucket) = &args.store else {
        let what = format!("{} needs no preparation", args.store);
        return Err(Failure::usage(
            what,
            "give a bucket, as s3://BUCKET/PREFIX; a directory is made by who uses it",
        ));
    };
    let options = S3Options { endpoint: args.endpoint, ..S3Options::default() };
    let fix = "correct the endpoint or the AWS_ variables, and run it again: what is done already stays";
    let done = bootstrap(bucket, &options).await.map_err(|e| Failure::platform(&e).fix(fix))?;
    let told = json!({
        "store": bucket.to_string(), "created": done.created, "unfinished_uploads": done.uploads.to_string(),
    });
    out.print(&told, |_| text(bucket, done))
}

fn text(bucket: &Bucket, Bootstrapped { created, uploads }: Bootstrapped) -> String {
    let made = if created { "made" } else { "found" };
    let rule = match uploads {
        UploadRule::Added => "added a rule that removes unfinished uploads after a day",
        UploadRule::Kept => "the rule that removes unfinished uploads was there",
        UploadRule::Unsupported => "this server has no rules that remove unfinished uploads",
    };
    format!("{bucket}: {made} the bucket; {rule}")
}
