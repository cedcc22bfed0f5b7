//! Buffers: made within the session's memory, written, read.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use fanfold_protocol::{Error, limit};
use wgpu::BufferUsages;

use super::session::Session;
use crate::{
    check::{self, invalid},
    message::{Answer, Handle, Reply, Usage},
};

/// Bytes of writes that wait in staging memory before they are handed to the device.
const STAGED_BYTES_MAX: u64 = 16 << 20;
/// Such hand-overs that the device has not finished.
const FLUSHES_MAX: usize = 4;

/// A buffer.
#[derive(Clone)]
pub(super) struct Buffer {
    pub label: String,
    pub buffer: wgpu::Buffer,
    pub size: u64,
    pub usage: Usage,
    /// It belongs to the worker, which keeps it beyond the session: shaders only read it.
    pub kept: bool,
}

/// Bytes of buffers.
pub(super) struct Memory {
    pub max: u64,
    pub used: u64,
    /// Of these, of buffers that are kept beyond the session.
    pub kept: u64,
    /// Of dropped buffers that submissions may still use.
    pub dropped: u64,
}

impl Session {
    pub(super) fn create_buffer(&mut self, label: String, size: u64, usage: Usage) -> Result<Handle, Error> {
        check::name("a buffer's label", &label)?;
        check::buffer(size, usage, &self.device.adapter.limits)?;
        self.buffers.check_room()?;
        self.take_memory(size)?;
        let descriptor =
            wgpu::BufferDescriptor { label: None, size, usage: usages(usage), mapped_at_creation: false };
        let made = self.device.guarded("creating a buffer", || self.device.device.create_buffer(&descriptor));
        let buffer = made.inspect_err(|_| self.memory.used -= size)?;
        self.buffers.insert(Buffer { label, buffer, size, usage, kept: false })
    }

    /// Makes a buffer of the session one that is only read, and that stays when the session ends.
    pub(super) fn keep_buffer(&mut self, handle: Handle) -> Result<Handle, Error> {
        self.kept.check_room()?;
        let buffer = self.buffers.get_mut(handle)?;
        if buffer.kept {
            return Err(invalid(format!("the buffer `{}` is kept already", buffer.label)));
        }
        (buffer.usage.copy_dst, buffer.kept) = (false, true);
        self.memory.kept += buffer.size;
        self.kept.insert(buffer.clone())
    }

    /// A kept buffer for this session.
    pub(super) fn use_kept(&mut self, kept: Handle, label: String) -> Result<Handle, Error> {
        check::name("a buffer's label", &label)?;
        let buffer = self.kept.get(kept)?.clone();
        self.buffers.insert(Buffer { label, ..buffer })
    }

    /// Frees a kept buffer. Were a session to use it all the same, its submissions would fail.
    pub(super) fn forget(&mut self, kept: Handle) {
        if let Some(buffer) = self.kept.remove(kept) {
            buffer.buffer.destroy();
            self.memory.kept -= buffer.size;
            self.memory.used -= buffer.size;
        }
    }

    /// Takes memory off the account. Where it is short, waits for what has been dropped to be free.
    fn take_memory(&mut self, size: u64) -> Result<(), Error> {
        if self.memory.used.saturating_add(self.memory.dropped).saturating_add(size) > self.memory.max {
            self.wait()?;
            self.memory.dropped = 0;
        }
        let Memory { max, used, .. } = self.memory;
        match used.checked_add(size) {
            Some(sum) if sum <= max => {
                self.memory.used = sum;
                Ok(())
            }
            _ => Err(check::no_memory(size, used, max)),
        }
    }

