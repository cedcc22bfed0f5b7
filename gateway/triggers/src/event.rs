//! CloudEvents 1.0: attributes, data, and the JSON form. Source: the CloudEvents specification 1.0.2 and its JSON event format.
//!
//! Attribute values are kept as their canonical strings, so numbers and booleans of the JSON form come out as strings.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use fanfold_protocol::{Code, Digest, Error, Kind, limit};
use serde_json::{Map, Value};

/// The version that is spoken.
pub const SPECVERSION: &str = "1.0";
/// The attribute that counts how many runs led to an event.
pub const HOPS: &str = "fanfoldhops";
/// Attributes that every event has.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];
/// Characters of an attribute's name: the specification asks senders for at most 20, and receivers to be kinder.
const NAME_LEN_MAX: usize = 64;

/// One event. Its attributes are checked: the required ones are there and not empty, names and times are well formed.
#[derive(Clone, PartialEq, Debug)]
pub struct CloudEvent {
    attributes: BTreeMap<String, String>,
    /// What it carries.
    pub data: Data,
}

/// What an event carries.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Data {
    /// Nothing.
    #[default]
    None,
    /// A JSON value.
    Json(Value),
    /// Text of another media type.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
}

impl CloudEvent {
    /// An event of these attributes, `specversion` included.
    ///
    /// # Errors
    /// `invalid` / `event`, naming the attribute.
    pub fn new(attributes: BTreeMap<String, String>, data: Data) -> Result<Self, Error> {
        for name in REQUIRED {
            if attributes.get(name).is_none_or(String::is_empty) {
                return Err(refuse(format!(
                    "attribute `{name}` is missing: CloudEvents need id, source, type and specversion"
                )));
            }
        }
        let version = &attributes["specversion"];
        if version != SPECVERSION {
            let shown = version.escape_debug();
            return Err(refuse(format!("specversion is `{shown}`: this gateway speaks {SPECVERSION}")));
        }
        for (name, value) in &attributes {
            check_attribute(name, value)?;
        }
        Ok(Self { attributes, data })
    }

    /// An attribute's value.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// All attributes, by name.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }

    /// Its `id`.
    pub fn id(&self) -> &str {
        self.attribute("id").unwrap_or_default()
    }

    /// Its `type`.
    pub fn kind(&self) -> &str {
        self.attribute("type").unwrap_or_default()
    }

    /// What makes it the same event wherever it comes from: `source` and `id`.
    pub fn identity(&self) -> Digest {
        let source = self.attribute("source").unwrap_or_default();
        Digest::of_parts(&[source.as_bytes(), self.id().as_bytes()])
    }

    /// How many runs led to it, as far as it says.
    pub fn hops(&self) -> u32 {
        self.attribute(HOPS).and_then(|hops| hops.parse().ok()).unwrap_or(0)
    }

    /// The same event, to which so many runs led, whatever it says itself.
    pub fn after(mut self, hops: u32) -> Self {
        self.attributes.insert(HOPS.to_owned(), hops.to_string());
        self
    }

    /// The same event one run further.
    ///
    /// # Errors
    /// `invalid` / `event` for one that has come through [`limit::HOPS_MAX`] runs already, and for a count that is none.
    pub fn hop(mut self) -> Result<Self, Error> {
        let hops = match self.attribute(HOPS).map(str::parse::<u32>) {
            None => 0,
            Some(Ok(hops)) => hops,
            Some(Err(_)) => {
                return Err(refuse(format!(
                    "attribute `{HOPS}` is no number: leave it as the function got it"
                )));
            }
        };
        if hops >= limit::HOPS_MAX {
            let why = format!(
                "the event came through {hops} runs, one after the other, which looks like a loop: let no function emit what \
                 fires it"
            );
            return Err(refuse(why));
        }
        self.attributes.insert(HOPS.to_owned(), (hops + 1).to_string());
        Ok(self)
    }

    /// This event on the way that another one has come.
    #[must_use]
    pub fn on_the_way_of(mut self, other: &Self) -> Self {
        for name in [HOPS, "traceparent"] {
            if let Some(value) = other.attribute(name) {
                self.attributes.insert(name.to_owned(), value.to_owned());
            }
        }
        self
    }

    /// The event of a JSON object in the JSON event format.
    ///
    /// # Errors
    /// `invalid` / `event`.
    pub fn from_json(value: Value) -> Result<Self, Error> {
        let Value::Object(mut members) = value else {
            return Err(refuse("a CloudEvent in JSON is an object"));
        };
        let (data, encoded) = (members.remove("data"), members.remove("data_base64"));
        let mut attributes = BTreeMap::new();
        for (name, value) in members {
            if let Some(value) = attribute_text(&name, value)? {
                attributes.insert(name, value);
            }
        }
        let json = attributes.get("datacontenttype").is_none_or(|kind| is_json(kind));
        let data = match (data, encoded) {
            (Some(Value::Null), None) | (None, None | Some(Value::Null)) => Data::None,
            (Some(Value::String(text)), None) if !json => Data::Text(text),
            (Some(value), None) => Data::Json(value),
            (None, Some(Value::String(text))) => {
                let bytes = STANDARD.decode(&text);
                Data::Bytes(bytes.map_err(|e| refuse(format!("data_base64 is not base64: {e}")))?.into())
            }
            (None, Some(_)) => return Err(refuse("data_base64 is no string")),
            (Some(_), Some(_)) => {
                return Err(refuse("data and data_base64 are both there: send one of them"));
            }
        };
        Self::new(attributes, data)
    }

