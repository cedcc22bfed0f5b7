//! Queues with the interface of Amazon SQS: messages are received, and deleted once what they led to is durable.
//!
//! The only user of `aws-sdk-sqs`. A message that is not deleted comes again after the queue's visibility timeout, and what becomes
//! of one that keeps coming is the queue's own redrive policy; nothing here decides it.

use std::env;

use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
    types::DeleteMessageBatchRequestEntry,
};
use fanfold_protocol::{Code, Error, Kind};

/// Messages of one request: what SQS allows.
pub const MESSAGES_MAX: usize = 10;

/// A queue that messages are taken from.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    url: String,
}

/// A message that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its id, the same at each delivery.
    pub id: String,
    /// Its body.
    pub body: String,
    /// What this delivery of it is deleted by.
    receipt: String,
}

impl Queue {
    /// A queue by its URL, with the access key that `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` of this
    /// process hold. The region is the given one, else that in the host's name, else `AWS_REGION`. Asks nobody.
    ///
    /// # Errors
    /// `invalid` for a URL that is none, and where key or region are missing.
    pub fn open(url: &str, region: Option<&str>) -> Result<Self, Error> {
        let shown = url.escape_debug();
        let parts = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
        let Some((scheme, (host, _))) =
            parts.and_then(|(scheme, rest)| Some((scheme, rest.split_once('/')?)))
        else {
            return Err(Error::invalid(format!(
                "`{shown}` is no queue: give its URL, https://HOST/ACCOUNT/NAME"
            )));
        };
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let key = |name: &str| {
            variable(name).ok_or_else(|| {
                let why = format!("{name} is not set for the gateway, which needs an access key for queues: set it and start again");
                Error::invalid(why)
            })
        };
        let of_host = || host.strip_prefix("sqs.")?.strip_suffix(".amazonaws.com").map(str::to_owned);
        let region = region.map(str::to_owned).or_else(of_host).or_else(|| variable("AWS_REGION"));
        let region = region.ok_or_else(|| {
            Error::invalid(format!("the region of queue `{shown}` is missing: give region"))
        })?;
        let credentials = Credentials::new(
            key("AWS_ACCESS_KEY_ID")?,
            key("AWS_SECRET_ACCESS_KEY")?,
            variable("AWS_SESSION_TOKEN"),
            None,
            "environment",
        );
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region))
            .credentials_provider(credentials)
            .endpoint_url(format!("{scheme}://{host}"));
        Ok(Self { client: Client::from_conf(config.build()), url: url.to_owned() })
    }

    /// At most [`MESSAGES_MAX`] messages; where there are none, it waits up to `wait_s` seconds (at most 20) for the first.
    ///
    /// # Errors
    /// `platform` / `storage`, saying what to do; retryable, since somebody may mend the queue.
    pub async fn receive(&self, wait_s: i32) -> Result<Vec<Message>, Error> {
        let request = self.client.receive_message().queue_url(&self.url);
        let received =
            request.max_number_of_messages(MESSAGES_MAX as i32).wait_time_seconds(wait_s).send().await;
        let received = received.map_err(|e| self.explain("receive from", &e))?;
        let message = |message: aws_sdk_sqs::types::Message| {
            Some(Message {
                id: message.message_id?,
                body: message.body.unwrap_or_default(),
                receipt: message.receipt_handle?,
            })
        };
        Ok(received.messages.unwrap_or_default().into_iter().filter_map(message).collect())
    }

    /// Deletes messages. One that could not be deleted comes again.
    ///
    /// # Errors
    /// As [`Queue::receive`].
    pub async fn delete(&self, messages: &[Message]) -> Result<(), Error> {
        for messages in messages.chunks(MESSAGES_MAX) {
            let entry = |(index, message): (usize, &Message)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .receipt_handle(&message.receipt)
                    .build()
            };
            let entries: Result<Vec<_>, _> = messages.iter().enumerate().map(entry).collect();
            let entries =
                entries.map_err(|e| Error::internal(format!("a message cannot be deleted: {e}")))?;
            let request = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
            request.send().await.map_err(|e| self.explain("delete from", &e))?;
        }
        Ok(())
    }

    fn explain<E>(&self, what: &str, error: &SdkError<E>) -> Error
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let url = self.url.escape_debug();
        let why = match error.as_service_error() {
            Some(answer) => {
                let code = answer.code().unwrap_or("an error");
                let message = answer.message().unwrap_or_default();
                format!(
                    "the queue answers {code}: {message}; check its URL, region and what the access key may do"
                )
            }
            None => format!("{}; check its URL and that it can be reached", DisplayErrorContext(error)),
        };
        Error::new(Kind::Platform, Code::Storage, format!("cannot {what} queue `{url}`: {why}"))
            .retryable(true)
    }
}
