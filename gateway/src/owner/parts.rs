//! Batches in parts: jobs for some of a batch's events, whichever form its input has.

use std::ops::Range;

use fanfold_protocol::{
    Code, Error,
    record::{Accepted, Fired, Input},
};
use fanfold_triggers::manifest::{self, Table};
use serde_json::Value;

use super::{Owner, messages::NewJob};

/// A batch that was accepted, with its input.
pub(super) struct Whole<'a> {
    pub accepted: &'a Accepted,
    items: Items,
}

/// The events of its input.
enum Items {
    List(Vec<Value>),
    Table(Table),
}

impl Items {
    fn cut(&self, range: Range<usize>) -> Result<bytes::Bytes, Error> {
        match self {
            Self::Table(table) => table.slice(range),
            Self::List(events) => {
                let events = events.get(range).ok_or_else(damaged)?;
                Ok(serde_json::to_vec(events).map_err(|_| damaged())?.into())
            }
        }
    }
}

impl Owner {
    /// Reads the input of a batch, as long as it is kept.
    ///
    /// # Errors
    /// `lost` where it cannot be read.
    pub(super) async fn batch_of<'a>(&self, accepted: &'a Accepted) -> Result<Whole<'a>, Error> {
        let (input, content_type) = self.input_of(accepted).await?;
        let items = match content_type == manifest::MEDIA_TYPE {
            true => Items::Table(Table::read(&input)?),
            false => Items::List(serde_json::from_slice(&input).map_err(|_| damaged())?),
        };
        Ok(Whole { accepted, items })
    }

    /// A job for some events of a batch.
    ///
    /// # Errors
    /// `not-found` / `version`; `platform` where the input is none of a batch.
    pub(super) fn part(&self, batch: &Whole<'_>, range: Range<usize>) -> Result<NewJob, Error> {
        let Whole { accepted, items } = batch;
        let (Input::Inline { content_type, .. } | Input::Stored { content_type, .. }) = &accepted.input;
        let fired = accepted.fired.as_deref().ok_or_else(damaged)?;
        let events = fired.events.get(range.clone()).ok_or_else(damaged)?.to_vec();
        let unknown = || Error::not_found(Code::Version, "the version of a batch is not known any more");
        Ok(NewJob {
            function: self.shared.registry.version(&accepted.version).ok_or_else(unknown)?,
            entry: accepted.entry.clone(),
            input: items.cut(range)?,
            content_type: content_type.clone(),
            idempotency: None,
            traceparent: accepted.traceparent.clone(),
            batch: accepted.batch,
            fired: Some(Box::new(Fired { events, ..fired.clone() })),
        })
    }
}

fn damaged() -> Error {
    Error::internal("the input of a batch is no list of its events")
}