    /// The event in the JSON event format.
    pub fn to_json(&self) -> Value {
        let text = |value: &String| Value::String(value.clone());
        let mut members: Map<_, _> =
            self.attributes.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        match &self.data {
            Data::None => {}
            Data::Json(value) => {
                members.insert("data".into(), value.clone());
            }
            Data::Text(value) => {
                members.insert("data".into(), text(value));
            }
            Data::Bytes(bytes) => {
                members.insert("data_base64".into(), STANDARD.encode(bytes).into());
            }
        }
        Value::Object(members)
    }

    /// The bytes of its data alone.
    pub fn data_bytes(&self) -> Bytes {
        match &self.data {
            Data::None => Bytes::new(),
            Data::Json(value) => value.to_string().into(),
            Data::Text(text) => text.clone().into(),
            Data::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// Whether a media type is JSON: `application/json` or anything that ends in `+json`.
pub fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// A JSON member as an attribute; `None`: null, which stands for an attribute that is not there.
fn attribute_text(name: &str, value: Value) -> Result<Option<String>, Error> {
    match value {
        Value::String(text) => Ok(Some(text)),
        Value::Bool(value) => Ok(Some(value.to_string())),
        Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
            Ok(Some(number.to_string()))
        }
        Value::Null => Ok(None),
        _ => {
            let shown = name.escape_debug();
            Err(refuse(format!("attribute `{shown}` is neither a string, a boolean nor a 32-bit number")))
        }
    }
}

fn check_attribute(name: &str, value: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(plain) {
        let shown = name.chars().take(NAME_LEN_MAX).collect::<String>();
        let shown = shown.escape_debug();
        return Err(refuse(format!(
            "`{shown}` is no attribute's name: use a-z and 0-9, at most {NAME_LEN_MAX} of them"
        )));
    }
    if value.chars().any(char::is_control) {
        return Err(refuse(format!("attribute `{name}` has control characters")));
    }
    if name == "time" && DateTime::parse_from_rfc3339(value).is_err() {
        let shown = value.escape_debug();
        return Err(refuse(format!("time is `{shown}`: write it as 2026-01-31T12:00:00Z")));
    }
    Ok(())
}

/// A Unix time as an attribute's value.
pub fn timestamp(at_ms: u64) -> String {
    let time = i64::try_from(at_ms).ok().and_then(DateTime::from_timestamp_millis).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// An event that cannot be understood.
pub(crate) fn refuse(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Invalid, Code::Event, message).context("event")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: Value, wanted: Result<Data, &str>) {
        match (CloudEvent::from_json(value.clone()), wanted) {
            (Ok(event), Ok(data)) => {
                assert_eq!(event.data, data);
                assert_eq!(
                    CloudEvent::from_json(event.to_json()).unwrap(),
                    event,
                    "it survives its own form"
                );
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{value}: {got:?}, wanted {wanted:?}"),
        }
    }

    fn with(more: Value) -> Value {
        let mut event = json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "t" });
        let (Value::Object(members), Value::Object(more)) = (&mut event, more) else { panic!("objects") };
        members.extend(more);
        event
    }

    #[test]
    fn the_json_form_is_read_as_the_specification_says() {
        check(with(json!({})), Ok(Data::None));
        check(with(json!({ "data": null, "subject": null })), Ok(Data::None));
        check(with(json!({ "data": { "a": [1] } })), Ok(Data::Json(json!({ "a": [1] }))));
        check(with(json!({ "data": "x" })), Ok(Data::Json(json!("x"))));
        check(with(json!({ "data": "x", "datacontenttype": "text/plain" })), Ok(Data::Text("x".into())));
        check(
            with(json!({ "data": 1, "datacontenttype": "application/vnd.a+json; charset=utf-8" })),
            Ok(Data::Json(json!(1))),
        );
        check(with(json!({ "data_base64": "AP8=" })), Ok(Data::Bytes(Bytes::from_static(&[0, 255]))));
        check(with(json!({ "data_base64": "AP8" })), Err("not base64"));
        check(with(json!({ "data": 1, "data_base64": "AP8=" })), Err("both there"));
        check(with(json!({ "comexample": 5, "flag": true })), Ok(Data::None));
        check(with(json!({ "com_example": "x" })), Err("`com_example` is no attribute's name"));
        check(with(json!({ "list": [1] })), Err("`list` is neither"));
        check(with(json!({ "big": 3_000_000_000_u32 })), Err("32-bit"));
        check(with(json!({ "time": "yesterday" })), Err("time is `yesterday`"));
        check(with(json!({ "time": "2026-03-29T01:00:00.5+02:00" })), Ok(Data::None));
        check(with(json!({ "specversion": "0.3" })), Err("specversion is `0.3`"));
        for name in REQUIRED {
            check(with(json!({ name: "" })), Err(name));
            check(with(json!({ name: null })), Err(name));
        }
        check(json!([]), Err("an object"));
    }

    #[test]
    fn a_chain_of_runs_ends() {
        let mut event = CloudEvent::from_json(with(json!({}))).unwrap();
        for hops in 1..=limit::HOPS_MAX {
            event = event.hop().unwrap();
            assert_eq!(event.attribute(HOPS), Some(hops.to_string().as_str()));
        }
        let other = CloudEvent::from_json(with(json!({ "id": "other" }))).unwrap().on_the_way_of(&event);
        assert_eq!(other.id(), "other");
        for event in [event, other] {
            assert!(event.hop().unwrap_err().message.contains("loop"));
        }
    }
}
