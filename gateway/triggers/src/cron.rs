//! Cron expressions in a time zone, also over its changes of the clock.
//!
//! Where the clock is set forward, a schedule with one time of day that falls into the gap fires at the gap's end; one that repeats
//! (every hour, every ten minutes, several hours) leaves the times of the gap out. Where it is set back, a schedule with one
//! time of day fires at the first of the two; one that repeats fires at both. The expressions are read by the `croner` crate,
//! and zones come from the copy of the IANA database that `chrono-tz` brings, so no file of the machine matters.

use chrono::{DateTime, Duration, LocalResult, NaiveDateTime, Offset as _, TimeZone as _, Utc};
use chrono_tz::Tz;
use croner::{
    JobType,
    parser::{CronParser, Seconds, Year},
};
use fanfold_protocol::{Error, trigger::refuse};

/// No clock has ever been set by more.
const SHIFT_MAX: Duration = Duration::hours(25);
/// Resolution at which the end of a gap is found: no zone changes within a minute.
const STEP: Duration = Duration::minutes(1);

/// A schedule; see the module.
#[derive(Clone, Debug)]
pub struct Cron {
    expression: croner::Cron,
    zone: Tz,
    /// Whether it has one time of day.
    fixed: bool,
}

impl Cron {
    /// Reads a schedule of five fields.
    ///
    /// # Errors
    /// `invalid` / `trigger` for what is no expression, one that never fires, and an unknown zone.
    pub fn new(schedule: &str, timezone: Option<&str>) -> Result<Self, Error> {
        let shown = schedule.escape_debug();
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let expression = parser.parse(schedule).map_err(|e| {
            refuse(format!(
                "schedule `{shown}` cannot be read: {e}; give minute, hour, day of month, month and day of week, such as \
                 \"30 3 * * MON-FRI\""
            ))
        })?;
        let zone = timezone.unwrap_or("UTC");
        let zone: Tz = zone.parse().map_err(|_| {
            let shown = zone.escape_debug();
            refuse(format!(
                "timezone `{shown}` is not known: give an IANA name such as Europe/Berlin, or UTC"
            ))
        })?;
        let fixed = expression.determine_job_type() == JobType::FixedTime;
        let cron = Self { expression, zone, fixed };
        match cron.naive_after(DateTime::UNIX_EPOCH.naive_utc()) {
            Some(_) => Ok(cron),
            None => Err(refuse(format!("schedule `{shown}` never fires: there is no such day"))),
        }
    }

    /// The first time after `after_ms`; both are Unix milliseconds.
    pub fn next(&self, after_ms: u64) -> Option<u64> {
        let after = DateTime::from_timestamp_millis(i64::try_from(after_ms).ok()?)?;
        let next = self.plain(after).or_else(|| self.over_a_change(after))?;
        u64::try_from(next.timestamp_millis()).ok()
    }

    /// The next time where the zone's offset does not change before it; else `None`.
    fn plain(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let offset = self.offset(after);
        let naive = self.naive_after(after.naive_utc() + offset)?;
        let next = (naive - offset).and_utc();
        let first = self.zone.from_local_datetime(&naive).earliest()?;
        (self.offset(next) == offset && first.to_utc() == next).then_some(next)
    }

    /// The next time wherever changes are: the earliest of what the local times around it stand for.
    fn over_a_change(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut naive = after.naive_utc() + self.offset(after) - SHIFT_MAX;
        let mut best: Option<(DateTime<Utc>, NaiveDateTime)> = None;
        loop {
            naive = self.naive_after(naive)?;
            if best.is_some_and(|(_, from)| naive - from > SHIFT_MAX) {
                return best.map(|(next, _)| next);
            }
            let later = self.instants(naive).into_iter().flatten().filter(|instant| *instant > after);
            for instant in later {
                if best.is_none_or(|(next, _)| instant < next) {
                    best = Some((instant, naive));
                }
            }
        }
    }

    /// When a local time of the schedule fires: never, once or twice.
    fn instants(&self, naive: NaiveDateTime) -> [Option<DateTime<Utc>>; 2] {
        match self.zone.from_local_datetime(&naive) {
            LocalResult::Single(only) => [Some(only.to_utc()), None],
            LocalResult::Ambiguous(first, _) if self.fixed => [Some(first.to_utc()), None],
            LocalResult::Ambiguous(first, second) => [Some(first.to_utc()), Some(second.to_utc())],
            LocalResult::None if self.fixed => [self.end_of_gap(naive), None],
            LocalResult::None => [None, None],
        }
    }

