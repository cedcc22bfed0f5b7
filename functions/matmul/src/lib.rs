//! Multiplies two matrices on a gpu: their partitions go into its buffers and the product comes back as a partition, without passing
//! through an instance. The product is compared with one that is computed here, in WebAssembly.
//!
//! A matrix is `n` × `n` numbers of 32 or 16 bits, little-endian, in row order; `n` is a multiple of [`STEP`].

mod product;

use std::io::Write as _;

use fanfold::{
    Error, Partition, Reader, Result, Writer,
    gpu::{self, Buffer, Commands, Usage},
};
use half::f16;
use serde::{Deserialize, Serialize};

pub use product::{Precision, STEP};

/// The largest `n`: three matrices of 64 MiB.
pub const N_MAX: u32 = 4096;

/// What to multiply.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Rows and columns.
    pub n: u32,
    /// What the numbers follow from.
    #[serde(default)]
    pub seed: u32,
    /// What the numbers are: `f32` or `f16`.
    #[serde(default)]
    pub precision: Precision,
}

/// How it went.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Report {
    /// Rows and columns.
    pub n: u32,
    /// What the numbers are.
    pub precision: Precision,
    /// The largest difference between an element and its counterpart as computed on the processor, in 64 bits.
    pub error: f64,
    /// What it may be at most: a millionth for each of the `n` products of a sum in 32 bits; and where the numbers have 16 bits, what
    /// 11 of them say of the largest element.
    pub tolerance: f64,
    /// The sum of all elements, from the first to the last.
    pub sum: f64,
}

/// Makes two matrices, multiplies them on a gpu and compares.
///
/// # Errors
/// `invalid` for a size that is not offered, `guest` where the product is wrong; what the gpu says, and that it has no `f16`.
#[fanfold::function(tasks(matrix, multiply, compare))]
pub fn matmul(request: Request) -> Result<Report> {
    let Request { n, seed, precision } = request;
    if n == 0 || n > N_MAX || !n.is_multiple_of(STEP) {
        return Err(Error::invalid(format!("n is {n}: give a multiple of {STEP} up to {N_MAX}")));
    }
    let a = matrix::submit(n, seed, precision)?;
    let b = matrix::submit(n, seed.wrapping_add(1), precision)?;
    let product = multiply::call(n, precision, &a, &b).gpu(1).submit()?;
    let report = compare::submit(n, precision, &a, &b, &product)?.get()?;
    if report.error <= report.tolerance {
        Ok(report)
    } else {
        Err(Error::guest(format!("an element is off by {}, over {}", report.error, report.tolerance)))
    }
}

/// Numbers between -1 and 1.
#[fanfold::task]
pub fn matrix(n: u32, seed: u32, precision: Precision) -> Result<Partition> {
    let mut writer = Writer::new()?;
    for number in numbers(seed).take((n * n) as usize) {
        match precision {
            Precision::F32 => writer.write_all(&number.to_le_bytes())?,
            Precision::F16 => writer.write_all(&f16::from_f32(number).to_le_bytes())?,
        }
    }
    writer.finish()
}

/// A linear congruential generator: the same on every machine. Its upper 24 bits fit a number exactly.
fn numbers(seed: u32) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9);
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

/// The product, on the gpu.
#[fanfold::task]
pub fn multiply(n: u32, precision: Precision, a: Reader, b: Reader) -> Result<Partition> {
    let adapter = gpu::adapter()?;
    let bytes = u64::from(n) * u64::from(n) * precision.bytes();
    let input = Usage::STORAGE | Usage::COPY_DST;
    let (left, right) = (Buffer::new("a", bytes, input)?, Buffer::new("b", bytes, input)?);
    let product = Buffer::new("c", bytes, Usage::STORAGE | Usage::COPY_SRC)?;
    let size = Buffer::new("size", 16, Usage::UNIFORM | Usage::COPY_DST)?;
    left.load(0, &a, 0, bytes)?;
    right.load(0, &b, 0, bytes)?;
    size.write(0, &n.to_le_bytes())?;
    let pipeline = precision.pipeline()?;
    let group = pipeline.bind(0, &[(0, &size), (1, &left), (2, &right), (3, &product)])?;
    let commands = Commands::new()?;
    if adapter.timestamps {
        commands.begin_timed_pass()?;
    }
    commands.dispatch(&pipeline, &[&group], product::workgroups(n))?;
    // Real time: it goes into the log and not into what this task returns.
    for (begin, end) in commands.submit()?.wait()? {
        let (nanoseconds, operations) = (end.saturating_sub(begin).max(1), 2.0 * f64::from(n).powi(3));
        fanfold::info!("{}: {:.2} GFLOP/s", adapter.name, operations / nanoseconds as f64);
    }
    let mut writer = Writer::new()?;
    product.store(0, bytes, &mut writer)?;
    writer.finish()
}

