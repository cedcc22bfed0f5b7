//! What triggers mean, without I/O and without a clock: which event fires which trigger, when a schedule is due, when a batch is
//! full, what a listing found. Times come in as arguments, so tests run on virtual time.
//!
//! In the order in which an event travels: it is read ([`http`], [`s3`], [`queue`], [`stream`], [`object`]) into a [`CloudEvent`], compared with each
//! trigger ([`filter`]), gathered ([`batch`], [`manifest`]). Schedules ([`cron`], [`schedule`]), listings ([`seen`]), and what runs answer ([`answer`])
//! and how they end ([`job`]) make events of their own.
//! [`cycle`] refuses triggers that would fire themselves.
//!
//! It does not record, fire or remember anything: the gateway does, and asks here again with what it recorded.

pub mod event;
pub mod http;
pub mod s3;
pub mod queue;
pub mod stream;
pub mod object;
pub mod filter;
pub mod cycle;
pub mod batch;
pub mod manifest;
pub mod answer;
pub mod job;
pub mod cron;
pub mod schedule;
pub mod seen;

pub use cron::Cron;
pub use event::{CloudEvent, Data};
pub use object::ObjectChange;
