//! Waiting for jobs and following them: long polls, events, growing logs. All of it ends when the gateway drains.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::Event;
use bytes::Bytes;
use fanfold_protocol::{Error, JobId, limit, rest::JobView};
use futures::{Stream, stream};
use tokio::sync::watch;

use crate::shared::{Draining, Shared};

/// The state of a job once it has ended, or after `time`, or when the gateway drains: whichever is first.
pub(super) async fn wait(shared: &Shared, id: JobId, time: Duration) -> Result<JobView, Error> {
    let mut views = shared.owner(id.shard())?.watch(id).await?;
    tokio::select! {
        // If the owner ends, the last state stands.
        _ = views.wait_for(|view| view.state.ended()) => {}
        () = tokio::time::sleep(time.min(Duration::from_millis(limit::WAIT_MS_MAX))) => {}
        () = shared.draining.begun() => {}
    }
    let view = views.borrow().clone();
    Ok(view)
}

/// Waits for the next change. `None`: there will be none.
async fn changed(shared: &Shared, views: &mut watch::Receiver<JobView>) -> Option<()> {
    tokio::select! {
        changed = views.changed() => changed.ok(),
        () = shared.draining.begun() => None,
    }
}

/// The present state and then every change, until the job has ended. Changes that come faster than the client reads
/// are merged.
pub(super) fn events(
    shared: Arc<Shared>,
    views: watch::Receiver<JobView>,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::unfold(Some((shared, views, true)), |state| async {
        let (shared, mut views, first) = state?;
        if !first {
            changed(&shared, &mut views).await?;
        }
        let view = views.borrow_and_update().clone();
        let event = Event::default().event("job").json_data(&view).unwrap_or_default();
        let next = (!view.state.ended()).then_some((shared, views, false));
        Some((Ok(event), next))
    })
}

/// Log lines as they come, until the job has ended.
pub(super) fn logs(
    shared: Arc<Shared>,
    id: JobId,
    views: watch::Receiver<JobView>,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let follow = Follow { shared, id, views, sent: 0, ended: false };
    stream::try_unfold(follow, |mut follow| async { Ok(follow.next().await?.map(|lines| (lines, follow))) })
}

struct Follow {
    shared: Arc<Shared>,
    id: JobId,
    views: watch::Receiver<JobView>,
    /// Bytes of the log that were sent.
    sent: usize,
    ended: bool,
}

impl Follow {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while !self.ended {
            // First the state, then the log: a job seen as ended has all its lines.
            self.ended = self.views.borrow_and_update().state.ended();
            let lines = self.shared.owner(self.id.shard())?.logs(self.id, self.sent).await?;
            if !lines.is_empty() {
                self.sent += lines.len();
                return Ok(Some(lines));
            }
            if !self.ended && changed(&self.shared, &mut self.views).await.is_none() {
                return if self.shared.draining.has_begun() { Err(Draining::error()) } else { Ok(None) };
            }
        }
        Ok(None)
    }
}
