//! The guard against loops: triggers that fire themselves, at once or by way of others, by what their function writes, emits, or by
//! its end alone.

use std::collections::BTreeSet;

use fanfold_protocol::{
    Error, FunctionName,
    trigger::{self, On, Source, Trigger},
};

/// Refuses `new` where what comes of its runs can fire it, by way of any of the `others` too: the keys that it says it writes
/// (`output`), the types that it says it emits (`emits`), and the ends of its jobs.
///
/// A prefix is all that is known of what is written, so two that overlap count as a loop unless no key can have both: a
/// suffix does not save it, since nobody knows how the written keys end.
///
/// # Errors
/// `invalid` / `trigger`, naming the way around.
pub fn refuse_loop<'a>(
    name: &FunctionName,
    new: &Trigger,
    others: impl Iterator<Item = (&'a FunctionName, &'a Trigger)> + Clone,
) -> Result<(), Error> {
    let mut ahead = vec![(new, vec![name])];
    let mut seen = BTreeSet::new();
    while let Some((from, way)) = ahead.pop() {
        if feeds(from, new) {
            let way: Vec<_> = way.iter().map(|name| name.as_str()).collect();
            let by =
                if way.len() > 1 { format!(" by way of {}", way[1..].join(", ")) } else { String::new() };
            let why = format!("it would fire itself{by}: {}", reason(from, new));
            return Err(trigger::refuse(why));
        }
        for (other, definition) in others.clone().filter(|(other, _)| *other != name) {
            if feeds(from, definition) && seen.insert(other) {
                ahead.push((definition, way.iter().copied().chain([other]).collect()));
            }
        }
    }
    Ok(())
}

/// Whether what comes of a run of `from` can fire `to`.
fn feeds(from: &Trigger, to: &Trigger) -> bool {
    match to.kind {
        Source::Objects => {
            let Some(output) = &from.output else { return false };
            let waits = to.bucket == from.bucket && to.waits_for(On::Created);
            waits && overlap(output, true, &to.prefix, true)
        }
        Source::Event if to.queue.is_some() => false,
        Source::Event => {
            let Some(emits) = &from.emits else { return false };
            // One that asks for no type may get any.
            let wanted = to.filter.get("type").map_or("*", String::as_str);
            let (emitted, more) = stem(emits);
            let (wanted, any) = stem(wanted);
            overlap(emitted, more, wanted, any)
        }
        Source::Job => from.target().is_ok_and(|target| Some(&target.name) == to.after.as_ref()),
        Source::Cron | Source::Interval | Source::Stream => false,
    }
}

/// How `from` fires `to`, and what to do about it.
fn reason(from: &Trigger, to: &Trigger) -> String {
    match to.kind {
        Source::Event => format!(
            "the events of type `{}` that come of it fit its filter; let types be apart, such as order.new and order.done",
            from.emits.as_deref().unwrap_or_default()
        ),
        Source::Job => {
            format!("the end of `{}` is what it waits for; let it call another function", from.function)
        }
        Source::Objects | Source::Cron | Source::Interval | Source::Stream => format!(
            "what is written under `{}` can begin with its prefix `{}`; let output and prefix be apart, such as inbox/ and done/",
            from.output.as_deref().unwrap_or_default(),
            to.prefix
        ),
    }
}

/// A pattern without the `*` at its end, and whether it had one.
fn stem(pattern: &str) -> (&str, bool) {
    pattern.strip_suffix('*').map_or((pattern, false), |stem| (stem, true))
}

/// Whether a text can fit both, each of which is a text or, with `open`, the beginning of one.
fn overlap(a: &str, a_open: bool, b: &str, b_open: bool) -> bool {
    (a_open && b.starts_with(a)) || (b_open && a.starts_with(b)) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(prefix: &str, output: &str) -> Trigger {
        serde_json::from_value(serde_json::json!({ "kind": "objects", "prefix": prefix, "output": output }))
            .unwrap()
    }

    fn check(new: &Trigger, others: &[(&str, &Trigger)], wanted: Option<&str>) {
        let others: Vec<(FunctionName, &Trigger)> =
            others.iter().map(|(name, trigger)| (name.parse().unwrap(), *trigger)).collect();
        let others = others.iter().map(|(name, trigger)| (name, *trigger));
        let refused = refuse_loop(&"new".parse().unwrap(), new, others).err();
        match (refused, wanted) {
            (None, None) => {}
            (Some(error), Some(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{new:?}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn loops_are_refused() {
        check(&trigger("in/", "out/"), &[], None);
        check(&trigger("in/", "in/done/"), &[], Some("fire itself"));
        check(&trigger("in/raw/", "in/"), &[], Some("fire itself"));
        check(&trigger("", "out/"), &[], Some("fire itself"));
        let (there, back) = (trigger("out/", "more/"), trigger("more/", "in/"));
        check(&trigger("in/", "out/"), &[("there", &there)], None);
        check(&trigger("in/", "out/"), &[("there", &there), ("back", &back)], Some("by way of there, back"));
        check(&trigger("in/", "out/"), &[("new", &trigger("out/", "in/"))], None);
    }

    #[test]
    fn ends_and_emitted_events_count_too() {
        let read = |value: serde_json::Value| serde_json::from_value::<Trigger>(value).unwrap();
        let after = |after: &str, function: &str| {
            read(serde_json::json!({ "kind": "job", "after": after, "function": function }))
        };
        check(&after("f", "f:canary"), &[], Some("the end of `f:canary`"));
        check(&after("f", "g"), &[("other", &after("g", "h"))], None);
        check(&after("f", "g"), &[("back", &after("g", "f"))], Some("by way of back"));
        let event = |wanted: &str, emits: &str| {
            read(
                serde_json::json!({ "kind": "event", "function": "f", "filter": { "type": wanted }, "emits": emits }),
            )
        };
        check(&event("order.new", "order.done"), &[], None);
        check(&event("order.new", "order.new"), &[], Some("type `order.new`"));
        check(&event("order.*", "order.done"), &[], Some("fit its filter"));
        check(&event("order.new", "order.*"), &[], Some("fit its filter"));
        let mut written = after("f", "g");
        written.output = Some("in/".into());
        let mut objects = trigger("in/", "out/");
        objects.function = "f".into();
        check(&written, &[("objects", &objects)], Some("by way of objects"));
    }
}
