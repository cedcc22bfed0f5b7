//! What can be seen to be wrong with a trigger from its definition alone.

use super::{Input, On, Source, Trigger, refuse};
use crate::{Error, limit};

impl Trigger {
    /// Checks what can be seen from the definition alone.
    ///
    /// # Errors
    /// `invalid` / `trigger`, naming the key and what to write.
    pub fn check(&self) -> Result<(), Error> {
        if self.function.is_empty() {
            return Err(refuse("function is missing: say what the trigger calls"));
        }
        self.target()?;
        self.check_keys()?;
        match self.kind {
            Source::Objects => self.check_objects()?,
            Source::Cron if self.schedule.is_none() => {
                return Err(refuse("schedule is missing: give five fields such as \"0 3 * * *\""));
            }
            Source::Interval => self.check_interval()?,
            Source::Event if self.filter.is_empty() && self.queue.is_none() => {
                let why = "filter is empty, so every event would fire: give at least one attribute, such as \
                           filter = { type = \"com.example.*\" }";
                return Err(refuse(why));
            }
            Source::Job if self.after.is_none() => {
                return Err(refuse("after is missing: say which function's jobs it waits for"));
            }
            Source::Stream => self.check_stream()?,
            Source::Cron | Source::Event | Source::Job => {}
        }
        if self.emits.as_deref().is_some_and(|kind| kind.trim_end_matches('*').is_empty()) {
            let why = "emits would let every event through: give the type of those that the function emits, such as \
                       \"com.example.thumbnail.*\"";
            return Err(refuse(why));
        }
        self.check_on()?;
        self.check_queue()?;
        self.check_runs()?;
        self.check_batch()
    }

    /// Each key stands only where it means something.
    fn check_keys(&self) -> Result<(), Error> {
        use Source::{Cron, Event, Interval, Job, Objects, Stream};
        let keys: [(&str, bool, &[Source]); 20] = [
            ("bucket", self.bucket.is_some(), &[Objects]),
            ("prefix", !self.prefix.is_empty(), &[Objects]),
            ("suffix", !self.suffix.is_empty(), &[Objects]),
            ("on", !self.on.is_empty(), &[Objects, Job]),
            ("bytes_min", self.bytes_min.is_some(), &[Objects]),
            ("bytes_max", self.bytes_max.is_some(), &[Objects]),
            ("output", self.output.is_some(), &[Objects, Event, Job, Stream]),
            ("listing", self.listing.is_some(), &[Objects]),
            ("backfill", self.backfill, &[Objects, Stream]),
            ("batch", self.batch.is_some(), &[Objects, Event, Job, Stream]),
            ("ordering_key", self.ordering_key.is_some(), &[Objects, Event, Job, Stream]),
            ("body", self.body.is_some(), &[Cron, Interval]),
            ("schedule", self.schedule.is_some(), &[Cron]),
            ("timezone", self.timezone.is_some(), &[Cron]),
            ("every", self.every.is_some(), &[Interval]),
            ("missed or overlap", self.missed.is_some() || self.overlap.is_some(), &[Cron, Interval]),
            ("filter", !self.filter.is_empty(), &[Event]),
            ("after", self.after.is_some(), &[Job]),
            ("queue or region", self.queue.is_some() || self.region.is_some(), &[Objects, Event]),
            ("stream or redis", self.stream.is_some() || self.redis.is_some(), &[Stream]),
        ];
        match keys.iter().find(|(_, given, kinds)| *given && !kinds.contains(&self.kind)) {
            None => Ok(()),
            Some((key, _, kinds)) => {
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                let (own, kinds) = (self.kind.name(), kinds.join(" and "));
                Err(refuse(format!(
                    "{key} is a key of {kinds} triggers, and this one is of kind {own}: leave it out"
                )))
            }
        }
    }

    fn check_objects(&self) -> Result<(), Error> {
        if self.bytes_min > self.bytes_max && self.bytes_max.is_some() {
            return Err(refuse("bytes_min is above bytes_max, so no object would fire"));
        }
        if self.prefix.len() + self.suffix.len() > limit::OBJECT_KEY_BYTES_MAX {
            return Err(refuse("prefix and suffix together are longer than a key can be"));
        }
        if self.bucket.is_some() && (self.listing.is_some_and(|every| every > 0) || self.backfill) {
            let why = "listing and backfill are for the platform's own objects: leave bucket out, or them";
            return Err(refuse(why));
        }
        if self.backfill && self.listing == Some(0) {
            return Err(refuse("backfill needs a listing, and listing is \"0s\": leave one of them out"));
        }
        let every = self.listing.unwrap_or(limit::LISTING_EVERY_MS);
        if every > 0 && !(limit::LISTING_EVERY_MS_MIN..=limit::LISTING_EVERY_MS_MAX).contains(&every) {
            return Err(refuse(
                "listing is the time between two listings: give \"1s\" to \"12h\", or \"0s\" for none",
            ));
        }
        Ok(())
    }

