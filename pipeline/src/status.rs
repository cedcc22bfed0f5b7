//! How a pipeline stands, as its driver says it to those who watch (`fanfold::status`): for each stage its rows, what waits after
//! it, what its tasks may make, and why it starts no more of them.

use serde_json::{Value, json};

use crate::schedule::{Engine, Look, Why};

/// As the table of stages wants it. `resources`: names, in the order of the engine's capacity.
pub(crate) fn text(engine: &Engine, names: &[String], resources: &[&str], limit_bytes: u64) -> String {
    let row = |(name, look): (&String, Look)| {
        let Look { rows, buffered_bytes, granted_bytes, why } = look;
        (name.clone(), json!([rows, buffered_bytes, granted_bytes, said(why, resources)]))
    };
    let stages: serde_json::Map<String, Value> = names.iter().zip(engine.look()).map(row).collect();
    let used = engine.used_bytes();
    json!({
        "columns": ["rows", "buffered bytes", "granted bytes", "waits for"],
        "stages": stages,
        "summary": format!("{} of {} MB of memory", megabytes(used), megabytes(limit_bytes)),
    })
    .to_string()
}

fn said(why: Why, resources: &[&str]) -> Value {
    match why {
        Why::Ready | Why::Done => Value::Null,
        Why::Input => json!("input"),
        Why::Batch => json!("a whole batch"),
        Why::Aside(bytes) => json!(format!("{} MB at once", megabytes(bytes))),
        Why::Resource(n) => json!(resources.get(n).copied().unwrap_or("a resource")),
        Why::Memory => json!("memory"),
        Why::Budget(bytes) => json!(format!("later stages: {} MB wait", megabytes(bytes))),
        Why::Turn => json!("its turn"),
    }
}

fn megabytes(bytes: u64) -> f64 {
    (bytes as f64 / 1e5).round() / 10.0
}
