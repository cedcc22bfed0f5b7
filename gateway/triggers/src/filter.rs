//! Which event fires which trigger, and why not.

use fanfold_protocol::{
    Error,
    trigger::{Source, Trigger},
};

use crate::{CloudEvent, ObjectChange, job, stream};

/// Why an event does not fire a trigger, in words; `Ok` where it does. Whether the trigger is paused is not asked.
pub fn verdict(trigger: &Trigger, event: &CloudEvent, object: Option<&ObjectChange>) -> Result<(), String> {
    match trigger.kind {
        Source::Objects => match object {
            Some(change) => of_object(trigger, change),
            None => Err(format!("the event is no object's: its type is {}", event.kind())),
        },
        Source::Event => of_attributes(trigger, event),
        Source::Job => of_job(trigger, event),
        Source::Stream => of_stream(trigger, event),
        Source::Cron | Source::Interval => {
            Err(format!("its kind is {}, which no event fires", trigger.kind.name()))
        }
    }
}

/// [`verdict`] for an event of which nobody has looked yet whether it is an object's.
///
/// # Errors
/// As [`ObjectChange::of`].
pub fn read(event: CloudEvent) -> Result<(CloudEvent, Option<ObjectChange>), Error> {
    let object = ObjectChange::of(&event)?;
    Ok((event, object))
}

/// Whether a listing's entry can fire a trigger: key and size, whatever happened to it.
pub fn wants(trigger: &Trigger, key: &str, bytes: u64) -> bool {
    key_fits(trigger, key).is_ok() && size_fits(trigger, Some(bytes)).is_ok()
}

fn of_object(trigger: &Trigger, change: &ObjectChange) -> Result<(), String> {
    if trigger.bucket != change.bucket {
        let shown =
            |bucket: &Option<String>| bucket.clone().unwrap_or_else(|| "the platform's own objects".into());
        return Err(format!(
            "it waits for {} and the object is of {}",
            shown(&trigger.bucket),
            shown(&change.bucket)
        ));
    }
    if !trigger.waits_for(change.change.into()) {
        let what = serde_json::to_string(&change.change).unwrap_or_default();
        return Err(format!("it does not wait for objects that are {}", what.trim_matches('"')));
    }
    key_fits(trigger, &change.key)?;
    size_fits(trigger, change.bytes)
}

fn key_fits(trigger: &Trigger, key: &str) -> Result<(), String> {
    let Trigger { prefix, suffix, .. } = trigger;
    if !key.starts_with(prefix) {
        return Err(format!("key `{}` does not begin with `{prefix}`", key.escape_debug()));
    }
    // The two may not share characters: prefix `a.` and suffix `.b` do not fit `a.b`.
    if !key[prefix.len()..].ends_with(suffix) {
        return Err(format!("key `{}` does not end with `{suffix}`", key.escape_debug()));
    }
    Ok(())
}

/// Of a removal nobody knows the size, so it fits.
fn size_fits(trigger: &Trigger, bytes: Option<u64>) -> Result<(), String> {
    let Some(bytes) = bytes else { return Ok(()) };
    if trigger.bytes_min.is_some_and(|min| bytes < min) {
        return Err(format!("the object has {bytes} bytes, below bytes_min"));
    }
    if trigger.bytes_max.is_some_and(|max| bytes > max) {
        return Err(format!("the object has {bytes} bytes, above bytes_max"));
    }
    Ok(())
}

fn of_job(trigger: &Trigger, event: &CloudEvent) -> Result<(), String> {
    let Some(outcome) = job::outcome(event) else {
        return Err(format!("the event is no job's end: its type is {}", event.kind()));
    };
    let (subject, after) = (event.attribute("subject").unwrap_or_default(), trigger.after.as_ref());
    if after.is_none_or(|after| after.as_str() != subject) {
        let after = after.map_or("", |after| after.as_str());
        return Err(format!(
            "it waits for jobs of `{after}`, and the job is of `{}`",
            subject.escape_debug()
        ));
    }
    match trigger.waits_for(outcome) {
        true => Ok(()),
        false => Err(format!("it does not wait for events of type {}", event.kind())),
    }
}