    /// The first instant after the gap that this local time falls into.
    fn end_of_gap(&self, naive: NaiveDateTime) -> Option<DateTime<Utc>> {
        let mut local = naive;
        while local - naive < SHIFT_MAX {
            local += STEP;
            if let Some(instant) = self.zone.from_local_datetime(&local).earliest() {
                return Some(instant.to_utc());
            }
        }
        None
    }

    fn offset(&self, at: DateTime<Utc>) -> Duration {
        Duration::seconds(self.zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc().into())
    }

    /// The next local time that fits the expression, whatever clocks do.
    fn naive_after(&self, naive: NaiveDateTime) -> Option<NaiveDateTime> {
        self.expression.find_next_occurrence(&naive.and_utc(), false).ok().map(|next| next.naive_utc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> u64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis() as u64
    }

    fn check(schedule: &str, zone: &str, after: &str, wanted: &[&str]) {
        let cron = Cron::new(schedule, Some(zone)).unwrap();
        let times = std::iter::successors(cron.next(ms(after)), |at| cron.next(*at));
        let times: Vec<u64> = times.take(wanted.len()).collect();
        let wanted: Vec<u64> = wanted.iter().map(|text| ms(text)).collect();
        assert_eq!(times, wanted, "{schedule} in {zone}");
    }

    #[test]
    fn clocks_that_are_set_forward() {
        // 2026-03-29, 02:00 to 03:00.
        let before = "2026-03-29T00:30:00+01:00";
        let berlin = "Europe/Berlin";
        check("30 2 * * *", berlin, before, &["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]);
        check("0 * * * *", berlin, before, &["2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"]);
        check("*/30 2 * * *", berlin, before, &["2026-03-30T02:00:00+02:00"]);
        // Half an hour, in the south.
        check("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", &["2026-10-04T02:30:00+11:00"]);
        // A whole day that was left out.
        check(
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-29T20:00:00Z",
            &["2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"],
        );
    }

    #[test]
    fn clocks_that_are_set_back() {
        // 2026-10-25, 03:00 to 02:00.
        let before = "2026-10-25T01:45:00+02:00";
        let berlin = "Europe/Berlin";
        check("30 2 * * *", berlin, before, &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]);
        let twice =
            ["02:00:00+02:00", "02:30:00+02:00", "02:00:00+01:00", "02:30:00+01:00", "03:00:00+01:00"];
        check(
            "*/30 * * * *",
            berlin,
            before,
            &twice.map(|time| format!("2026-10-25T{time}")).each_ref().map(String::as_str),
        );
        // Begun within the second pass.
        check("30 2 * * *", berlin, "2026-10-25T02:15:00+01:00", &["2026-10-26T02:30:00+01:00"]);
        check(
            "45 2 * * *",
            berlin,
            "2026-10-25T02:30:00+02:00",
            &["2026-10-25T02:45:00+02:00", "2026-10-26T02:45:00+01:00"],
        );
    }

    #[test]
    fn times_only_go_forward() {
        for (schedule, zone) in
            [("*/7 * * * *", "America/New_York"), ("20 1,2 * * *", "Europe/London"), ("0 0 29 2 *", "UTC")]
        {
            let cron = Cron::new(schedule, Some(zone)).unwrap();
            let mut at = ms("2026-10-24T00:00:00Z");
            for _ in 0..3000 {
                let Some(next) = cron.next(at) else { break };
                assert!(next > at, "{schedule} in {zone}: {next} after {at}");
                at = next;
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (schedule, zone, part) in [
            ("61 * * * *", "UTC", "cannot be read"),
            ("* * * *", "UTC", "cannot be read"),
            ("* * * * * *", "UTC", "cannot be read"),
            ("often", "UTC", "cannot be read"),
            ("0 0 30 2 *", "UTC", "never fires"),
            ("0 0 * * *", "Mars/Olympus", "`Mars/Olympus` is not known"),
        ] {
            let error = Cron::new(schedule, Some(zone)).unwrap_err();
            assert!(error.message.contains(part), "{schedule}: {error}");
        }
        assert!(Cron::new("@daily", None).is_ok());
    }
}
