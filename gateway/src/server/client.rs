//! One connection as its task, its requests and the server see it: what it does now, and what it is told to do.
//!
//! All of it is plain atomics. Bytes and requests are counted where they pass; a slow timer (see
//! [`super::connection`]) reads the counts, so that timeouts cost a request nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
};

use futures::task::AtomicWaker;

use super::Front;
use crate::shared::Shared;

/// What the server wants of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Order {
    /// Go on.
    Serve,
    /// Finish the request there is, then close.
    Drain,
    /// Close now.
    Abort,
}

/// See the module's documentation.
pub(crate) struct Client {
    front: Arc<Front>,
    order: AtomicU8,
    task: AtomicWaker,
    begun: AtomicU64,
    ended: AtomicU64,
    read: AtomicU64,
    /// `read` when the last request ended: more means that a further request's head has begun.
    read_at_end: AtomicU64,
    written: AtomicU64,
    write_blocked: AtomicBool,
}

/// The counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    /// Requests begun.
    pub(super) begun: u64,
    /// Whether one is being answered.
    pub(super) busy: bool,
    /// Whether bytes of a further head have come.
    pub(super) head_begun: bool,
    /// Bytes written.
    pub(super) written: u64,
    /// Whether the client must read before more can be written.
    pub(super) write_blocked: bool,
}

impl Client {
    pub(super) fn new(front: Arc<Front>) -> Self {
        Self {
            front,
            order: AtomicU8::new(Order::Serve as u8),
            task: AtomicWaker::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            read: AtomicU64::new(0),
            read_at_end: AtomicU64::new(0),
            written: AtomicU64::new(0),
            write_blocked: AtomicBool::new(false),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.front.shared
    }

    pub(crate) fn router(&self) -> axum::Router {
        self.front.router.clone()
    }

    /// Tells the connection's task.
    pub(super) fn order(&self, order: Order) {
        self.order.fetch_max(order as u8, Relaxed);
        self.task.wake();
    }

    /// What the connection's task shall do; it is woken by `waker` when that changes.
    pub(super) fn ordered(&self, waker: &Waker) -> Order {
        self.task.register(waker);
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::Drain,
            _ => Order::Abort,
        }
    }

    pub(crate) fn request_begins(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    pub(crate) fn request_ends(&self) {
        self.read_at_end.store(self.read.load(Relaxed), Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    pub(super) fn count_read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Relaxed);
    }

    /// `None`: the client must read first.
    pub(super) fn count_written(&self, bytes: Option<usize>) {
        match bytes {
            Some(bytes) => {
                self.written.fetch_add(bytes as u64, Relaxed);
                if self.write_blocked.load(Relaxed) {
                    self.write_blocked.store(false, Relaxed);
                }
            }
            None => self.write_blocked.store(true, Relaxed),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let begun = self.begun.load(Relaxed);
        Counts {
            begun,
            busy: begun != self.ended.load(Relaxed),
            head_begun: self.read.load(Relaxed) > self.read_at_end.load(Relaxed),
            written: self.written.load(Relaxed),
            write_blocked: self.write_blocked.load(Relaxed),
        }
    }
}
