//! The crc32c of two byte strings one after the other, from the crc32c of each.
//!
//! The `crc32c` crate can do this too, by squaring 32 × 32 bit matrices: some ten microseconds, once per block. Here the
//! powers of x are computed at compile time and a shift by n bytes is one carry-less multiplication per bit set in n,
//! as in zlib since 1.2.12 (`x2nmodp`, `multmodp` in `crc32.c`).

/// The Castagnoli polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// x⁰ in that order of bits.
const ONE: u32 = 1 << 31;
/// `POWERS[k]` is x^(8·2^k): a shift by 2^k bytes.
const POWERS: [u32; 64] = powers();

/// The crc32c of `a ‖ b` from those of `a` and `b` and the length of `b` in bytes.
pub fn combine(crc_a: u32, crc_b: u32, bytes_b: u64) -> u32 {
    let (mut shift, mut left) = (ONE, bytes_b);
    while left != 0 {
        shift = multiply(POWERS[left.trailing_zeros() as usize], shift);
        left &= left - 1;
    }
    multiply(shift, crc_a) ^ crc_b
}

/// a · b modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 0 { b >> 1 } else { (b >> 1) ^ POLYNOMIAL };
        bit >>= 1;
    }
    product
}

const fn powers() -> [u32; 64] {
    let mut powers = [0; 64];
    // x⁸, then each the square of the one before.
    let (mut power, mut k) = (ONE >> 8, 0);
    while k < 64 {
        powers[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_the_crc_of_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..5000), at: prop::sample::Index) {
            let (a, b) = bytes.split_at(at.index(bytes.len() + 1));
            let combined = super::combine(crc32c::crc32c(a), crc32c::crc32c(b), b.len() as u64);
            prop_assert_eq!(combined, crc32c::crc32c(&bytes));
        }

        #[test]
        fn equals_the_other_way_for_long_data(a: u32, b: u32, length in 0u64..1 << 40) {
            prop_assert_eq!(super::combine(a, b, length), crc32c::crc32c_combine(a, b, length as usize));
        }
    }
}
