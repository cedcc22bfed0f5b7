//! Which column a key belongs to. Equal in every task of a job, on every machine, for ever: recomputed data must fall
//! into the same blocks.

/// A hash of a key: FNV-1a over its bytes, then the finaliser of MurmurHash3 (FNV alone leaves the high bits, which
/// [`column_of`] uses, poorly mixed for short keys).
pub fn hash(key: &[u8]) -> u64 {
    let mut h = key.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, byte| {
        (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The column, below `columns`, of a hash: its share of the whole range, so no division and no bias.
pub fn column_of(hash: u64, columns: u32) -> u32 {
    ((u128::from(hash) * u128::from(columns)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_stable_in_range_and_even() {
        // Stored data depends on these: they must never change.
        assert_eq!(hash(b""), 0xefd0_1f60_ba99_2926);
        assert_eq!(hash(b"fanfold"), 0x6255_8702_c330_ce54);
        let mut sizes = [0u32; 7];
        for key in 0..7_000u32 {
            sizes[column_of(hash(key.to_string().as_bytes()), 7) as usize] += 1;
        }
        assert!(sizes.iter().all(|size| (850..1150).contains(size)), "{sizes:?}");
        assert_eq!((column_of(0, 5), column_of(u64::MAX, 5)), (0, 4));
    }
}
