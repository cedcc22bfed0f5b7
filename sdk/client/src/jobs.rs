//! Batch jobs: starting, listing and watching them.

use std::time::Duration;

use fanfold_protocol::rest::{AcceptedView, CostView, JobRequest, JobView, Page};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

use crate::{Client, Error, Invocation, lines::events, request::Request};

/// The gateway sends something this often while a job runs, if only a comment; after four times that in silence the
/// connection is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);

impl Client {
    /// Starts a job. When this returns it is recorded and will run to its end.
    ///
    /// # Errors
    /// `not-found` for an unknown function; `overloaded`, and then nothing was recorded.
    pub async fn run_job(&self, job: &JobRequest) -> Result<Invocation, Error> {
        let accepted: AcceptedView = self.json(&Request::post(self.at(["v1", "jobs"])).json(job)?).await?;
        Ok(self.invocation(accepted.id))
    }

    /// Jobs (of functions that call others), newest first, page by page as they are asked for.
    pub fn jobs(&self) -> impl Stream<Item = Result<JobView, Error>> + Send + 'static {
        self.pages(self.at(["v1", "jobs"]), Vec::new())
    }

    /// All invocations, jobs included, newest first, page by page as they are asked for.
    pub fn invocations(&self) -> impl Stream<Item = Result<JobView, Error>> + Send + 'static {
        self.pages(self.at(["v1", "invocations"]), Vec::new())
    }

    /// The items of a listing that comes in pages.
    pub(crate) fn pages<T: serde::de::DeserializeOwned + Send + 'static>(
        &self,
        url: reqwest::Url,
        query: Vec<(&'static str, String)>,
    ) -> impl Stream<Item = Result<T, Error>> + Send + 'static {
        let client = self.clone();
        let first = Some(None::<String>);
        let pages =
            stream::try_unfold((client, url, query, first), |(client, url, query, after)| async move {
                let Some(after) = after else { return Ok(None) };
                let mut request = Request::get(url.clone());
                for (name, value) in
                    query.iter().map(|(n, v)| (*n, v)).chain(after.iter().map(|a| ("after", a)))
                {
                    request = request.query(name, value);
                }
                let page: Page<T> = client.json(&request).await?;
                let after = page.next.map(Some);
                Ok::<_, Error>(Some((
                    stream::iter(page.items.into_iter().map(Ok)),
                    (client, url, query, after),
                )))
            });
        pages.try_flatten()
    }
}

impl Invocation {
    /// What it has cost until now.
    ///
    /// # Errors
    /// As for [`Invocation::status`].
    pub async fn cost(&self) -> Result<CostView, Error> {
        self.client().json(&Request::get(self.job_url("cost"))).await
    }

    /// Its status whenever it changes; the last one is of the ended job. Outlives broken connections.
    pub fn watch(&self) -> impl Stream<Item = Result<JobView, Error>> + Send + 'static {
        let watch = Watch { invocation: self.clone(), events: None, failures: 0, ended: false };
        stream::try_unfold(watch, |mut watch| async move {
            if watch.ended {
                return Ok(None);
            }
            let view = watch.next().await?;
            watch.ended = view.state.ended();
            Ok(Some((view, watch)))
        })
    }
}

/// A watch over several connections.
struct Watch {
    invocation: Invocation,
    events: Option<stream::BoxStream<'static, Result<JobView, Error>>>,
    /// Connections in a row that broke before an event came.
    failures: u32,
    ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Result<JobView, Error> {
        loop {
            let broken = match self.event().await {
                Ok(Some(view)) => {
                    self.failures = 0;
                    return Ok(view);
                }
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => Some(error),
                Ok(None) => None,
            };
            // Each connection starts with the present state, so nothing is missed.
            self.events = None;
            self.failures += 1;
            match (self.invocation.client().retries().pause(self.failures, None), broken) {
                (Some(pause), _) => tokio::time::sleep(pause).await,
                (None, Some(error)) => return Err(error),
                (None, None) => return Err(self.silence()),
            }
        }
    }

    /// The next event; `None` where the server closed the connection.
    async fn event(&mut self) -> Result<Option<JobView>, Error> {
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(connect(&self.invocation).await?),
        };
        let event = tokio::time::timeout(SILENCE_MAX, events.try_next()).await;
        event.unwrap_or_else(|_| Err(self.silence()))
    }

    fn silence(&self) -> Error {
        Error::Timeout { url: self.invocation.job_url("events").to_string() }
    }
}

async fn connect(
    invocation: &Invocation,
) -> Result<stream::BoxStream<'static, Result<JobView, Error>>, Error> {
    let url = invocation.job_url("events");
    let what = url.to_string();
    let body = invocation.client().stream(&Request::get(url).timeout(None)).await?;
    let parse = move |event: bytes::Bytes| {
        serde_json::from_slice(&event)
            .map_err(|e| Error::Unexpected { url: what.clone(), what: format!("an event: {e}") })
    };
    Ok(events(body).map(move |event| event.and_then(&parse)).boxed())
}
