//! One invocation or job that was accepted: watching it, waiting for it, reading what it made and wrote.

use std::time::Duration;

use bytes::Bytes;
use fanfold_protocol::{
    Code, JobId, Kind,
    rest::{GraphView, JobView},
};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::{ByteStream, Client, Error, lines::lines, request::Request};

/// How long one request waits for an invocation to end before it is asked again.
const WAIT: Duration = Duration::from_secs(30);
/// How much longer the answer to such a request may take.
const WAIT_SLACK: Duration = Duration::from_secs(15);

/// A handle on an accepted invocation, or on the job that it is the root of. Dropping it stops nothing.
#[derive(Clone, Debug)]
pub struct Invocation {
    client: Client,
    id: JobId,
}

/// One line that a function wrote to stdout, stderr or its log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// Microseconds since the attempt began.
    pub at_us: u64,
    /// `stdout`, `stderr`, or the level of a log call.
    pub stream: String,
    /// The text.
    pub line: String,
}

impl Client {
    /// A handle on the invocation or job with this id. Asks the gateway nothing.
    pub fn invocation(&self, id: JobId) -> Invocation {
        Invocation { client: self.clone(), id }
    }
}

impl Invocation {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Where it stands.
    ///
    /// # Errors
    /// `not-found`: it was never accepted, or its result has passed its time.
    pub async fn status(&self) -> Result<JobView, Error> {
        self.client.json(&Request::get(self.url(None))).await
    }

    /// Where it stands once it has ended or `time` has passed.
    ///
    /// # Errors
    /// As for [`Invocation::status`].
    pub async fn wait_for(&self, time: Duration) -> Result<JobView, Error> {
        let request = Request::get(self.url(None)).query("wait", &format!("{}ms", time.as_millis()));
        self.client.json(&request.timeout(Some(time + WAIT_SLACK))).await
    }

    /// Waits until it has ended, well or not.
    ///
    /// # Errors
    /// As for [`Invocation::status`]; that the invocation failed is no error here.
    pub async fn wait(&self) -> Result<JobView, Error> {
        loop {
            let view = self.wait_for(WAIT).await?;
            if view.state.ended() {
                return Ok(view);
            }
        }
    }

    /// Waits until it has ended and hands its output out.
    ///
    /// # Errors
    /// [`Error::Failed`] where it failed or was cancelled.
    pub async fn result(&self) -> Result<Bytes, Error> {
        let view = self.wait().await?;
        self.outcome(&view)?;
        self.client.bytes(&Request::get(self.url(Some("output"))).timeout(None)).await
    }

    /// The output of an invocation that has succeeded, as it arrives.
    ///
    /// # Errors
    /// `conflict` or `not-found` where there is none (yet).
    pub async fn output(&self) -> Result<ByteStream, Error> {
        self.client.stream(&Request::get(self.url(Some("output"))).timeout(None)).await
    }

    /// What it has written, line by line; with `follow`, until it has ended.
    ///
    /// # Errors
    /// As for [`Invocation::status`]; the stream ends with an error where the connection breaks.
    pub async fn log_lines(
        &self,
        follow: bool,
    ) -> Result<impl Stream<Item = Result<LogLine, Error>> + Send + 'static, Error> {
        let url = self.url(Some("logs"));
        let what = url.to_string();
        let request = if follow { Request::get(url).query("follow", "true") } else { Request::get(url) };
        let body = self.client.stream(&request.timeout(None)).await?;
        let parse = move |line: Bytes| {
            serde_json::from_slice(&line)
                .map_err(|e| Error::Unexpected { url: what.clone(), what: format!("a log line: {e}") })
        };
        let lines = lines(body).try_filter(|line| futures::future::ready(!line.is_empty()));
        Ok(lines.map(move |line| line.and_then(&parse)))
    }

    /// Asks for it to be stopped; answers where it stands. It has ended when [`Invocation::wait`] says so.
    ///
    /// # Errors
    /// `conflict` where it has ended already.
    pub async fn cancel(&self) -> Result<JobView, Error> {
        self.client.json(&Request::post(self.url(Some("cancel")))).await
    }

    /// Its tasks and what each waits for.
    ///
    /// # Errors
    /// As for [`Invocation::status`].
    pub async fn graph(&self) -> Result<GraphView, Error> {
        self.client.json(&Request::get(self.job_url("graph"))).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether `view`, of an invocation that has ended, says that it succeeded.
    ///
    /// # Errors
    /// [`Error::Failed`] with the reason where it did not.
    pub fn outcome(&self, view: &JobView) -> Result<(), Error> {
        use fanfold_protocol::rest::State;
        let error = match (view.state, &view.error) {
            (State::Succeeded, _) => return Ok(()),
            (_, Some(error)) => error.clone(),
            (State::Cancelled, None) => {
                let error = fanfold_protocol::Error::new(Kind::Platform, Code::Cancelled, "it was cancelled");
                error.retryable(false)
            }
            (_, None) => fanfold_protocol::Error::internal("it failed without saying why"),
        };
        Err(Error::Failed { id: self.id, error })
    }

    fn url(&self, part: Option<&str>) -> Url {
        let id = self.id.to_string();
        self.client.at(["v1", "invocations", &id].into_iter().chain(part))
    }

    pub(crate) fn job_url(&self, part: &str) -> Url {
        self.client.at(["v1", "jobs", &self.id.to_string(), part])
    }
}
