//! What can be said of arguments without asking a device: sizes, offsets, alignment, usage, counts. All arithmetic is checked.

use fanfold_protocol::{Code, Error, Kind, limit};

use crate::message::{Adapter, BindingKind, Limits, Usage};

/// What copies, writes and fills are multiples of: `COPY_BUFFER_ALIGNMENT`.
pub(crate) const ALIGNMENT: u64 = 4;

/// [`Kind::Invalid`], [`Code::Gpu`].
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, Code::Gpu, message.into())
}

/// A message that is as long as one may be.
pub(crate) fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(limit::ERROR_MESSAGE_BYTES_MAX));
    message
}

/// Where `used` of `max` bytes are taken: [`Kind::Limit`], [`Code::GpuMemory`].
pub(crate) fn no_memory(size: u64, used: u64, max: u64) -> Error {
    let message = format!("a buffer of {size} bytes: {used} of {max} bytes of device memory are used");
    Error::new(Kind::Limit, Code::GpuMemory, message)
}

/// A part of a buffer of `size` bytes that begins at `offset`: within it, and in whole words.
pub(crate) fn part(what: &str, offset: u64, length: u64, size: u64) -> Result<(), Error> {
    if !offset.is_multiple_of(ALIGNMENT) || !length.is_multiple_of(ALIGNMENT) {
        return Err(invalid(format!(
            "{what}: offset {offset} and length {length} must be multiples of {ALIGNMENT}"
        )));
    }
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(invalid(format!("{what}: {length} bytes at {offset} do not fit a buffer of {size} bytes"))),
    }
}

/// The length in whole words of data of `length` bytes.
pub(crate) fn words(length: u64) -> Result<u64, Error> {
    length.checked_next_multiple_of(ALIGNMENT).ok_or_else(|| invalid(format!("{length} bytes are too many")))
}

/// Whether a buffer may be made at all.
pub(crate) fn buffer(size: u64, usage: Usage, limits: &Limits) -> Result<(), Error> {
    if usage == Usage::default() {
        return Err(invalid("a buffer needs a usage"));
    }
    if size == 0 || !size.is_multiple_of(ALIGNMENT) {
        return Err(invalid(format!(
            "a buffer of {size} bytes: the size must be a multiple of {ALIGNMENT} over 0"
        )));
    }
    if size > limits.max_buffer_size {
        let max = limits.max_buffer_size;
        let message = format!("a buffer of {size} bytes: this adapter's may have {max}");
        return Err(Error::new(Kind::Limit, Code::GpuMemory, message));
    }
    Ok(())
}

/// That a usage was asked for when the buffer was made.
pub(crate) fn usage(has: bool, label: &str, usage: &str, what: &str) -> Result<(), Error> {
    if has {
        Ok(())
    } else {
        Err(invalid(format!("{what}: the buffer `{label}` was made without the usage {usage}")))
    }
}

/// A part of a buffer as a binding of a shader.
pub(crate) fn binding(
    kind: BindingKind,
    offset: u64,
    length: u64,
    size: u64,
    limits: &Limits,
) -> Result<(), Error> {
    part("binding", offset, length, size)?;
    let (alignment, max) = match kind {
        BindingKind::Uniform => {
            (limits.min_uniform_buffer_offset_alignment, limits.max_uniform_buffer_binding_size)
        }
        _ => (limits.min_storage_buffer_offset_alignment, limits.max_storage_buffer_binding_size),
    };
    if length == 0 {
        return Err(invalid("binding: a part of 0 bytes"));
    }
    if !offset.is_multiple_of(u64::from(alignment.max(1))) {
        return Err(invalid(format!("binding: offset {offset} must be a multiple of {alignment}")));
    }
    if length > max {
        return Err(invalid(format!("binding: {length} bytes, but this adapter's may have {max}")));
    }
    Ok(())
}

/// The counts of a dispatch.
pub(crate) fn workgroups(counts: [u32; 3], limits: &Limits) -> Result<(), Error> {
    let max = limits.max_compute_workgroups_per_dimension;
    if counts.iter().any(|count| *count > max) {
        let [x, y, z] = counts;
        return Err(invalid(format!("a dispatch of {x} × {y} × {z} workgroups: at most {max} along each")));
    }
    Ok(())
}

/// Labels, names of entry points and of constants.
pub(crate) fn name(what: &str, name: &str) -> Result<(), Error> {
    if name.len() > limit::GPU_NAME_BYTES_MAX {
        return Err(invalid(format!(
            "{what}: a name of {} bytes, at most {}",
            name.len(),
            limit::GPU_NAME_BYTES_MAX
        )));
    }
    Ok(())
}

/// That a list is not longer than anybody needs.
pub(crate) fn entries(what: &str, count: usize) -> Result<(), Error> {
    if count > limit::GPU_ENTRIES_MAX {
        return Err(invalid(format!("{count} {what}: at most {}", limit::GPU_ENTRIES_MAX)));
    }
    Ok(())
}

/// The bind groups of a layout. `wgpu` keeps them in a list of fixed length.
pub(crate) fn groups(count: usize, limits: &Limits) -> Result<(), Error> {
    let max = limits.max_bind_groups;
    if count > max as usize {
        return Err(invalid(format!("{count} groups of a layout: this adapter has {max}")));
    }
    Ok(())
}

/// That passes can be timed here.
pub(crate) fn timed(adapter: &Adapter) -> Result<(), Error> {
    if adapter.timestamps { Ok(()) } else { Err(invalid(format!("{} has no timestamps", adapter.name))) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is accepted lies within the buffer, computed without any chance of overflow.
        #[test]
        fn accepted_parts_lie_within(offset: u64, length: u64, size: u64, near in 0u64..64) {
            for (offset, length) in [(offset, length), (offset, u64::MAX - offset), (size.saturating_sub(near), near)] {
                if part("test", offset, length, size).is_ok() {
                    prop_assert!(u128::from(offset) + u128::from(length) <= u128::from(size));
                    prop_assert!(offset % 4 == 0 && length % 4 == 0);
                }
            }
            prop_assert_eq!(words(length).is_ok(), length <= u64::MAX - 3);
        }
    }
}
