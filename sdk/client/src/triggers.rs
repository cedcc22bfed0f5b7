//! Triggers, and events sent to them.

use bytes::Bytes;
use fanfold_protocol::{
    limit,
    rest::{EventsView, TriggerView},
    trigger::Trigger,
};
use futures::TryStreamExt as _;
use reqwest::{
    Method,
    header::{CONTENT_TYPE, HeaderValue},
};

use crate::{
    Client, Error,
    request::{Body, Request},
};

impl Client {
    /// Adds a trigger, or puts another definition in place of the one it has.
    ///
    /// # Errors
    /// `invalid` with what is wrong with the definition; `not-found` for an unknown function.
    pub async fn set_trigger(&self, name: &str, definition: &Trigger) -> Result<TriggerView, Error> {
        self.json(&Request::new(Method::PUT, self.trigger_url(name)).json(definition)?).await
    }

    /// All triggers, by name.
    ///
    /// # Errors
    /// Those of any request.
    pub async fn triggers(&self) -> Result<Vec<TriggerView>, Error> {
        let page = vec![("limit", limit::LIST_PAGE_MAX.to_string())];
        self.pages(self.at(["v1", "triggers"]), page).try_collect().await
    }

    /// One trigger: its definition, what waits, its last runs.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn trigger(&self, name: &str) -> Result<TriggerView, Error> {
        self.json(&Request::get(self.trigger_url(name))).await
    }

    /// Removes a trigger. What it fired goes on.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn remove_trigger(&self, name: &str) -> Result<(), Error> {
        self.bytes(&Request::new(Method::DELETE, self.trigger_url(name))).await.map(drop)
    }

    /// Sends events: `content_type` says whether the body is one CloudEvent (`application/cloudevents+json`), a list of them
    /// (`application/cloudevents-batch+json`) or a notification of an S3 store (`application/json`). Recorded on return. Harmless to
    /// repeat, as every event has an identity of its own.
    ///
    /// # Errors
    /// `invalid` with what is wrong with the event.
    pub async fn post_events(
        &self,
        content_type: &'static str,
        events: impl Into<Bytes>,
    ) -> Result<EventsView, Error> {
        self.json(&self.events(content_type, events.into())).await
    }

    /// What events would do to each trigger, and why not; nothing happens.
    ///
    /// # Errors
    /// As [`Client::post_events`].
    pub async fn try_events(
        &self,
        content_type: &'static str,
        events: impl Into<Bytes>,
    ) -> Result<EventsView, Error> {
        self.json(&self.events(content_type, events.into()).query("dry_run", "true")).await
    }

    fn events(&self, content_type: &'static str, events: Bytes) -> Request {
        let mut request = Request::new(Method::POST, self.at(["v1", "events"]));
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Request { body: Body::Upload(events.into()), ..request }
    }

    fn trigger_url(&self, name: &str) -> reqwest::Url {
        self.at(["v1", "triggers", name])
    }
}
