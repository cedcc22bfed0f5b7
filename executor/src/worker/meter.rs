//! Runs a guest's future under measurement: processor time, the attempt's timeout, and being stopped.
//!
//! Promises: an attempt that ends within its first poll, as most small tasks do, touches no timer.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use fanfold_protocol::{Code, Error, Kind};
use tokio::time::{Sleep, sleep};

use super::control::Control;

/// A future of a guest, polled under a clock.
pub struct Meter<'a, F> {
    guest: Pin<&'a mut F>,
    control: &'a Control,
    timeout: Duration,
    /// Made when the guest first has to be polled again.
    timer: Option<Pin<Box<Sleep>>>,
    busy: Duration,
}

/// How a metered future ended.
#[derive(Debug)]
pub struct Metered<T> {
    /// What it returned, or that it was stopped or timed out.
    pub result: Result<T, Error>,
    /// Time spent inside its polls.
    pub busy: Duration,
}

/// Runs `guest` until it ends, is stopped through `control`, or was active for `timeout` (time blocked in waits is
/// not active time).
pub async fn meter<F: Future>(guest: F, control: &Control, timeout: Duration) -> Metered<F::Output> {
    let guest = pin!(guest);
    Meter { guest, control, timeout, timer: None, busy: Duration::ZERO }.await
}

impl<F: Future> Meter<'_, F> {
    /// Arms the timer for the rest of the active time; `None` when nothing is left.
    fn arm(&mut self, cx: &mut Context<'_>) -> Option<()> {
        loop {
            let left = self.timeout.checked_sub(self.control.active()).filter(|left| !left.is_zero())?;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(left)));
            if timer.as_mut().poll(cx).is_pending() {
                return Some(());
            }
            // It fired, yet a wait has prolonged the attempt's life.
            timer.set(sleep(left));
        }
    }
}

impl<F: Future> Future for Meter<'_, F> {
    type Output = Metered<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.control.watch_stop(cx);
        if let Some(error) = this.control.stopped() {
            return Poll::Ready(Metered { result: Err(error.clone()), busy: this.busy });
        }
        let entered = Instant::now();
        let polled = this.guest.as_mut().poll(cx);
        this.busy += entered.elapsed();
        let result = match polled {
            Poll::Ready(value) => Ok(value),
            Poll::Pending if this.arm(cx).is_some() => return Poll::Pending,
            Poll::Pending => Err(timed_out(this.timeout)),
        };
        Poll::Ready(Metered { result, busy: this.busy })
    }
}

fn timed_out(timeout: Duration) -> Error {
    let message =
        format!("the attempt ran for {} ms, its timeout: raise `timeout` or do less", timeout.as_millis());
    Error::new(Kind::Limit, Code::Timeout, message)
}

#[cfg(test)]
mod tests {
    use std::{future, sync::Arc};

    use super::*;

    #[tokio::test]
    async fn waits_do_not_count_against_the_timeout() {
        let control = Control::default();
        let short = meter(future::pending::<()>(), &control, Duration::from_nanos(1)).await;
        assert_eq!(short.result.unwrap_err().code, Code::Timeout);
        let control = Control::default();
        let _blocked = control.block();
        let long = meter(sleep(Duration::from_millis(20)), &control, Duration::from_millis(2)).await;
        long.result.unwrap();
    }

    #[tokio::test]
    async fn a_stop_wakes_a_guest_that_waits() {
        let control = Arc::new(Control::default());
        let stopper = control.clone();
        let stop =
            async move { stopper.stop(Error::new(Kind::Platform, Code::Cancelled, "no longer needed")) };
        let (metered, ()) =
            tokio::join!(meter(future::pending::<()>(), &control, Duration::from_secs(60)), stop);
        assert_eq!(metered.result.unwrap_err().code, Code::Cancelled);
    }
}