    fn check_on(&self) -> Result<(), Error> {
        let (own, other) = match self.kind {
            Source::Job => ([On::Succeeded, On::Failed], "succeeded and failed"),
            _ => ([On::Created, On::Removed], "created and removed"),
        };
        match self.on.iter().all(|on| own.contains(on)) {
            true => Ok(()),
            false => Err(refuse(format!("on: {} triggers wait for {other}", self.kind.name()))),
        }
    }

    fn check_queue(&self) -> Result<(), Error> {
        match &self.queue {
            None if self.region.is_some() => Err(refuse("region without queue: leave one of them out")),
            None => Ok(()),
            Some(_) if self.kind == Source::Objects && self.bucket.is_none() => {
                Err(refuse("queue: the platform's own objects do not come by a queue: give bucket"))
            }
            Some(url) => check_url("queue", url),
        }
    }

    fn check_runs(&self) -> Result<(), Error> {
        if self.concurrency == Some(0) {
            return Err(refuse(
                "concurrency is zero, so nothing would run: give 1 or more, or say paused = true",
            ));
        }
        if let Some(why) = self.retry.and_then(|retry| retry.fault()) {
            return Err(refuse(why));
        }
        if self.ordering_key.is_some() && self.batch.is_some() {
            let why = "ordering_key is for events that run one by one: leave batch out, or it";
            return Err(refuse(why));
        }
        Ok(())
    }

    fn check_stream(&self) -> Result<(), Error> {
        if self.stream.as_ref().is_none_or(String::is_empty) {
            return Err(refuse("stream is missing: give the key of the stream"));
        }
        self.redis.as_ref().map_or(Ok(()), |url| check_url("redis", url))
    }

