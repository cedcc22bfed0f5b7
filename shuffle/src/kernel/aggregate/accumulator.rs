//! What is kept of one group: states that values are added to, and that merge with what another task kept.

/// A number that can be aggregated: `i64` or `f64`.
pub trait Number: Copy + std::fmt::Debug + 'static {
    /// What sums are kept in. Exact for integers, whatever is added.
    type Sum: Copy + std::fmt::Debug + 'static;
    /// The sum of nothing.
    const ZERO: Self::Sum;
    /// What any number replaces as the smallest, and as the largest.
    const NO_MIN: Self;
    /// See [`Number::NO_MIN`].
    const NO_MAX: Self;
    /// Bytes of an encoded sum.
    const SUM_BYTES: usize;

    /// `sum + self`.
    fn add_to(self, sum: Self::Sum) -> Self::Sum;
    /// The sum of two sums.
    fn add_sums(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The smaller of two.
    fn least(self, other: Self) -> Self;
    /// The larger of two.
    fn greatest(self, other: Self) -> Self;
    /// Little-endian bytes.
    fn bits(self) -> [u8; 8];
    /// The number with these bytes.
    fn of_bits(bits: [u8; 8]) -> Self;
    /// Writes [`Number::SUM_BYTES`] bytes.
    fn put_sum(sum: Self::Sum, out: &mut [u8]);
    /// Reads what [`Number::put_sum`] wrote.
    fn sum_of(bytes: &[u8]) -> Self::Sum;
}

impl Number for f64 {
    type Sum = f64;
    const ZERO: f64 = 0.0;
    // Any number wins against NaN, so a column of nothing but NaN has NaN as its extremes.
    const NO_MIN: f64 = f64::NAN;
    const NO_MAX: f64 = f64::NAN;
    const SUM_BYTES: usize = 8;

    #[inline]
    fn add_to(self, sum: f64) -> f64 {
        sum + self
    }

    #[inline]
    fn add_sums(a: f64, b: f64) -> f64 {
        a + b
    }

    #[inline]
    fn least(self, other: f64) -> f64 {
        self.min(other)
    }

    #[inline]
    fn greatest(self, other: f64) -> f64 {
        self.max(other)
    }

    fn bits(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn of_bits(bits: [u8; 8]) -> f64 {
        f64::from_le_bytes(bits)
    }

    fn put_sum(sum: f64, out: &mut [u8]) {
        out.copy_from_slice(&sum.to_le_bytes());
    }

    fn sum_of(bytes: &[u8]) -> f64 {
        f64::from_bits(word(bytes, 0))
    }
}

impl Number for i64 {
    // No number of rows that fits into a store can overflow it, and it makes sums independent of the order of rows.
    type Sum = i128;
    const ZERO: i128 = 0;
    const NO_MIN: i64 = i64::MAX;
    const NO_MAX: i64 = i64::MIN;
    const SUM_BYTES: usize = 16;

    #[inline]
    fn add_to(self, sum: i128) -> i128 {
        sum.wrapping_add(i128::from(self))
    }

    #[inline]
    fn add_sums(a: i128, b: i128) -> i128 {
        a.wrapping_add(b)
    }

    #[inline]
    fn least(self, other: i64) -> i64 {
        self.min(other)
    }

    #[inline]
    fn greatest(self, other: i64) -> i64 {
        self.max(other)
    }

    fn bits(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn of_bits(bits: [u8; 8]) -> i64 {
        i64::from_le_bytes(bits)
    }

    fn put_sum(sum: i128, out: &mut [u8]) {
        out.copy_from_slice(&sum.to_le_bytes());
    }

    fn sum_of(bytes: &[u8]) -> i128 {
        i128::from(word(bytes, 8) as i64) << 64 | i128::from(word(bytes, 0))
    }
}

/// The state of one group.
pub trait Accumulator: Copy + std::fmt::Debug {
    /// What is added.
    type Value: Number;
    /// Bytes of an encoded state.
    const BYTES: usize;
    /// Of no values.
    const NEW: Self;

    /// Adds a value.
    fn add(&mut self, value: Self::Value);
    /// Adds what another state has.
    fn merge(&mut self, other: &Self);
    /// Writes [`Accumulator::BYTES`] bytes.
    fn put(&self, out: &mut [u8]);
    /// Reads what [`Accumulator::put`] wrote.
    fn of(bytes: &[u8]) -> Self;
    /// The results.
    fn totals(&self) -> Totals<Self::Value>;
}

/// What is known of one group in the end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Totals<N: Number> {
    /// Values, without nulls.
    pub count: u64,
    /// Their sum.
    pub sum: N::Sum,
    /// The extremes; they mean nothing where `count` is 0, and are not kept by [`Sum`].
    pub extremes: Option<(N, N)>,
}

/// Count and sum (hence the mean).
#[derive(Clone, Copy, Debug)]
pub struct Sum<N: Number> {
    count: u64,
    sum: N::Sum,
}

impl<N: Number> Accumulator for Sum<N> {
    type Value = N;
    const BYTES: usize = 8 + N::SUM_BYTES;
    const NEW: Self = Self { count: 0, sum: N::ZERO };

    #[inline]
    fn add(&mut self, value: N) {
        self.count += 1;
        self.sum = value.add_to(self.sum);
    }

    #[inline]
    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = N::add_sums(self.sum, other.sum);
    }

    #[inline]
    fn put(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.count.to_le_bytes());
        N::put_sum(self.sum, &mut out[8..Self::BYTES]);
    }

    #[inline]
    fn of(bytes: &[u8]) -> Self {
        Self { count: word(bytes, 0), sum: N::sum_of(&bytes[8..]) }
    }

    fn totals(&self) -> Totals<N> {
        Totals { count: self.count, sum: self.sum, extremes: None }
    }
}

/// Count, sum, smallest and largest.
#[derive(Clone, Copy, Debug)]
pub struct Spread<N: Number> {
    sum: Sum<N>,
    min: N,
    max: N,
}

impl<N: Number> Accumulator for Spread<N> {
    type Value = N;
    const BYTES: usize = Sum::<N>::BYTES + 16;
    const NEW: Self = Self { sum: Sum::NEW, min: N::NO_MIN, max: N::NO_MAX };

    #[inline]
    fn add(&mut self, value: N) {
        self.sum.add(value);
        self.min = self.min.least(value);
        self.max = self.max.greatest(value);
    }

    #[inline]
    fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        self.min = self.min.least(other.min);
        self.max = self.max.greatest(other.max);
    }

    #[inline]
    fn put(&self, out: &mut [u8]) {
        let (sum, extremes) = out.split_at_mut(Sum::<N>::BYTES);
        self.sum.put(sum);
        extremes[..8].copy_from_slice(&self.min.bits());
        extremes[8..16].copy_from_slice(&self.max.bits());
    }

    #[inline]
    fn of(bytes: &[u8]) -> Self {
        let at = Sum::<N>::BYTES;
        let number = |at| N::of_bits(word(bytes, at).to_le_bytes());
        Self { sum: Sum::of(bytes), min: number(at), max: number(at + 8) }
    }

    fn totals(&self) -> Totals<N> {
        Totals { extremes: Some((self.min, self.max)), ..self.sum.totals() }
    }
}

/// The eight bytes at `at`, as a little-endian number; zero where there are not as many.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}
