//! Making a bucket ready to hold a store: it exists, and uploads that nobody finished are removed from it.
//!
//! The only user of `aws-sdk-s3`: `object_store` knows objects, not buckets. Both use the same credentials.

use std::fmt;

use aws_sdk_s3::{
    Client,
    config::{BehaviorVersion, Credentials, Region, http::HttpResponse},
    error::{ProvideErrorMetadata, SdkError},
    types::{
        AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, BucketLocationConstraint,
        CreateBucketConfiguration, ExpirationStatus, LifecycleRule, LifecycleRuleFilter,
    },
};
use fanfold_protocol::Error;

use super::{
    Remote, S3Options,
    answer::{self, Answer},
};
use crate::url::Bucket;

/// Days after which an upload that nobody finished is removed: longer than any upload takes.
const UPLOAD_DAYS: i32 = 1;
/// What our rule is called in the bucket; the prefix follows, where there is one.
const RULE: &str = "fanfold-unfinished-uploads";
/// Where a bucket is made without saying so.
const DEFAULT_REGION: &str = "us-east-1";

/// What was done to a bucket, and what was found done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bootstrapped {
    /// It did not exist and was made.
    pub created: bool,
    /// The rule that removes unfinished uploads.
    pub uploads: UploadRule,
}

/// What became of the rule that removes unfinished uploads after a day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadRule {
    /// It was added to the bucket's rules.
    Added,
    /// It was there.
    Kept,
    /// This server has no such rules: what it keeps of unfinished uploads is its own affair.
    Unsupported,
}

impl fmt::Display for UploadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Kept => "kept",
            Self::Unsupported => "unsupported",
        })
    }
}

/// Makes a bucket unless it exists, and adds a lifecycle rule to those it has. Doing it again changes nothing.
///
/// # Errors
/// `platform` / `storage`, naming the bucket and what to do.
pub async fn bootstrap(bucket: &Bucket, options: &S3Options) -> Result<Bootstrapped, Error> {
    let remote = Remote::new(bucket, options)?;
    let place = remote.place(bucket);
    let client = client(&remote, options, &place).await?;
    let created = create(&client, bucket, &remote.region)
        .await
        .map_err(|failure| failure.explain(format_args!("cannot make {place}")))?;
    let uploads = add_rule(&client, bucket)
        .await
        .map_err(|failure| failure.explain(format_args!("cannot set the lifecycle rules of {place}")))?;
    Ok(Bootstrapped { created, uploads })
}

async fn client(remote: &Remote, options: &S3Options, place: &str) -> Result<Client, Error> {
    let found = remote.client.credentials().get_credential().await;
    let found = found.map_err(|e| answer::explain(format_args!("cannot use {place}"), &e))?;
    let credentials =
        Credentials::new(&found.key_id, &found.secret_key, found.token.clone(), None, "object_store");
    let mut config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(remote.region.clone()))
        .credentials_provider(credentials)
        .force_path_style(!options.virtual_hosted);
    if let Some(endpoint) = &remote.endpoint {
        config = config.endpoint_url(endpoint);
    }
    Ok(Client::from_conf(config.build()))
}

/// `true`: it was made.
async fn create(client: &Client, bucket: &Bucket, region: &str) -> Result<bool, Failure> {
    match client.head_bucket().bucket(&bucket.name).send().await.map_err(Failure::of) {
        Ok(_) => return Ok(false),
        Err(Failure::Answered(answer)) if answer.status == 404 => {}
        Err(e) => return Err(e),
    }
    let place = (region != DEFAULT_REGION).then(|| {
        CreateBucketConfiguration::builder()
            .location_constraint(BucketLocationConstraint::from(region))
            .build()
    });
    let made =
        client.create_bucket().bucket(&bucket.name).set_create_bucket_configuration(place).send().await;
    match made.map_err(Failure::of) {
        Ok(_) => Ok(true),
        // Somebody else did it just now.
        Err(Failure::Answered(answer)) if answer.code == "BucketAlreadyOwnedByYou" => Ok(false),
        Err(e) => Err(e),
    }
}

async fn add_rule(client: &Client, bucket: &Bucket) -> Result<UploadRule, Failure> {
    let found = client.get_bucket_lifecycle_configuration().bucket(&bucket.name).send().await;
    let mut rules = match found.map_err(Failure::of) {
        Ok(found) => found.rules.unwrap_or_default(),
        Err(Failure::Answered(answer)) if answer.code == "NoSuchLifecycleConfiguration" => Vec::new(),
        Err(Failure::Answered(answer)) if answer.status == 501 => return Ok(UploadRule::Unsupported),
        Err(e) => return Err(e),
    };
    let id = if bucket.prefix.is_empty() { RULE.to_owned() } else { format!("{RULE}-{}", bucket.prefix) };
    if rules.iter().any(|rule| rule.id() == Some(&id)) {
        return Ok(UploadRule::Kept);
    }
    let prefix = if bucket.prefix.is_empty() { String::new() } else { format!("{}/", bucket.prefix) };
    let abort = AbortIncompleteMultipartUpload::builder().days_after_initiation(UPLOAD_DAYS).build();
    let rule = LifecycleRule::builder()
        .id(id)
        .status(ExpirationStatus::Enabled)
        .filter(LifecycleRuleFilter::builder().prefix(prefix).build())
        .abort_incomplete_multipart_upload(abort)
        .build()
        .map_err(|e| Failure::Other(e.to_string()))?;
    // The rules are replaced as a whole: what others have set stays.
    rules.push(rule);
    let rules = BucketLifecycleConfiguration::builder().set_rules(Some(rules)).build();
    let rules = rules.map_err(|e| Failure::Other(e.to_string()))?;
    let put = client.put_bucket_lifecycle_configuration().bucket(&bucket.name).lifecycle_configuration(rules);
    match put.send().await.map_err(Failure::of) {
        Ok(_) => Ok(UploadRule::Added),
        Err(Failure::Answered(answer)) if answer.status == 501 => Ok(UploadRule::Unsupported),
        Err(e) => Err(e),
    }
}

/// Why a request of the SDK failed.
enum Failure {
    Answered(Answer),
    Unreachable(String),
    Other(String),
}

impl Failure {
    fn of<E: ProvideErrorMetadata + std::error::Error + 'static>(error: SdkError<E, HttpResponse>) -> Self {
        match &error {
            SdkError::ServiceError(refused) => Self::Answered(Answer {
                status: refused.raw().status().as_u16(),
                code: refused.err().code().unwrap_or_default().to_owned(),
                message: refused.err().message().unwrap_or_default().to_owned(),
            }),
            SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) => Self::Unreachable(deepest(&error)),
            _ => Self::Other(deepest(&error)),
        }
    }

    fn explain(self, what: fmt::Arguments<'_>) -> Error {
        match self {
            Self::Answered(answer) => answer::refused(what, &answer, ""),
            Self::Unreachable(why) => answer::unreachable(what, &why, ""),
            Self::Other(why) => answer::failed(what, why, false),
        }
    }
}

/// What lies at the bottom of an error: the part that says why.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    answer::plain(&error.to_string())
}
