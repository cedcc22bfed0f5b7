//! `fanfold job show ID --timeline FILE`: a job's attempts over time, by executor, as an SVG picture.
//!
//! `layout` says which bar goes where, `svg` draws. The gateway keeps at most 10,000 tasks of a job's graph and so bounds the picture;
//! it says so where there are more.

mod layout;
mod svg;

use std::path::Path;

use fanfold_client::rest::{GraphView, JobView};
use serde_json::json;

use crate::{failure::Failure, output::Output, units};

/// Draws a job's timeline into a file, or to stdout where that is `-`.
pub fn write(view: &JobView, graph: &GraphView, path: &Path, out: Output) -> Result<(), Failure> {
    let end_ms = view.ended_at_ms.unwrap_or_else(units::now_ms);
    let layout = layout::lay_out(graph, view.accepted_at_ms, end_ms);
    let picture = svg::draw(&format!("{} {}", view.function, view.id), &layout);
    if path.as_os_str() == "-" {
        return out.text(picture);
    }
    std::fs::write(path, picture).map_err(|error| Failure::file(path, &error))?;
    out.print(&json!({ "timeline": path.display().to_string(), "attempts": layout.attempts }), |_| {
        format!("{}: {}", path.display(), units::count(layout.attempts as u64, "attempt"))
    })
}
