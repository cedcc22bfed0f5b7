//! What the answer of a trigger's run means beyond itself: events that it emits, and events of its batch that failed.
//!
//! Both are read only where the trigger says so (`emits`, `batch.partial`), so that no answer means something by accident.

use fanfold_protocol::{Error, limit};
use serde::Deserialize;
use serde_json::Value;

use crate::{CloudEvent, event::refuse};

/// An event of a batch of which the function says that it failed.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct FailedItem {
    /// Which: counted from 0, in the order of the input.
    pub item: usize,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
    /// Whether it may succeed when it is tried again.
    #[serde(default)]
    pub retryable: bool,
}

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    failed: Vec<FailedItem>,
}

/// The events of a batch of `count` that failed, each once, in their order. An answer without a list `failed` says that none did.
///
/// # Errors
/// `invalid` / `event` for a list that cannot be understood: then nobody knows which failed.
pub fn failed(answer: &[u8], count: usize) -> Result<Vec<FailedItem>, Error> {
    let Ok(value) = serde_json::from_slice::<Value>(answer) else { return Ok(Vec::new()) };
    if !value.is_object() {
        return Ok(Vec::new());
    }
    let report: Report = serde_json::from_value(value)
        .map_err(|e| refuse(format!("the answer's list of what failed cannot be understood: {e}")))?;
    let mut failed = report.failed;
    if let Some(FailedItem { item, .. }) = failed.iter().find(|failed| failed.item >= count) {
        let why =
            format!("the answer says that item {item} failed, and the batch has {count}, counted from 0");
        return Err(refuse(why));
    }
    failed.sort_by_key(|failed| failed.item);
    failed.dedup_by_key(|failed| failed.item);
    Ok(failed)
}

/// The CloudEvents that an answer is: one, or a list of them. Anything else is none.
///
/// # Errors
/// `invalid` / `event` for one that breaks the specification, has another type than `emits` allows, or is one of too many.
pub fn emitted(answer: &[u8], emits: &str) -> Result<Vec<CloudEvent>, Error> {
    let is_event = |value: &Value| value.get("specversion").is_some();
    let values = match serde_json::from_slice::<Value>(answer) {
        Ok(Value::Array(values)) if values.iter().all(is_event) => values,
        Ok(value) if is_event(&value) => vec![value],
        _ => return Ok(Vec::new()),
    };
    if values.len() > limit::EVENTS_MAX {
        let (count, max) = (values.len(), limit::EVENTS_MAX);
        return Err(refuse(format!("the answer emits {count} events: emit at most {max}")));
    }
    let event = |(index, value)| {
        let event = CloudEvent::from_json(value)?;
        let fits = match emits.strip_suffix('*') {
            Some(stem) => event.kind().starts_with(stem),
            None => event.kind() == emits,
        };
        if !fits {
            let kind = event.kind().escape_debug();
            let why = format!(
                "event {index} of the answer is of type `{kind}`, and the trigger's emits says `{emits}`"
            );
            return Err(refuse(why));
        }
        Ok(event)
    };
    values.into_iter().enumerate().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_failed() {
        let check =
            |answer: &str, wanted: Result<&[usize], &str>| match (failed(answer.as_bytes(), 3), wanted) {
                (Ok(failed), Ok(wanted)) => {
                    assert_eq!(failed.iter().map(|failed| failed.item).collect::<Vec<_>>(), wanted);
                }
                (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
                (got, wanted) => panic!("{answer}: {got:?}, wanted {wanted:?}"),
            };
        check(r#"{"failed":[{"item":2,"reason":"a"},{"item":0},{"item":2}],"made":[1]}"#, Ok(&[0, 2]));
        check(r#"{"made":[1]}"#, Ok(&[]));
        check("[1]", Ok(&[]));
        check("\"done\"", Ok(&[]));
        check("", Ok(&[]));
        check(r#"{"failed":[{"item":3}]}"#, Err("item 3 failed, and the batch has 3"));
        check(r#"{"failed":[{"item":-1}]}"#, Err("cannot be understood"));
        check(r#"{"failed":{}}"#, Err("cannot be understood"));
    }

    #[test]
    fn an_answer_emits_what_it_may() {
        let check =
            |answer: &str, wanted: Result<usize, &str>| match (emitted(answer.as_bytes(), "a.*"), wanted) {
                (Ok(events), Ok(wanted)) => assert_eq!(events.len(), wanted, "{answer}"),
                (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
                (got, wanted) => panic!("{answer}: {got:?}, wanted {wanted:?}"),
            };
        let event = r#"{"specversion":"1.0","id":"1","source":"/s","type":"a.b"}"#;
        check(event, Ok(1));
        check(&format!("[{event},{event}]"), Ok(2));
        check("[]", Ok(0));
        check("[1]", Ok(0));
        check("{}", Ok(0));
        check("no JSON", Ok(0));
        check(&event.replace("a.b", "b"), Err("emits says `a.*`"));
        check(&event.replace("1.0", "2.0"), Err("specversion"));
    }
}
