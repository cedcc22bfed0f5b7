//! Invocations that were given up: why, another chance for them, or their end.

use bytes::Bytes;
use fanfold_protocol::{
    JobId,
    rest::{AcceptedView, DeadLetterDetail, DeadLetterView},
};
use futures::Stream;
use reqwest::{Method, Url};

use crate::{Client, Error, Invocation, request::Request};

impl Client {
    /// Dead letters, newest first, page by page as they are asked for.
    pub fn dead_letters(&self) -> impl Stream<Item = Result<DeadLetterView, Error>> + Send + 'static {
        self.pages(self.at(["v1", "dead-letters"]), Vec::new())
    }

    /// One dead letter with its failed attempts.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn dead_letter(&self, id: JobId) -> Result<DeadLetterDetail, Error> {
        self.json(&Request::get(self.letter(id))).await
    }

    /// The input of a dead letter, as it came.
    ///
    /// # Errors
    /// `not-found`; `lost` where it cannot be read any more.
    pub async fn dead_letter_input(&self, id: JobId) -> Result<Bytes, Error> {
        self.bytes(&Request::get(self.at(["v1", "dead-letters", &id.to_string(), "input"]))).await
    }

    /// Removes a dead letter before its time.
    ///
    /// # Errors
    /// `not-found`; `conflict`, retryable, while a part of it is about to be tried again.
    pub async fn remove_dead_letter(&self, id: JobId) -> Result<(), Error> {
        self.bytes(&Request::new(Method::DELETE, self.letter(id))).await.map(drop)
    }

    fn letter(&self, id: JobId) -> Url {
        self.at(["v1", "dead-letters", &id.to_string()])
    }

    /// Runs a dead letter's input again, as a new invocation of the same version.
    ///
    /// # Errors
    /// `not-found`; `conflict` where it was retried already.
    pub async fn retry_dead_letter(&self, id: JobId) -> Result<Invocation, Error> {
        let url = self.at(["v1", "dead-letters", &id.to_string(), "retry"]);
        let accepted: AcceptedView = self.json(&Request::post(url)).await?;
        Ok(self.invocation(accepted.id))
    }
}