    fn check_interval(&self) -> Result<(), Error> {
        match self.every {
            None => Err(refuse("every is missing: give a time such as \"5m\"")),
            Some(every) if every < limit::INTERVAL_MS_MIN => {
                Err(refuse("every is shorter than a second: give \"1s\" or more"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_batch(&self) -> Result<(), Error> {
        let Some(batch) = self.batch else {
            return match self.input {
                Input::Manifest => {
                    Err(refuse("input = \"manifest\" is a table of many objects: give batch, too"))
                }
                Input::Event | Input::Data => Ok(()),
            };
        };
        if self.input == Input::Manifest && self.kind != Source::Objects {
            return Err(refuse(
                "input = \"manifest\" is a table of objects: leave it out, the function gets a list",
            ));
        }
        if self.input == Input::Data {
            return Err(refuse("input = \"data\" has no meaning for a batch: leave one of them out"));
        }
        if !(1..=limit::BATCH_EVENTS_MAX).contains(&batch.max) {
            return Err(refuse(format!("batch.max is {}: give 1 to {}", batch.max, limit::BATCH_EVENTS_MAX)));
        }
        if batch.window > limit::BATCH_WINDOW_MS_MAX {
            return Err(refuse("batch.window is longer than an hour: give less"));
        }
        Ok(())
    }
}

/// A definition is shown to everybody who may list triggers.
fn check_url(key: &str, url: &str) -> Result<(), Error> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match host.contains('@') {
        true => Err(refuse(format!(
            "{key} holds a user or password: leave them out; the gateway's environment has such"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FunctionName, trigger::manifest_names};

    fn check(text: &str, wanted: Result<(), &str>) {
        let read = toml::from_str::<Trigger>(text).map_err(|e| refuse(e.to_string()));
        match (read.and_then(|trigger| trigger.check()), wanted) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{text}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn definitions_are_checked() {
        let own = |rest: &str| format!("function = \"f\"\n{rest}");
        let objects = "kind = \"objects\"\nprefix = \"inbox/\"\nsuffix = \".jpg\"\n";
        check(&own(&format!("{objects}batch = {{ max = 100, window = \"5s\" }}")), Ok(()));
        check(objects, Err("function is missing"));
        check(&own(&format!("{objects}bytes_min = \"2KiB\"\nbytes_max = 1")), Err("bytes_min is above"));
        check(&own(&format!("{objects}every = \"5s\"")), Err("every is a key of interval triggers"));
        check(&own(&format!("{objects}bucket = \"b\"\nbackfill = true")), Err("platform's own objects"));
        check(&own(&format!("{objects}listing = \"2d\"")), Err("30s"));
        check(&own(&format!("{objects}listing = \"13h\"")), Err("12h"));
        check(&own(&format!("{objects}batch = {{ max = 0 }}")), Err("batch.max is 0"));
        check(&own(&format!("{objects}batch = {{}}\ninput = \"data\"")), Err("no meaning for a batch"));
        check(&own(&format!("{objects}input = \"manifest\"")), Err("give batch, too"));
        check(&own(&format!("{objects}input = \"manifest\"\nbatch = {{ partial = true }}")), Ok(()));
        check(&own(&format!("{objects}on = [\"failed\"]")), Err("created and removed"));
        check(&own(&format!("{objects}sufix = \"x\"")), Err("unknown field `sufix`"));
        check(&own("kind = \"job\"\nafter = \"g\"\non = [\"failed\"]"), Ok(()));
        check(&own("kind = \"job\""), Err("after is missing"));
        check(&own("kind = \"job\"\nafter = \"g\"\non = [\"removed\"]"), Err("succeeded and failed"));
        check(&own("kind = \"job\"\nafter = \"g\"\nemits = \"*\""), Err("every event"));
        check(&own("kind = \"cron\""), Err("schedule is missing"));
        check(&own("kind = \"cron\"\nschedule = \"0 3 * * *\"\nbody = { n = 1 }"), Ok(()));
        check(
            &own("kind = \"cron\"\nschedule = \"0 3 * * *\"\nbatch = {}"),
            Err("objects and event and job and stream"),
        );
        check(&own("kind = \"interval\"\nevery = \"500ms\""), Err("shorter than a second"));
        check(&own("kind = \"interval\"\nevery = \"1s\"\noverlap = \"wait\""), Ok(()));
        check(&own("kind = \"event\""), Err("filter is empty"));
        check(&own("kind = \"queue\""), Err("unknown variant `queue`"));
        let queue = "queue = \"https://sqs.eu-central-1.amazonaws.com/1/q\"";
        check(&own(&format!("kind = \"event\"\n{queue}")), Ok(()));
        check(&own(&format!("{objects}{queue}")), Err("give bucket"));
        check(&own(&format!("{objects}bucket = \"b\"\n{queue}")), Ok(()));
        check(&own("kind = \"event\"\nqueue = \"https://a:b@host/q\""), Err("user or password"));
        check(
            &own("kind = \"event\"\nfilter = { type = \"t\" }\nregion = \"r\""),
            Err("region without queue"),
        );
        check(&own("kind = \"stream\"\nstream = \"s\"\nbackfill = true"), Ok(()));
        check(&own("kind = \"stream\""), Err("stream is missing"));
        check(&own("kind = \"stream\"\nstream = \"s\"\nredis = \"redis://:x@h\""), Err("user or password"));
    }

    #[test]
    fn definitions_survive_the_journal() {
        let text = "function = \"f\"\nkind = \"cron\"\nschedule = \"0 3 * * *\"\nbody = { n = [1, \"a\"] }\nmissed = \"all\"";
        let trigger: Trigger = toml::from_str(text).unwrap();
        let bytes = rmp_serde::to_vec_named(&trigger).unwrap();
        assert_eq!(rmp_serde::from_slice::<Trigger>(&bytes).unwrap(), trigger);
    }

    #[test]
    fn triggers_of_a_manifest_have_names() {
        let function: FunctionName = "thumb".parse().unwrap();
        let unnamed: Trigger = toml::from_str("kind = \"event\"").unwrap();
        let named = Trigger { name: Some("other".parse().unwrap()), ..unnamed.clone() };
        let names = manifest_names(&function, &[unnamed.clone(), named.clone(), unnamed]).unwrap();
        assert_eq!(names.iter().map(FunctionName::as_str).collect::<Vec<_>>(), ["thumb", "other", "thumb-3"]);
        assert!(manifest_names(&function, &[named.clone(), named]).unwrap_err().message.contains("`other`"));
    }
}
