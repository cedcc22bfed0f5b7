//! What a job costs: what it used times a price list.

use fanfold_protocol::{
    message::Requests,
    rest::{Charge, CostView, JobView, RequestsCost},
};
use serde::Deserialize;

/// Hours in a month, as clouds count.
const MONTH_HOURS: f64 = 730.0;

/// Prices in US dollars, or whatever `currency` says.
///
/// The defaults are those at which the CloudSort record was priced: a machine of 16 cpus and 128 GiB for 1.373 an hour, and
/// S3's requests and storage. A cpu costs a sixteenth of the machine, and so does an eighth of a cpu's memory: each is
/// priced as if it alone were what the machine is rented for. A job is therefore never billed less than the machines that it
/// fills, and at most twice that if it fills both. Traffic between a machine and a store of one region is free.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// ISO 4217.
    pub currency: String,
    /// Of one cpu for an hour.
    pub cpu_hour: f64,
    /// Of 10^9 bytes of memory, reserved for an hour.
    pub gb_hour: f64,
    /// Of a million reads.
    pub million_get: f64,
    /// Of a million questions for an object's size.
    pub million_head: f64,
    /// Of a million objects written.
    pub million_put: f64,
    /// Of a million parts of uploads, their beginnings and ends.
    pub million_part: f64,
    /// Of a million listings.
    pub million_list: f64,
    /// Of a million objects removed.
    pub million_delete: f64,
    /// Of 10^9 bytes read from the store.
    pub gb_in: f64,
    /// Of 10^9 bytes written to the store.
    pub gb_out: f64,
    /// Of 10^9 bytes in the store for a month.
    pub stored_gb_month: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            currency: String::from("USD"),
            cpu_hour: 1.373 / 16.0,
            gb_hour: 1.373 / 137.4,
            million_get: 0.4,
            million_head: 0.4,
            million_put: 5.0,
            million_part: 5.0,
            million_list: 5.0,
            million_delete: 0.0,
            gb_in: 0.0,
            gb_out: 0.0,
            stored_gb_month: 0.023,
        }
    }
}

impl Prices {
    /// Whether each of them can be a price.
    ///
    /// # Errors
    /// Names the one that is none.
    pub fn check(&self) -> Result<(), String> {
        let each = [
            ("cpu_hour", self.cpu_hour),
            ("gb_hour", self.gb_hour),
            ("million_get", self.million_get),
            ("million_head", self.million_head),
            ("million_put", self.million_put),
            ("million_part", self.million_part),
            ("million_list", self.million_list),
            ("million_delete", self.million_delete),
            ("gb_in", self.gb_in),
            ("gb_out", self.gb_out),
            ("stored_gb_month", self.stored_gb_month),
        ];
        match each.iter().find(|(_, price)| !price.is_finite() || *price < 0.0) {
            Some((name, price)) => Err(format!("`{name}` is {price}: a price is a number from 0")),
            None => Ok(()),
        }
    }

    /// The bill of a job at `now_ms`: so far, if it runs.
    #[allow(clippy::cast_precision_loss, reason = "a bill has fewer digits than a double")]
    pub fn bill(&self, job: &JobView, now_ms: u64) -> CostView {
        let requests = &job.spent.requests;
        let [gb_in, gb_out] = [requests.bytes_in, requests.bytes_out].map(|bytes| bytes as f64 / 1e9);
        let ended_at_ms = job.ended_at_ms.unwrap_or(now_ms);
        let hours = ended_at_ms.saturating_sub(job.accepted_at_ms) as f64 / 3.6e6;
        let gb_hours = job.spent.memory_mib_us as f64 * f64::from(1 << 20) / 1e9 / 3.6e9;
        let mut bill = CostView {
            id: job.id,
            currency: self.currency.clone(),
            total: 0.0,
            cpu_seconds: charge(job.usage.cpu_us as f64 / 1e6, self.cpu_hour / 3600.0),
            gb_hours: charge(gb_hours, self.gb_hour),
            requests: self.requests(requests),
            gb_in: charge(gb_in, self.gb_in),
            gb_out: charge(gb_out, self.gb_out),
            stored_gb_months: charge((gb_in + gb_out) * hours / MONTH_HOURS, self.stored_gb_month),
            complete: job.state.ended(),
        };
        let lines = [
            bill.cpu_seconds,
            bill.gb_hours,
            bill.requests.all,
            bill.gb_in,
            bill.gb_out,
            bill.stored_gb_months,
        ];
        bill.total = lines.iter().map(|line| line.amount).sum();
        bill
    }

    #[allow(clippy::cast_precision_loss, reason = "counts of requests are far below 2^53")]
    fn requests(&self, made: &Requests) -> RequestsCost {
        let priced = |count: u64, million: f64| charge(count as f64, million / 1e6);
        let get = priced(made.get, self.million_get);
        let head = priced(made.head, self.million_head);
        let put = priced(made.put, self.million_put);
        let part = priced(made.part, self.million_part);
        let list = priced(made.list, self.million_list);
        let delete = priced(made.delete, self.million_delete);
        let kinds = [get, head, put, part, list, delete];
        let quantity: f64 = kinds.iter().map(|kind| kind.quantity).sum();
        let amount: f64 = kinds.iter().map(|kind| kind.amount).sum();
        let price = if quantity > 0.0 { amount / quantity } else { 0.0 };
        RequestsCost { all: Charge { quantity, price, amount }, get, head, put, part, list, delete }
    }
}

fn charge(quantity: f64, price: f64) -> Charge {
    Charge { quantity, price, amount: quantity * price }
}
