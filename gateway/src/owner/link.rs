//! The owner's end of one executor: what it sent that waits for room, and what came in.
//!
//! Sending never waits: what does not fit into the channel stays in the outbox. How much that can be is bounded by the
//! attempts on the executor (one `Run`, one `Stop`, at most one open wait each), and by not reading from an executor
//! whose outbox is long. That cannot deadlock: an executor takes messages without waiting for room on its way back
//! (see [`super::ExecutorLink`]), so the outbox empties, and then the owner reads again.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use fanfold_protocol::{
    ExecutorId, limit,
    link::Peer,
    message::{FromExecutor, Offer, ToExecutor},
};
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use super::messages::ExecutorLink;

/// Messages taken in one turn: enough to spread the cost of a turn, few enough to keep it short.
const MESSAGES_PER_TURN: usize = 512;

pub(super) struct Link {
    pub offer: Offer,
    /// What operators call it.
    pub name: String,
    pub joined_at_ms: u64,
    /// Where other executors reach it.
    pub peer: Option<String>,
    to: PollSender<ToExecutor>,
    from: mpsc::Receiver<FromExecutor>,
    outbox: VecDeque<ToExecutor>,
    /// Whether it is there; an executor that went away does not come back under the same id.
    pub connected: bool,
}

impl Link {
    pub fn new(link: ExecutorLink, now_ms: u64) -> Self {
        Self {
            offer: link.offer,
            name: link.name,
            joined_at_ms: now_ms,
            peer: link.peer,
            to: PollSender::new(link.to),
            from: link.from,
            outbox: VecDeque::new(),
            connected: true,
        }
    }

    pub fn id(&self) -> ExecutorId {
        self.offer.executor
    }

    /// Where other executors reach it.
    pub fn peer(&self) -> Option<Peer> {
        Some(Peer { executor: self.id(), address: Some(self.peer.clone()?) })
    }

    pub fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Sends a message, or keeps it until there is room.
    pub fn send(&mut self, message: ToExecutor) {
        if !self.connected {
            return;
        }
        if !self.outbox.is_empty() {
            return self.outbox.push_back(message);
        }
        let Some(to) = self.to.get_ref() else { return };
        match to.try_send(message) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(message)) => self.outbox.push_back(message),
            // `poll` reports the closed channel.
            Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }

    /// Sends what waits for room, as far as there is some.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) {
        while !self.outbox.is_empty() {
            match self.to.poll_reserve(cx) {
                Poll::Ready(Ok(())) => {
                    let Some(message) = self.outbox.pop_front() else { return };
                    // A permit is held, so this fails only where the channel is closed; `poll` reports that.
                    let _ = self.to.send_item(message);
                }
                Poll::Ready(Err(_)) => self.outbox.clear(),
                Poll::Pending => return,
            }
        }
    }

    /// Takes messages into `messages`. `Ready(false)`: the executor is gone, and will not be reported again.
    pub fn poll_messages(&mut self, cx: &mut Context<'_>, messages: &mut Vec<FromExecutor>) -> Poll<bool> {
        if !self.connected || self.outbox.len() >= limit::MESSAGE_QUEUE_MAX {
            return Poll::Pending;
        }
        let taken = std::task::ready!(self.from.poll_recv_many(cx, messages, MESSAGES_PER_TURN));
        if taken == 0 {
            self.connected = false;
            self.outbox.clear();
        }
        Poll::Ready(taken > 0)
    }

    /// Takes no further messages and tells the executor, by closing the channel, that none will come.
    pub fn close(&mut self) {
        self.connected = false;
        self.outbox.clear();
        self.from.close();
        self.to.close();
    }
}
