//! The bill of a job.

use serde::{Deserialize, Serialize};

use crate::JobId;

/// `GET /v1/jobs/{id}/cost`: what it used so far, at the gateway's prices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CostView {
    /// The job.
    pub id: JobId,
    /// The currency of all amounts (ISO 4217).
    pub currency: String,
    /// The sum of all amounts below.
    pub total: f64,
    /// Seconds of computing.
    pub cpu_seconds: Charge,
    /// 10^9 bytes of memory that were reserved for attempts for an hour.
    pub gb_hours: Charge,
    /// Requests to the object store.
    pub requests: RequestsCost,
    /// 10^9 bytes read from the object store.
    pub gb_in: Charge,
    /// 10^9 bytes written to the object store.
    pub gb_out: Charge,
    /// 10^9 bytes in the object store for a month: what was read and written, for as long as the job took.
    pub stored_gb_months: Charge,
    /// Whether the job has ended, so that this is all.
    pub complete: bool,
}

/// The requests on a bill, by kind.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestsCost {
    /// Of all kinds: `price` is their mean.
    pub all: Charge,
    /// Reads of an object or a range of one.
    pub get: Charge,
    /// Questions for an object's size and etag.
    pub head: Charge,
    /// Whole objects written, and copies.
    pub put: Charge,
    /// Of uploads in parts: each part, the beginning and the end.
    pub part: Charge,
    /// Listings.
    pub list: Charge,
    /// Objects removed.
    pub delete: Charge,
}

/// One line of a bill.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Charge {
    /// How much was used.
    pub quantity: f64,
    /// Of one unit.
    pub price: f64,
    /// `quantity` times `price`.
    pub amount: f64,
}
