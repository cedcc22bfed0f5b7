//! Draws pictures of known classes into JPEG objects, in parallel: `{"output": "photos/", "count": 1000}`.
//!
//! Picture *n* is `OUTPUT` + *n* + `-` + its class + `.jpg`, so whoever classifies them can be checked.

use fanfold::{Error, Future, Result, objects};
use mlp_classify::{CLASSES, shapes};
use serde::{Deserialize, Serialize};

/// Pictures that one task draws.
const TASK_PICTURES: u64 = 100;
/// Pictures at most.
const COUNT_MAX: u64 = 10_000_000;
/// Pixels of a picture's side.
const PIXELS: std::ops::RangeInclusive<u32> = 16..=2048;

/// What to draw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What the objects' keys start with.
    pub output: String,
    /// How many.
    pub count: u64,
    /// Width and height of each.
    #[serde(default = "pixels")]
    pub pixels: u32,
    /// Other seeds, other pictures.
    #[serde(default)]
    pub seed: u64,
}

fn pixels() -> u32 {
    96
}

/// What was drawn.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Report {
    /// Objects.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The driver.
///
/// # Errors
/// `invalid` for numbers that make no sense; what a task failed with.
#[fanfold::function(tasks(draw))]
pub fn genimages(request: Request) -> Result<Report> {
    let Request { output, count, pixels, seed } = request;
    if count > COUNT_MAX || !PIXELS.contains(&pixels) {
        let (least, most) = PIXELS.into_inner();
        return Err(Error::invalid(format!(
            "{count} pictures of {pixels} pixels: ask for up to {COUNT_MAX} of {least} to {most}"
        )));
    }
    let submit = |first: u64| draw::submit(&output, seed, first, count.min(first + TASK_PICTURES), pixels);
    let tasks = (0..count).step_by(TASK_PICTURES as usize).map(submit);
    let tasks = tasks.collect::<Result<Vec<Future<u64>>>>()?;
    let bytes = fanfold::wait_all(&tasks)?.iter().sum();
    Ok(Report { objects: count, bytes })
}

/// Draws pictures `first` to `end` (exclusive); returns their bytes.
#[fanfold::task]
fn draw(output: String, seed: u64, first: u64, end: u64, pixels: u32) -> Result<u64> {
    (first..end).try_fold(0, |bytes, number| {
        let key = format!("{output}{number:07}-{}.jpg", CLASSES[shapes::class_of(number)]);
        Ok(bytes + objects::put(&key, &shapes::jpeg(seed, number, pixels)?)?.bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_picture_is_there_under_its_class() {
        let request = |count, pixels| Request { output: "photos/".into(), count, pixels, seed: 3 };
        let report = genimages(request(230, 24)).unwrap();
        let there = objects::list("photos/").collect::<Result<Vec<_>>>().unwrap();
        assert_eq!((report.objects, there.len()), (230, 230));
        assert_eq!(report.bytes, there.iter().map(|object| object.bytes).sum::<u64>());
        assert_eq!(there[229].key, "photos/0000229-triangle.jpg");
        for bad in [request(1, 8), request(COUNT_MAX + 1, 96)] {
            assert_eq!(genimages(bad).unwrap_err().kind, fanfold::ErrorKind::Invalid);
        }
    }
}
