//! What is counted, and `/metrics` in the Prometheus text format.
//!
//! Counting a request is a few relaxed additions to atomics: no lock, no allocation, no label map.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use fanfold_protocol::direct::Timing;
use http::StatusCode;

use crate::{server::Client, shared::Shared};

/// Classes of routes: what the `route` label says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Route {
    /// `/function/…`.
    Function,
    /// `/async-function/…`.
    AsyncFunction,
    /// `/v1/functions…`.
    Functions,
    /// `/v1/invocations…` and `/v1/jobs…`.
    Jobs,
    /// `/v1/partitions…`.
    Partitions,
    /// `/v1/objects…`.
    Objects,
    /// Everything else.
    Other,
}

const ROUTES: [(Route, &str, &str); 7] = [
    (Route::Function, "function", "/function/"),
    (Route::AsyncFunction, "async-function", "/async-function/"),
    (Route::Functions, "functions", "/v1/functions"),
    (Route::Jobs, "jobs", "/v1/jobs"),
    (Route::Partitions, "partitions", "/v1/partitions"),
    (Route::Objects, "objects", "/v1/objects"),
    (Route::Other, "other", ""),
];

impl Route {
    /// The class of a path.
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with("/v1/invocations") {
            return Self::Jobs;
        }
        ROUTES
            .iter()
            .find(|(_, _, prefix)| path.starts_with(prefix))
            .map_or(Self::Other, |(route, _, _)| *route)
    }
}

/// Statuses are 100 to 999.
const STATUSES: usize = 900;
/// Upper bounds of the call histogram's buckets, in microseconds.
const BUCKETS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

/// The gateway's own counters.
pub(crate) struct Metrics {
    requests: [Box<[AtomicU64]>; ROUTES.len()],
    in_flight: [AtomicI64; ROUTES.len()],
    cold: AtomicU64,
    warm: AtomicU64,
    call_buckets: [AtomicU64; BUCKETS_US.len() + 1],
    call_us: AtomicU64,
    pub(crate) connections: AtomicI64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            requests: std::array::from_fn(|_| (0..STATUSES).map(|_| AtomicU64::new(0)).collect()),
            in_flight: Default::default(),
            cold: AtomicU64::new(0),
            warm: AtomicU64::new(0),
            call_buckets: Default::default(),
            call_us: AtomicU64::new(0),
            connections: AtomicI64::new(0),
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, route: Route, status: StatusCode) {
        if let Some(count) = self.requests[route as usize].get(usize::from(status.as_u16()) - 100) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// A direct call got its response head after `queue_us` in the queue and the steps of `timing`.
    pub(crate) fn called(&self, queue_us: u64, timing: &Timing) {
        let started = if timing.cold { &self.cold } else { &self.warm };
        started.fetch_add(1, Relaxed);
        let us = queue_us + timing.compile_us + timing.instantiate_us + timing.run_us;
        self.call_buckets[BUCKETS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.call_us.fetch_add(us, Relaxed);
    }

    /// The counters as Prometheus text.
    pub(crate) fn write(&self, out: &mut Text) {
        out.family("fanfold_requests_total", "counter", "Requests answered.");
        for (route, name, _) in ROUTES {
            for (at, count) in self.requests[route as usize].iter().enumerate() {
                let count = count.load(Relaxed);
                if count > 0 {
                    out.sample(&format!("{{route=\"{name}\",status=\"{}\"}}", at + 100), count);
                }
            }
        }
        out.family("fanfold_requests_in_flight", "gauge", "Requests being answered.");
        for (route, name, _) in ROUTES {
            out.sample(&format!("{{route=\"{name}\"}}"), self.in_flight[route as usize].load(Relaxed));
        }
        out.family("fanfold_connections_open", "gauge", "Open client connections.");
        out.sample("", self.connections.load(Relaxed));
        out.family("fanfold_direct_calls_total", "counter", "Direct calls that got a response, by start.");
        out.sample("{start=\"cold\"}", self.cold.load(Relaxed));
        out.sample("{start=\"warm\"}", self.warm.load(Relaxed));
        self.write_histogram(out);
    }

    fn write_histogram(&self, out: &mut Text) {
        let name = "fanfold_direct_call_seconds";
        out.family(name, "histogram", "Time to the response head of a direct call, queue included.");
        let mut total = 0;
        for (at, bucket) in self.call_buckets.iter().enumerate() {
            total += bucket.load(Relaxed);
            let bound =
                BUCKETS_US.get(at).map_or_else(|| String::from("+Inf"), |us| seconds(*us).to_string());
            out.line(&format!("{name}_bucket{{le=\"{bound}\"}}"), total);
        }
        out.line(&format!("{name}_sum"), seconds(self.call_us.load(Relaxed)));
        out.line(&format!("{name}_count"), total);
    }
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Prometheus text under construction.
#[derive(Default)]
pub(crate) struct Text {
    text: String,
    family: &'static str,
}

impl Text {
    /// Begins a metric.
    pub(crate) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample of the metric; `labels` with their braces, or empty.
    pub(crate) fn sample(&mut self, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{}{labels} {value}", self.family);
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{name} {value}");
    }

    /// The whole.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// A request in flight, and the way to everything it needs. Counts until it is dropped.
pub(crate) struct InFlight {
    client: Arc<Client>,
    route: Route,
}

impl InFlight {
    pub(crate) fn begin(client: Arc<Client>, route: Route) -> Self {
        client.request_begins();
        client.shared().metrics.in_flight[route as usize].fetch_add(1, Relaxed);
        Self { client, route }
    }

    pub(crate) fn router(&self) -> axum::Router {
        self.client.router()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.client.shared()
    }
}

impl std::ops::Deref for InFlight {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.client.shared()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.in_flight[self.route as usize].fetch_sub(1, Relaxed);
        self.client.request_ends();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_show_up_as_prometheus_text() {
        let metrics = Metrics::new();
        metrics.answered(Route::of("/function/a/b"), StatusCode::OK);
        metrics.answered(Route::of("/v1/invocations/x"), StatusCode::NOT_FOUND);
        metrics.called(10, &Timing { cold: true, compile_us: 100, instantiate_us: 5, run_us: 136 });
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        for line in [
            "fanfold_requests_total{route=\"function\",status=\"200\"} 1",
            "fanfold_requests_total{route=\"jobs\",status=\"404\"} 1",
            "fanfold_direct_calls_total{start=\"cold\"} 1",
            "fanfold_direct_call_seconds_bucket{le=\"0.0001\"} 0",
            "fanfold_direct_call_seconds_bucket{le=\"0.0005\"} 1",
            "fanfold_direct_call_seconds_bucket{le=\"+Inf\"} 1",
            "fanfold_direct_call_seconds_sum 0.000251",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
