//! What a job costs: its usage times a price list.

use fanfold_protocol::rest::{Charge, CostView, JobView};

/// Prices in US dollars. The defaults are list prices of on-demand containers and request-billed functions at the
/// large clouds (0.04048 per cpu-hour, 0.004445 per GB-hour, 0.20 per million calls): an operator sets their own.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// Of one second of computing.
    pub cpu_second: f64,
    /// Of holding 10^9 bytes of memory for an hour.
    pub gb_hour: f64,
    /// Of a million tasks.
    pub million_requests: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { cpu_second: 0.04048 / 3600.0, gb_hour: 0.004_445, million_requests: 0.20 }
    }
}

impl Prices {
    /// The bill of a job so far. Memory is counted as the largest attempt's peak over the run time of all attempts:
    /// an upper bound.
    #[allow(clippy::cast_precision_loss, reason = "a bill in dollars has fewer digits than a double")]
    pub fn bill(&self, job: &JobView) -> CostView {
        let usage = &job.usage;
        let cpu_seconds = usage.cpu_us as f64 / 1e6;
        let gb_hours = usage.memory_peak as f64 / 1e9 * (usage.run_us as f64 / 3.6e9);
        let requests = (job.progress.tasks + job.progress.retries) as f64;
        let charge = |quantity, price| Charge { quantity, price, amount: quantity * price };
        let cpu_seconds = charge(cpu_seconds, self.cpu_second);
        let gb_hours = charge(gb_hours, self.gb_hour);
        let requests = charge(requests, self.million_requests / 1e6);
        CostView {
            id: job.id,
            currency: String::from("USD"),
            total: cpu_seconds.amount + gb_hours.amount + requests.amount,
            cpu_seconds,
            gb_hours,
            requests,
            complete: job.state.ended(),
        }
    }
}