fn of_stream(trigger: &Trigger, event: &CloudEvent) -> Result<(), String> {
    let wanted = stream::source(trigger.stream.as_deref().unwrap_or_default());
    match (event.kind(), event.attribute("source")) {
        (stream::ENTRY, Some(source)) if source == wanted => Ok(()),
        (kind, source) => {
            let source = source.unwrap_or_default().escape_debug();
            Err(format!("it waits for entries of {wanted}, and the event is a {kind} of {source}"))
        }
    }
}

fn of_attributes(trigger: &Trigger, event: &CloudEvent) -> Result<(), String> {
    for (name, wanted) in &trigger.filter {
        let Some(value) = event.attribute(name) else {
            return Err(format!("the event has no attribute `{name}`"));
        };
        let fits = match wanted.strip_suffix('*') {
            Some(prefix) => value.starts_with(prefix),
            None => value == wanted,
        };
        if !fits {
            return Err(format!("attribute `{name}` is `{}`, not `{wanted}`", value.escape_debug()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(trigger: serde_json::Value, event: serde_json::Value, wanted: Result<(), &str>) {
        let trigger: Trigger = serde_json::from_value(trigger).unwrap();
        let mut whole = json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "t" });
        whole.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        let (event, object) = read(CloudEvent::from_json(whole).unwrap()).unwrap();
        match (verdict(&trigger, &event, object.as_ref()), wanted) {
            (Ok(()), Ok(())) => {}
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (got, wanted) => panic!("{event:?}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn filters_say_why_not() {
        let object = |change: &str, key: &str, bytes: u64| {
            let data = json!({ "key": key, "change": change, "bytes": bytes, "at_ms": 0 });
            json!({ "type": format!("dev.fanfold.object.{change}"), "data": data })
        };
        let photos =
            json!({ "kind": "objects", "prefix": "in/", "suffix": ".jpg", "bytes_min": 10, "bytes_max": 20 });
        check(photos.clone(), object("created", "in/a.jpg", 10), Ok(()));
        check(photos.clone(), object("created", "out/a.jpg", 10), Err("does not begin with `in/`"));
        check(photos.clone(), object("created", "in/a.png", 10), Err("does not end with `.jpg`"));
        check(photos.clone(), object("created", "in/a.jpg", 9), Err("below"));
        check(photos.clone(), object("created", "in/a.jpg", 21), Err("above"));
        check(photos.clone(), object("removed", "in/a.jpg", 10), Err("are removed"));
        check(photos, json!({}), Err("no object's"));
        check(
            json!({ "kind": "objects", "prefix": "a.", "suffix": ".b" }),
            object("created", "a.b", 1),
            Err("end with"),
        );
        check(json!({ "kind": "objects", "bucket": "b" }), object("created", "k", 1), Err("platform's own"));

        let orders = json!({ "kind": "event", "filter": { "type": "com.example.*", "subject": "order" } });
        check(orders.clone(), json!({ "type": "com.example.new", "subject": "order" }), Ok(()));
        check(orders.clone(), json!({ "type": "com.example.new" }), Err("no attribute `subject`"));
        check(
            orders.clone(),
            json!({ "type": "org.example", "subject": "order" }),
            Err("`type` is `org.example`"),
        );
        check(orders, json!({ "type": "com.example.", "subject": "orders" }), Err("not `order`"));

        let failed = json!({ "kind": "job", "after": "sort", "on": ["failed"] });
        let end = |how: &str, of: &str| json!({ "type": format!("dev.fanfold.job.{how}"), "subject": of });
        check(failed.clone(), end("failed", "sort"), Ok(()));
        check(failed.clone(), end("failed", "other"), Err("the job is of `other`"));
        check(failed.clone(), end("succeeded", "sort"), Err("does not wait"));
        check(failed, json!({}), Err("no job's end"));
        check(json!({ "kind": "job", "after": "sort" }), end("succeeded", "sort"), Ok(()));
        check(json!({ "kind": "interval" }), json!({}), Err("no event fires"));
    }
}