/// How far a product is from the one computed here.
#[fanfold::task]
pub fn compare(n: u32, precision: Precision, a: Reader, b: Reader, product: Reader) -> Result<Report> {
    let size = n as usize;
    let read = |matrix| floats(matrix, size, precision);
    let (a, b, product) = (read(a)?, read(b)?, read(product)?);
    let (mut error, mut sum, mut largest) = (0f64, 0f64, 0f64);
    let mut row = vec![0f64; size];
    for (of_a, of_product) in a.chunks(size).zip(product.chunks(size)) {
        row.fill(0.0);
        for (factor, of_b) in of_a.iter().zip(b.chunks(size)) {
            for (sum, number) in row.iter_mut().zip(of_b) {
                *sum += f64::from(*factor) * f64::from(*number);
            }
        }
        for (wanted, found) in row.iter().zip(of_product) {
            error = error.max((wanted - f64::from(*found)).abs());
            sum += f64::from(*found);
            largest = largest.max(wanted.abs());
        }
    }
    let rounding = match precision {
        Precision::F32 => 0.0,
        // An adapter may round to nearest or towards zero.
        Precision::F16 => largest / 1024.0,
    };
    Ok(Report { n, precision, error, tolerance: f64::from(n) * 1e-6 + rounding, sum })
}

fn floats(matrix: Reader, n: usize, precision: Precision) -> Result<Vec<f32>> {
    let bytes = matrix.bytes()?;
    let numbers: Vec<f32> = match precision {
        Precision::F32 => bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect(),
        Precision::F16 => bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).into()).collect(),
    };
    if numbers.len() != n * n {
        return Err(Error::invalid(format!("{} numbers are no matrix of {n} × {n}", numbers.len())));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> Result<Reader> {
        let key = format!("{bytes:?}");
        fanfold::objects::put(&key, bytes)?;
        fanfold::objects::open(key)
    }

    /// `compare` against what was worked out by hand, and against a product with a wrong element.
    #[test]
    fn comparing_finds_the_wrong_element() {
        let bytes =
            |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let (a, b) = (bytes(&[1.0, 2.0, 3.0, 4.0]), bytes(&[5.0, 6.0, 7.0, 8.0]));
        let report = |product: [f32; 4]| {
            compare(2, Precision::F32, reader(&a)?, reader(&b)?, reader(&bytes(&product))?)
        };
        let right = report([19.0, 22.0, 43.0, 50.0]).unwrap();
        assert_eq!((right.error, right.tolerance, right.sum), (0.0, 2e-6, 134.0));
        assert_eq!(report([19.0, 22.0, 40.0, 50.0]).unwrap().error, 3.0);
    }

    /// What is off by the last of 11 bits is right; by two of them, wrong.
    #[test]
    fn numbers_of_16_bits_are_compared_as_such() {
        let bytes = |numbers: [f32; 4]| numbers.map(|number| f16::from_f32(number).to_le_bytes()).concat();
        let (a, one) = (bytes([1.5, 0.25, -3.0, 50.0]), bytes([1.0, 0.0, 0.0, 1.0]));
        let report = |product| {
            compare(2, Precision::F16, reader(&a)?, reader(&one)?, reader(&bytes(product))?)
                .map(|report| (report.error, report.error <= report.tolerance))
        };
        assert_eq!(report([1.5, 0.25, -3.0, 50.0]).unwrap(), (0.0, true));
        assert_eq!(report([1.5, 0.25, -3.0, 50.03125]).unwrap(), (0.03125, true));
        assert_eq!(report([1.5, 0.25, -3.0, 50.0625]).unwrap(), (0.0625, false));
    }

    #[test]
    fn odd_sizes_are_refused() {
        for n in [0, 15, 17, N_MAX + STEP] {
            let request = Request { n, seed: 0, precision: Precision::F32 };
            assert_eq!(matmul(request).unwrap_err().kind, fanfold::ErrorKind::Invalid);
        }
    }

    /// Outside of the platform there is no gpu, and the driver says so.
    #[test]
    fn without_a_gpu_it_fails() {
        let error = matmul(Request { n: 16, seed: 0, precision: Precision::F16 }).unwrap_err();
        assert!(error.message.contains("no gpu"), "{error}");
    }
}
