//! CloudEvents over HTTP: binary, structured and batched content. Source: the HTTP protocol binding of CloudEvents 1.0.2.

use std::collections::BTreeMap;

use ::http::{HeaderMap, header};
use bytes::Bytes;
use fanfold_protocol::{Error, limit};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::{
    CloudEvent, Data,
    event::{is_json, refuse},
    queue, s3,
};

const PREFIX: &str = "ce-";

/// The events of a request: of a CloudEvent in any of its three modes, or of a notification of an S3 store, which is plain JSON.
///
/// # Errors
/// `invalid` / `event`, saying what was expected.
pub fn read(headers: &HeaderMap, body: &Bytes) -> Result<Vec<CloudEvent>, Error> {
    let media_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let events = match essence.as_str() {
        "application/cloudevents+json" => vec![CloudEvent::from_json(json(body)?)?],
        "application/cloudevents-batch+json" => batch(json(body)?)?,
        other if other.starts_with("application/cloudevents") => {
            return Err(refuse(format!("`{other}` is not understood: send application/cloudevents+json")));
        }
        _ if headers.contains_key("ce-specversion") => vec![binary(headers, media_type, body)?],
        "application/json" => notification(&json(body)?)?,
        "text/plain" if wrapped(body).is_some() => notification(&json(body)?)?,
        _ => {
            let why = "the request is no CloudEvent: send application/cloudevents+json, or ce-specversion, ce-id, ce-source and \
                       ce-type as headers; or a notification of an S3 store as application/json";
            return Err(refuse(why));
        }
    };
    if events.len() > limit::EVENTS_MAX {
        return Err(refuse(format!(
            "{} events in one request: send at most {}",
            events.len(),
            limit::EVENTS_MAX
        )));
    }
    Ok(events)
}

/// A notification of an S3 store, as it is or as SNS passes it on.
fn notification(value: &Value) -> Result<Vec<CloudEvent>, Error> {
    match value.get("Type").and_then(Value::as_str) {
        Some("SubscriptionConfirmation") => Err(refuse(
            "the topic asks whether it may send: confirm the subscription by the URL in its request, SubscribeURL",
        )),
        Some("Notification") => queue::inner(value).map_or_else(|| s3::read(value), |inner| s3::read(&inner)),
        _ => s3::read(value),
    }
}

/// What SNS sends, whose media type is plain text.
fn wrapped(body: &[u8]) -> Option<Value> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value.get("TopicArn").is_some().then_some(value)
}

fn json(body: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(body).map_err(|e| refuse(format!("the body is no JSON: {e}")))
}

fn batch(value: Value) -> Result<Vec<CloudEvent>, Error> {
    let Value::Array(values) = value else { return Err(refuse("a batch of CloudEvents is a list")) };
    let event = |(index, value)| {
        CloudEvent::from_json(value)
            .map_err(|error| error.context(format_args!("number {index} of the batch")))
    };
    values.into_iter().enumerate().map(event).collect()
}

fn binary(headers: &HeaderMap, media_type: &str, body: &Bytes) -> Result<CloudEvent, Error> {
    let mut attributes = BTreeMap::new();
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(PREFIX) else { continue };
        let text = value.to_str().ok().map(|text| percent_decode_str(text.trim_matches('"')).decode_utf8());
        let Some(Ok(text)) = text else {
            return Err(refuse(format!("header `{header}` is not text: percent-encode what is not ASCII")));
        };
        if attributes.insert(name.to_owned(), text.into_owned()).is_some() {
            return Err(refuse(format!("header `{header}` is there twice")));
        }
    }
    if !media_type.is_empty() {
        attributes.insert("datacontenttype".into(), media_type.to_owned());
    }
    let data = match body.is_empty() {
        true => Data::None,
        false if is_json(media_type) => Data::Json(json(body)?),
        false => Data::Bytes(body.clone()),
    };
    CloudEvent::new(attributes, data)
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&str, &str)], body: &[u8], wanted: Result<&[(&str, Data)], &str>) {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
        };
        let map: HeaderMap = headers.iter().map(header).collect();
        match (read(&map, &Bytes::copy_from_slice(body)), wanted) {
            (Ok(events), Ok(wanted)) => {
                let got: Vec<_> = events.iter().map(|event| (event.id(), event.data.clone())).collect();
                assert_eq!(got, wanted);
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{headers:?}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn all_three_modes_are_read() {
        let binary =
            [("ce-specversion", "1.0"), ("ce-id", "a%20%C3%BC"), ("ce-source", "/s"), ("ce-type", "t")];
        check(&binary, b"", Ok(&[("a ü", Data::None)]));
        let long = Bytes::from(vec![7; 1 << 20]);
        check(&binary, &long, Ok(&[("a ü", Data::Bytes(long.clone()))]));
        let json = [&binary[..], &[("content-type", "application/json")]].concat();
        check(&json, b"{\"n\":1}", Ok(&[("a ü", Data::Json(serde_json::json!({ "n": 1 })))]));
        check(&json, b"{", Err("no JSON"));
        check(&binary[..3], b"", Err("`type` is missing"));
        check(&[&binary[1..], &[("ce-specversion", "2.0")]].concat(), b"", Err("specversion is `2.0`"));
        check(
            &[&binary[..], &[("ce-bad_name", "x")]].concat(),
            b"",
            Err("`bad_name` is no attribute's name"),
        );

        let event = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t"}"#;
        let structured = [("content-type", "application/cloudevents+json; charset=UTF-8")];
        check(&structured, event.as_bytes(), Ok(&[("1", Data::None)]));
        check(&structured, format!("[{event}]").as_bytes(), Err("an object"));
        let batched = [("content-type", "application/cloudevents-batch+json")];
        check(&batched, format!("[{event},{event}]").as_bytes(), Ok(&[("1", Data::None), ("1", Data::None)]));
        check(&batched, b"[]", Ok(&[]));
        check(&batched, format!("[{event},{{}}]").as_bytes(), Err("number 1 of the batch"));
        check(&batched, event.as_bytes(), Err("is a list"));
        check(&[("content-type", "application/cloudevents+avro")], b"", Err("is not understood"));
        check(&[("content-type", "text/plain")], b"x", Err("no CloudEvent"));
        let sns = |kind: &str| {
            let message = serde_json::json!({ "Event": "s3:TestEvent" }).to_string();
            serde_json::json!({ "Type": kind, "TopicArn": "arn", "Message": message }).to_string()
        };
        check(&[("content-type", "text/plain; charset=UTF-8")], sns("Notification").as_bytes(), Ok(&[]));
        let confirm = sns("SubscriptionConfirmation");
        check(&[("content-type", "text/plain")], confirm.as_bytes(), Err("confirm the subscription"));
    }
}
