//! The envelope in which SNS passes on what it was sent. Source: "Parsing Amazon SNS message formats" of its developer guide.

use fanfold_protocol::Error;
use serde_json::Value;

use crate::event::refuse;

/// Whether it is one.
pub fn is_envelope(value: &Value) -> bool {
    value.get("TopicArn").is_some() && value.get("Type").is_some()
}

/// What is in the envelope.
///
/// # Errors
/// `invalid` / `event` where that is no JSON, and for a topic that asks whether it may send.
pub fn open(envelope: &Value) -> Result<Value, Error> {
    let text = |name: &str| envelope.get(name).and_then(Value::as_str);
    match (text("Type"), text("Message")) {
        (Some("Notification"), Some(message)) => {
            serde_json::from_str(message).map_err(|e| refuse(format!("the topic's message is no JSON: {e}")))
        }
        _ => Err(refuse(
            "the topic asks whether it may send: confirm the subscription by the URL in its request, SubscribeURL",
        )),
    }
}
