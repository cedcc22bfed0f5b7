//! Invocations that were given up, and another chance for them.

use fanfold_protocol::{
    JobId,
    rest::{AcceptedView, DeadLetterView},
};
use futures::Stream;

use crate::{Client, Error, Invocation, request::Request};

impl Client {
    /// Dead letters, newest first, page by page as they are asked for.
    pub fn dead_letters(&self) -> impl Stream<Item = Result<DeadLetterView, Error>> + Send + 'static {
        self.pages(self.at(["v1", "dead-letters"]), Vec::new())
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