    pub(super) fn write(&mut self, buffer: Handle, offset: u64, data: &[u8]) -> Result<(), Error> {
        let target = self.buffers.get(buffer)?;
        let length = check::words(data.len() as u64)?;
        check::usage(target.usage.copy_dst, &target.label, "copy-dst", "writing")?;
        check::part("writing", offset, length, target.size)?;
        let Some(length) = std::num::NonZero::new(length) else { return Ok(()) };
        let queue = &self.device.queue;
        self.device.guarded("writing a buffer", || {
            let Some(mut view) = queue.write_buffer_with(&target.buffer, offset, length) else { return };
            let whole = data.len() - data.len() % check::ALIGNMENT as usize;
            view.slice(..whole).copy_from_slice(&data[..whole]);
            if whole < data.len() {
                let mut word = [0; check::ALIGNMENT as usize];
                word[..data.len() - whole].copy_from_slice(&data[whole..]);
                view.slice(whole..).copy_from_slice(&word);
            }
        })?;
        self.staged += length.get();
        if self.staged >= STAGED_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    /// Hands staged writes to the device, so that their staging memory is freed.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.staged = 0;
        let queue = &self.device.queue;
        let index = self.device.guarded("writing", || queue.submit([]))?;
        self.flushes.push_back((self.submissions.last(), index));
        if self.flushes.len() > FLUSHES_MAX
            && let Some((before, oldest)) = self.flushes.pop_front()
        {
            self.settle(before)?;
            self.device.wait_for(Some(oldest))?;
        }
        Ok(())
    }

    /// Reads a buffer and answers: from the memory that the device copied to, straight into the socket.
    pub fn read(&mut self, buffer: Handle, offset: u64, length: u64) -> io::Result<()> {
        let staging = match self.stage(buffer, offset, length) {
            Ok(staging) => staging,
            Err(error) => return self.say(&Reply::Answer(Err(error)), &[]),
        };
        let written = match staging.slice(..).get_mapped_range() {
            // At most a chunk: it was checked.
            Ok(view) => self.say(&Reply::Answer(Ok(Answer::Data)), &view[..length as usize]),
            Err(error) => {
                let error = Error::internal(format!("reading a buffer: {error}"));
                self.say(&Reply::Answer(Err(error)), &[])
            }
        };
        staging.unmap();
        written
    }

    /// Copies a part of a buffer into mapped memory.
    fn stage(&mut self, buffer: Handle, offset: u64, length: u64) -> Result<wgpu::Buffer, Error> {
        let source = self.buffers.get(buffer)?;
        let max = limit::GPU_CHUNK_BYTES_MAX as u64;
        check::usage(source.usage.copy_src, &source.label, "copy-src", "reading")?;
        if length > max {
            return Err(invalid(format!("reading {length} bytes at once: at most {max}")));
        }
        let words = check::words(length)?;
        check::part("reading", offset, words, source.size)?;
        let device = &self.device;
        let staging = match &self.staging {
            Some(staging) => staging.clone(),
            None => device.guarded("reading a buffer", || {
                device.device.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: max,
                    usage: BufferUsages::COPY_DST | BufferUsages::MAP_READ,
                    mapped_at_creation: false,
                })
            })?,
        };
        let mapped = Arc::new(Mutex::new(None));
        let result = Arc::clone(&mapped);
        device.guarded("reading a buffer", || {
            let mut encoder = device.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&source.buffer, offset, &staging, 0, words);
            device.queue.submit([encoder.finish()]);
            staging.slice(..).map_async(wgpu::MapMode::Read, move |outcome| {
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            });
        })?;
        self.staged = 0;
        self.wait()?;
        self.staging = Some(staging.clone());
        match mapped.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Ok(())) => Ok(staging),
            outcome => {
                Err(Error::internal(format!("reading a buffer: the device did not map it ({outcome:?})")))
            }
        }
    }
}

fn usages(usage: Usage) -> BufferUsages {
    let mut usages = BufferUsages::empty();
    // Counts of indirect dispatches are copied for a check.
    usages.set(BufferUsages::COPY_SRC, usage.copy_src || usage.indirect);
    usages.set(BufferUsages::COPY_DST, usage.copy_dst);
    usages.set(BufferUsages::STORAGE, usage.storage);
    usages.set(BufferUsages::UNIFORM, usage.uniform);
    usages.set(BufferUsages::INDIRECT, usage.indirect);
    usages
}
