//! Executors: who works, what waits, and why.

use fanfold_protocol::rest::ClusterView;

use crate::{Client, Error, request::Request};

impl Client {
    /// The gateway's executors, queues and live jobs as they are now.
    ///
    /// # Errors
    /// Of the transport.
    pub async fn executors(&self) -> Result<ClusterView, Error> {
        self.json(&Request::get(self.at(["v1", "executors"]))).await
    }
}
