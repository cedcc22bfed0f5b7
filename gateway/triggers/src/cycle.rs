//! The guard against loops: triggers whose function writes what fires it, at once or by way of others.

use std::collections::BTreeSet;

use fanfold_protocol::{
    Error, FunctionName,
    trigger::{self, Change, Source, Trigger},
};

/// Refuses `new` where the keys that it says it writes (`output`) can fire it, by way of any of the `others` too.
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
            let (output, prefix) = (from.output.as_deref().unwrap_or_default(), &new.prefix);
            let by =
                if way.len() > 1 { format!(" by way of {}", way[1..].join(", ")) } else { String::new() };
            let why = format!(
                "it would fire itself{by}: what is written under `{output}` can begin with its prefix `{prefix}`; let output \
                 and prefix be apart, such as inbox/ and done/"
            );
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

/// Whether what `from` writes can fire `to`.
fn feeds(from: &Trigger, to: &Trigger) -> bool {
    let Some(output) = &from.output else { return false };
    let waits = to.kind == Source::Objects && to.bucket == from.bucket && to.on.contains(&Change::Created);
    waits && (output.starts_with(&to.prefix) || to.prefix.starts_with(output.as_str()))
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
}
