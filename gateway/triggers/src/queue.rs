//! Messages of a queue as events: CloudEvents, notifications of S3 stores, and anything else.
//!
//! A notification may come in the envelope in which SNS passes it on. What is neither it nor a CloudEvent becomes an event of type
//! [`MESSAGE`] whose data is the message. An id that the queue gave makes two deliveries of one message one event.

use std::collections::BTreeMap;

use fanfold_protocol::Error;
use serde_json::Value;

use crate::{CloudEvent, Data, event::SPECVERSION, s3};

/// The type of the event of a message that is no event by itself.
pub const MESSAGE: &str = "dev.fanfold.queue.message";

/// The events of a message: `source` is the queue, `id` the message's.
///
/// # Errors
/// `invalid` / `event` for one that looks like a CloudEvent or a notification and is damaged.
pub fn read(source: &str, id: &str, body: &str) -> Result<Vec<CloudEvent>, Error> {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return Ok(vec![message(source, id, Data::Text(body.to_owned()))?]);
    };
    match inner(&value) {
        Some(inner) => of_json(source, id, inner),
        None => of_json(source, id, value),
    }
}

fn of_json(source: &str, id: &str, value: Value) -> Result<Vec<CloudEvent>, Error> {
    let is_event = |value: &Value| value.get("specversion").is_some();
    match value {
        Value::Array(values) if !values.is_empty() && values.iter().all(is_event) => {
            values.into_iter().map(CloudEvent::from_json).collect()
        }
        value if is_event(&value) => Ok(vec![CloudEvent::from_json(value)?]),
        value if is_notification(&value) => s3::read(&value),
        value => Ok(vec![message(source, id, Data::Json(value))?]),
    }
}

/// What SNS has wrapped, where it is JSON.
pub(crate) fn inner(value: &Value) -> Option<Value> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let wrapped = text("Type") == Some("Notification") && value.get("TopicArn").is_some();
    wrapped.then(|| serde_json::from_str(text("Message")?).ok()).flatten()
}

fn is_notification(value: &Value) -> bool {
    let records = value.get("Records").and_then(Value::as_array);
    let of_s3 = |record: &Value| record.get("s3").is_some();
    records.is_some_and(|records| records.iter().any(of_s3))
        || value.get("Event").and_then(Value::as_str) == Some("s3:TestEvent")
}

fn message(source: &str, id: &str, data: Data) -> Result<CloudEvent, Error> {
    let media_type = if matches!(data, Data::Json(_)) { "application/json" } else { "text/plain" };
    let attributes = [
        ("specversion", SPECVERSION),
        ("id", id),
        ("source", source),
        ("type", MESSAGE),
        ("datacontenttype", media_type),
    ];
    let attributes: BTreeMap<_, _> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    CloudEvent::new(attributes, data)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(body: &str, wanted: Result<&[(&str, &str)], &str>) {
        match (read("https://queue/q", "m1", body), wanted) {
            (Ok(events), Ok(wanted)) => {
                let got: Vec<_> = events.iter().map(|event| (event.kind(), event.id())).collect();
                let got: Vec<_> =
                    got.iter().map(|(kind, id)| (*kind, if id.len() > 8 { "digest" } else { id })).collect();
                assert_eq!(got, wanted, "{body}");
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{body}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn messages_become_events() {
        let event = json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "t" });
        check(&event.to_string(), Ok(&[("t", "1")]));
        check(&json!([event, event]).to_string(), Ok(&[("t", "1"), ("t", "1")]));
        check(r#"{"specversion":"1.0","id":"1"}"#, Err("is missing"));
        let object = json!({ "key": "in/a", "size": 3, "eTag": "e" });
        let record = json!({ "eventName": "ObjectCreated:Put", "s3": { "bucket": { "name": "b" }, "object": object } });
        let notification = json!({ "Records": [record] });
        check(&notification.to_string(), Ok(&[("dev.fanfold.object.created", "digest")]));
        let wrapped =
            json!({ "Type": "Notification", "TopicArn": "arn", "Message": notification.to_string() });
        check(&wrapped.to_string(), Ok(&[("dev.fanfold.object.created", "digest")]));
        check(r#"{"Event":"s3:TestEvent"}"#, Ok(&[]));
        check(r#"{"Records":[{"eventName":"ObjectCreated:Put","s3":{}}]}"#, Err("Records[0]"));
        check(r#"{"Records":[1]}"#, Ok(&[(MESSAGE, "m1")]));
        check(r#"{"order":7}"#, Ok(&[(MESSAGE, "m1")]));
        check("plain text", Ok(&[(MESSAGE, "m1")]));
        let read = read("https://queue/q", "m1", "plain text").unwrap();
        assert_eq!(read[0].to_json()["data"], "plain text");
    }
}
