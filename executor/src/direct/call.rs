//! One call under way: its guest's future, and what that future shares with whoever waits for the response.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use fanfold_protocol::{Code, Error, Kind, direct::Timing};
use tokio::task::AbortHandle;

use super::Direct;
use crate::sandbox::{self, Turns};

/// A guest that runs to its end as it is polled. Dropping it ends the guest.
pub(super) type Guest = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Turns (of a millisecond) that a guest with its head given may compute on until its response is streamed. One that
/// ends within them has a length, and an error status where it fails.
const TURNS: u32 = 10;

/// What a guest's future shares with its caller. `H` is the head of its response, set once.
pub(super) struct Call<H> {
    begun: Instant,
    instantiated_us: AtomicU64,
    turns: Turns,
    state: Mutex<State<H>>,
}

struct State<H> {
    head: Option<H>,
    failure: Option<Error>,
}

impl<H> Call<H> {
    /// A call that begins now.
    pub(super) fn begin() -> Arc<Self> {
        let state = Mutex::new(State { head: None, failure: None });
        let (instantiated_us, turns) = (AtomicU64::new(0), Turns::default());
        Arc::new(Self { begun: Instant::now(), instantiated_us, turns, state })
    }

    /// What counts the guest's turns.
    pub(super) fn turns(&self) -> Turns {
        self.turns.clone()
    }

    /// The instance is there; its first instruction is next.
    pub(super) fn instantiated(&self) {
        self.instantiated_us.store(super::micros(self.begun), Ordering::Relaxed);
    }

    /// How long the steps took until now.
    pub(super) fn timing(&self, mut timing: Timing) -> Timing {
        timing.instantiate_us = self.instantiated_us.load(Ordering::Relaxed);
        timing.run_us = super::micros(self.begun).saturating_sub(timing.instantiate_us);
        timing
    }

    /// The response's head.
    pub(super) fn set_head(&self, head: H) {
        self.lock().head = Some(head);
    }

    /// Whether the head is there and not taken.
    pub(super) fn has_head(&self) -> bool {
        self.lock().head.is_some()
    }

    /// Takes the head.
    pub(super) fn take_head(&self) -> Option<H> {
        self.lock().head.take()
    }

    /// Why the call fails, whatever the guest makes of it; the first reason stays.
    pub(super) fn fail(&self, error: Error) {
        self.lock().failure.get_or_insert(error);
    }

    /// Why the call failed, if it did.
    pub(super) fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<H>> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bounds `run`, which holds the guest's store, to `timeout_ms`. The reason of a failure is recorded before the store
/// is dropped: that closes the response's body, whose reader must find the reason then.
pub(super) fn guest<H: Send + 'static>(
    call: Arc<Call<H>>,
    timeout_ms: u64,
    run: impl Future<Output = Result<(), Error>> + Send + 'static,
) -> Guest {
    Box::pin(async move {
        let mut run = pin!(run);
        match tokio::time::timeout(Duration::from_millis(timeout_ms), &mut run).await {
            Ok(result) => result,
            Err(_) => {
                let error = sandbox::timed_out(timeout_ms);
                call.fail(error.clone());
                Err(error)
            }
        }
    })
}

/// How far a guest came.
pub(super) enum Reached {
    /// Its end; what failed is the call's own failure before the guest's.
    End(Result<(), Error>),
    /// A response that it goes on to write.
    Head,
}

/// Polls the guest to its end, or until it waits, or has computed for [`TURNS`], with its head given.
pub(super) async fn advance<H>(call: &Call<H>, guest: &mut Guest, head: impl Fn() -> bool) -> Reached {
    let mut left = TURNS;
    poll_fn(|cx| {
        let before = call.turns.load(Ordering::Relaxed);
        match guest.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Reached::End(call.failure().map_or(result, Err))),
            Poll::Pending if !head() => Poll::Pending,
            Poll::Pending if left > 0 && call.turns.load(Ordering::Relaxed) != before => {
                left -= 1;
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(Reached::Head),
        }
    })
    .await
}

/// Ends a streaming guest when dropped, unless let go.
pub(super) struct Streaming(Option<AbortHandle>);

impl Streaming {
    /// Lets the guest go on to its own end: its response was read whole.
    pub(super) fn let_go(&mut self) {
        self.0 = None;
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

/// Gives the guest a task of its own, so that its time runs out also while its reader is slow.
pub(super) fn stream<H: Send + 'static>(direct: &Direct, call: Arc<Call<H>>, mut guest: Guest) -> Streaming {
    let stopping = direct.stopping.clone();
    let task = direct.streaming.spawn(async move {
        // What fails is recorded in the call, where the body finds it.
        if stopping.run_until_cancelled(&mut guest).await.is_none() {
            call.fail(Error::new(Kind::Platform, Code::Cancelled, "the executor stopped"));
        }
    });
    Streaming(Some(task.abort_handle()))
}
