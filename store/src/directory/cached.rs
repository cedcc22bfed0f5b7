//! Whether the kernel's page cache has a range of a file: `cachestat(2)`, which Linux has since 6.5. It starts no reading
//! ahead, which `RWF_NOWAIT` would.
#![allow(unsafe_code, reason = "the call is in no library; it only writes to the structure that it is given")]

use std::{fs::File, ops::Range, os::fd::AsRawFd as _};

/// The same on all architectures.
const CACHESTAT: libc::c_long = 451;
const PAGE: u64 = 4 << 10;

/// `struct cachestat_range`.
#[repr(C)]
struct Of {
    offset: u64,
    length: u64,
}

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    being_written: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the page cache has all of `range` of `file`, which does not end before. An older kernel, or one that does not
/// want to say, has nothing.
pub(crate) fn is_cached(file: &File, range: &Range<u64>) -> bool {
    let of = Of { offset: range.start, length: range.end.saturating_sub(range.start) };
    if of.length == 0 {
        return false;
    }
    let mut pages = Pages::default();
    // SAFETY: both structures are laid out as the kernel's, and live until it returns.
    let failed = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const of, &raw mut pages, 0) };
    failed == 0 && pages.cached >= range.end.div_ceil(PAGE) - range.start / PAGE
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_was_just_written_through_the_page_cache_is_there_and_nothing_beyond() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 3 * PAGE as usize]).expect("it is written");
        if !is_cached(&file, &(0..1)) {
            // The kernel is older than the call.
            return;
        }
        assert!(is_cached(&file, &(1..3 * PAGE)));
        assert!(!is_cached(&file, &(0..3 * PAGE + 1)));
        assert!(!is_cached(&file, &(5..5)));
    }
}
