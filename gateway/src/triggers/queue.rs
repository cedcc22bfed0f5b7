//! Messages of a queue, taken as events by the triggers that name it.
//!
//! A message is deleted once what it led to is recorded, so one may come again, which its id or the event in it makes harmless. One
//! that cannot be understood stays: it is told, and what becomes of it is the queue's own redrive policy.

use std::sync::Arc;

use fanfold_protocol::{Error, Kind};
use fanfold_store::queue::{MESSAGES_MAX, Message, Queue};
use fanfold_triggers::queue;
use futures::future::{join_all, try_join_all};

use super::feeds::take;
use crate::{registry::Trigger, shared::Shared};

/// How long a request waits for the first message: what SQS allows, since an empty answer costs as much as a full one.
const WAIT_S: i32 = 20;
/// Further requests at once when one came back full.
const MORE: usize = 7;

/// Takes what is there, or waits for it. `Some`: what kept a message from being taken, which stays in the queue.
///
/// # Errors
/// Those of the queue; those of taking but `invalid`.
pub(super) async fn turn(
    shared: &Shared,
    queue: &Queue,
    url: &str,
    triggers: &[Arc<Trigger>],
) -> Result<Option<Error>, Error> {
    let mut messages = queue.receive(WAIT_S).await?;
    if messages.len() == MESSAGES_MAX {
        let more = try_join_all((0..MORE).map(|_| queue.receive(0))).await?;
        messages.extend(more.into_iter().flatten());
    }
    let mut poison = None;
    let mut read = Vec::with_capacity(messages.len());
    for message in messages {
        match queue::read(url, &message.id, &message.body) {
            Ok(events) => read.push((message, events)),
            Err(error) => poison = Some(told(&message, error)),
        }
    }
    let triggers: Vec<_> = triggers.iter().collect();
    let (messages, events): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let done = match take(shared, &triggers, events.concat()).await {
        Ok(()) => messages,
        // One of them; the others are taken by themselves.
        Err(error) if error.kind == Kind::Invalid => {
            let each = messages.into_iter().zip(events).map(async |(message, events)| {
                let taken = take(shared, &triggers, events).await;
                (message, taken)
            });
            let mut done = Vec::new();
            for (message, taken) in join_all(each).await {
                match taken {
                    Ok(()) => done.push(message),
                    Err(error) if error.kind == Kind::Invalid => poison = Some(told(&message, error)),
                    Err(error) => return Err(error),
                }
            }
            done
        }
        Err(error) => return Err(error),
    };
    queue.delete(&done).await?;
    Ok(poison)
}

fn told(message: &Message, error: Error) -> Error {
    error.context(format_args!("message {} stays in the queue", message.id))
}
