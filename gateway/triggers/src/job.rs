//! Events of jobs that ended: what triggers of kind `job` wait for.

use std::collections::BTreeMap;

use fanfold_protocol::{Digest, Error, FunctionName, JobId, trigger::On};
use serde_json::json;

use crate::{
    CloudEvent, Data,
    event::{HOPS, SPECVERSION, timestamp},
};

const SUCCEEDED: &str = "dev.fanfold.job.succeeded";
const FAILED: &str = "dev.fanfold.job.failed";

/// How a job ended. Times are Unix milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct JobEnd<'a> {
    /// Which.
    pub job: JobId,
    /// Of which function.
    pub function: &'a FunctionName,
    /// The version that ran it.
    pub version: Digest,
    /// When it was accepted.
    pub accepted_at_ms: u64,
    /// When it ended.
    pub ended_at_ms: u64,
    /// Attempts of its root.
    pub attempts: u32,
    /// Why it failed; `None`: it ended well.
    pub error: Option<&'a Error>,
    /// How many runs led to it, itself included; 0 for a job that no trigger fired.
    pub hops: u32,
}

impl JobEnd<'_> {
    /// Its CloudEvent. A job ends once, so its id makes all tellings of it one.
    ///
    /// # Errors
    /// None at present.
    pub fn event(&self) -> Result<CloudEvent, Error> {
        let kind = if self.error.is_some() { FAILED } else { SUCCEEDED };
        let attributes = [
            ("specversion", SPECVERSION.to_owned()),
            ("id", self.job.to_string()),
            ("source", "/v1/jobs".to_owned()),
            ("type", kind.to_owned()),
            ("subject", self.function.to_string()),
            ("time", timestamp(self.ended_at_ms)),
            ("datacontenttype", "application/json".to_owned()),
            (HOPS, self.hops.to_string()),
        ];
        let attributes: BTreeMap<_, _> =
            attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut data = json!({
            "job": self.job,
            "function": self.function,
            "version": self.version,
            "outcome": if self.error.is_some() { On::Failed } else { On::Succeeded },
            "accepted_at_ms": self.accepted_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "attempts": self.attempts,
        });
        if let Some(error) = self.error {
            data["error"] = json!(error);
        }
        CloudEvent::new(attributes, Data::Json(data))
    }
}

/// How the job ended that an event tells of; `None`: it tells of none.
pub fn outcome(event: &CloudEvent) -> Option<On> {
    match event.kind() {
        SUCCEEDED => Some(On::Succeeded),
        FAILED => Some(On::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{Code, Kind, link::ShardTag};

    use super::*;

    #[test]
    fn an_end_is_one_event_with_what_led_to_it() {
        let job = JobId::new(1, ShardTag(7), [0; 8]);
        let error = Error::new(Kind::Guest, Code::ErrorReturned, "no");
        let function = "sort".parse().unwrap();
        let end = JobEnd {
            job,
            function: &function,
            version: Digest::of(b"v"),
            accepted_at_ms: 1,
            ended_at_ms: 2,
            attempts: 3,
            error: Some(&error),
            hops: 2,
        };
        let event = end.event().unwrap();
        assert_eq!((outcome(&event), event.id()), (Some(On::Failed), job.to_string().as_str()));
        assert_eq!(event.identity(), end.event().unwrap().identity());
        assert_eq!(event.to_json()["data"]["error"]["message"], "no");
        assert_eq!(event.hop().unwrap().hops(), 3);
        let well = JobEnd { error: None, ..end }.event().unwrap();
        assert_eq!(outcome(&well), Some(On::Succeeded));
    }
}
