//! Compute on a gpu: WGSL, with WebGPU's names.
//!
//! For tasks that hold a gpu: `resources.gpu = 1` in the manifest, or [`crate::Call::gpu`]. Outside of a component there is none: every
//! function here fails then.
//!
//! ```no_run
//! use fanfold::gpu::{self, Usage};
//!
//! /// Doubles numbers.
//! #[fanfold::function]
//! fn double(numbers: Vec<u8>) -> fanfold::Result<Vec<u8>> {
//!     let data = gpu::Buffer::new("numbers", numbers.len() as u64, Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC)?;
//!     data.write(0, &numbers)?;
//!     let shader = gpu::Shader::new(
//!         "double",
//!         "@group(0) @binding(0) var<storage, read_write> data: array<u32>;
//!          @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!              if id.x < arrayLength(&data) { data[id.x] *= 2u; }
//!          }",
//!     )?;
//!     let pipeline = shader.pipeline("main", &[])?;
//!     let group = pipeline.bind(0, &[(0, &data)])?;
//!     let commands = gpu::Commands::new()?;
//!     commands.dispatch(&pipeline, &[&group], [data.size().div_ceil(256) as u32, 1, 1])?;
//!     commands.submit()?;
//!     data.read(0, data.size())
//! }
//! # fn main() {}
//! ```

use crate::{Error, Reader, Result, Writer, host};

pub use host::gpu::{
    AdapterInfo as Adapter, BindGroupLayoutEntry as LayoutEntry, BindingKind, BufferUsage as Usage, Limits,
};

/// Bytes of one `read` or `write` of the host.
const STEP: u64 = 1 << 20;

/// What computes here.
///
/// # Errors
/// As every first call: `invalid` where the task holds no gpu, `conflict` where the executor has none that will do.
pub fn adapter() -> Result<Adapter> {
    Ok(host::gpu::adapter()?)
}

/// Memory of the device. Dropping it frees it.
#[derive(Debug)]
pub struct Buffer(host::gpu::Buffer);

impl Buffer {
    /// `size` bytes of zeros; a multiple of 4. The label shows in error messages.
    ///
    /// # Errors
    /// `limit` where the job's buffers are too large together.
    pub fn new(label: &str, size: u64, usage: Usage) -> Result<Self> {
        Ok(Self(host::gpu::create_buffer(label, size, usage)?))
    }

    /// Bytes `from` to `from + length` (exclusive) of a value, filled up to a multiple of 4 with zeros, for reading only: weights of a
    /// model, say. The buffer stays on the device for tasks of the same job that run there later and ask for the same; they find it
    /// instead of reading the value, until memory is wanted for other buffers or a minute passes without any. `usage` is without
    /// `COPY_DST`; shaders bind it as `var<storage, read>` or `var<uniform>`.
    ///
    /// ```no_run
    /// # fn main() -> fanfold::Result<()> {
    /// use fanfold::{gpu::{Buffer, Usage}, objects};
    ///
    /// let file = objects::open("models/small.weights")?;
    /// let weights = Buffer::kept("weights", &file, 0, file.size(), Usage::STORAGE)?;
    /// # drop(weights);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Buffer::new`] and [`Buffer::load`].
    pub fn kept(label: &str, source: &Reader, from: u64, length: u64, usage: Usage) -> Result<Self> {
        match source.host() {
            Some(reader) => Ok(Self(host::gpu::create_kept_buffer(label, reader, from, length, usage)?)),
            // What came with the call is small, and here already.
            None => {
                let size = length.checked_next_multiple_of(4).ok_or_else(|| Error::invalid("too long"))?;
                let buffer = Self::new(label, size, usage | Usage::COPY_DST)?;
                buffer.load(0, source, from, length)?;
                Ok(buffer)
            }
        }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// Writes at `offset`, a multiple of 4. The last word is filled up with zeros.
    ///
    /// # Errors
    /// `invalid` where they do not fit, or without `COPY_DST`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        for (at, part) in (0..).step_by(STEP as usize).zip(bytes.chunks(STEP as usize)) {
            self.0.write(offset.saturating_add(at), part)?;
        }
        Ok(())
    }

    /// Reads at `offset`, a multiple of 4, after everything submitted so far.
    ///
    /// # Errors
    /// `invalid` where there is not as much, or without `COPY_SRC`; what became of the submissions.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let at = bytes.len() as u64;
            bytes.extend(self.0.read(offset.saturating_add(at), (length - at).min(STEP) as u32)?);
        }
        Ok(bytes)
    }

    /// Writes bytes `from` to `from + length` (exclusive) of a value at `offset`, a multiple of 4. They pass through this instance
    /// only where they came along with the call.
    ///
    /// # Errors
    /// As [`Buffer::write`]; `invalid` where the value is shorter.
    pub fn load(&self, offset: u64, source: &Reader, from: u64, length: u64) -> Result<()> {
        match source.host() {
            Some(reader) => Ok(self.0.load(offset, reader, from, length)?),
            None => {
                let bytes = source.range(from..from.saturating_add(length))?;
                if (bytes.len() as u64) < length {
                    return Err(Error::invalid(format!("the value has {} bytes", source.size())));
                }
                self.write(offset, &bytes)
            }
        }
    }

    /// Appends `length` bytes at `offset`, a multiple of 4, to a partition. They do not pass through this instance.
    ///
    /// # Errors
    /// As [`Buffer::read`], and as writing does.
    pub fn store(&self, offset: u64, length: u64, target: &mut Writer) -> Result<()> {
        Ok(self.0.store(offset, length, target.host()?)?)
    }
}

/// WGSL that was accepted.
#[derive(Debug)]
pub struct Shader(host::gpu::ShaderModule);

impl Shader {
    /// Has WGSL checked, of at most 256 KiB.
    ///
    /// # Errors
    /// `invalid`, with the compiler's message.
    pub fn new(label: &str, wgsl: &str) -> Result<Self> {
        Ok(Self(host::gpu::create_shader_module(label, wgsl)?))
    }

    /// Names of its compute entry points.
    pub fn entry_points(&self) -> Vec<String> {
        self.0.entry_points()
    }

    /// Compiles an entry point, with values for its `override`s. What it binds is taken from the shader.
    ///
    /// # Errors
    /// `invalid` where it does not compile.
    pub fn pipeline(&self, entry: &str, constants: &[(&str, f64)]) -> Result<Pipeline> {
        self.compile(entry, None, constants)
    }

    /// The same with a layout, by `@group`. Bind groups fit every pipeline of an equal layout.
    ///
    /// # Errors
    /// As [`Shader::pipeline`].
    pub fn pipeline_with(
        &self,
        entry: &str,
        layout: &[Vec<LayoutEntry>],
        constants: &[(&str, f64)],
    ) -> Result<Pipeline> {
        self.compile(entry, Some(layout), constants)
    }

    fn compile(
        &self,
        entry: &str,
        layout: Option<&[Vec<LayoutEntry>]>,
        constants: &[(&str, f64)],
    ) -> Result<Pipeline> {
        let constants: Vec<_> = constants.iter().map(|(name, value)| (String::from(*name), *value)).collect();
        Ok(Pipeline(host::gpu::create_compute_pipeline(&self.0, entry, layout, &constants)?))
    }
}

/// A compiled entry point.
#[derive(Debug)]
pub struct Pipeline(host::gpu::ComputePipeline);

impl Pipeline {
    /// Binds whole buffers to the variables of a group, by `@binding`.
    ///
    /// # Errors
    /// `invalid` where they do not fit the layout.
    pub fn bind(&self, group: u32, entries: &[(u32, &Buffer)]) -> Result<BindGroup> {
        let parts: Vec<_> = entries.iter().map(|(binding, buffer)| (*binding, *buffer, 0, None)).collect();
        self.bind_parts(group, &parts)
    }

    /// Binds parts of buffers: binding, buffer, offset, and bytes unless it goes to the end.
    ///
    /// # Errors
    /// As [`Pipeline::bind`].
    pub fn bind_parts(&self, group: u32, entries: &[(u32, &Buffer, u64, Option<u64>)]) -> Result<BindGroup> {
        let entries: Vec<_> =
            entries.iter().map(|(binding, b, at, size)| (*binding, &b.0, *at, *size)).collect();
        Ok(BindGroup(host::gpu::create_bind_group(&self.0, group, &entries)?))
    }
}

/// Buffers that are bound to variables.
#[derive(Debug)]
pub struct BindGroup(host::gpu::BindGroup);

/// Commands that are recorded, to be submitted together.
#[derive(Debug)]
pub struct Commands(host::gpu::CommandEncoder);

impl Commands {
    /// None yet.
    ///
    /// # Errors
    /// As [`adapter`].
    pub fn new() -> Result<Self> {
        Ok(Self(host::gpu::create_command_encoder()?))
    }

    /// Begins a pass whose beginning and end [`Submission::wait`] tells. Without it dispatches begin one of their own.
    ///
    /// # Errors
    /// `invalid` beyond 4096 commands. That the adapter has no timestamps shows when it is submitted.
    pub fn begin_timed_pass(&self) -> Result<()> {
        Ok(self.0.begin_compute_pass(true)?)
    }

    /// Runs a pipeline in so many workgroups along x, y and z. `groups` are in the order of `@group`.
    ///
    /// # Errors
    /// As [`Commands::begin_timed_pass`].
    pub fn dispatch(&self, pipeline: &Pipeline, groups: &[&BindGroup], [x, y, z]: [u32; 3]) -> Result<()> {
        let groups: Vec<_> = groups.iter().map(|group| &group.0).collect();
        Ok(self.0.dispatch_workgroups(&pipeline.0, &groups, x, y, z)?)
    }

    /// The same, with the three counts at `offset` of a buffer.
    ///
    /// # Errors
    /// As [`Commands::begin_timed_pass`].
    pub fn dispatch_indirect(
        &self,
        pipeline: &Pipeline,
        groups: &[&BindGroup],
        counts: &Buffer,
        offset: u64,
    ) -> Result<()> {
        let groups: Vec<_> = groups.iter().map(|group| &group.0).collect();
        Ok(self.0.dispatch_workgroups_indirect(&pipeline.0, &groups, &counts.0, offset)?)
    }

    /// Copies between two buffers. Offsets and length are multiples of 4.
    ///
    /// # Errors
    /// As [`Commands::begin_timed_pass`].
    pub fn copy(&self, source: (&Buffer, u64), target: (&Buffer, u64), length: u64) -> Result<()> {
        Ok(self.0.copy_buffer_to_buffer(&source.0.0, source.1, &target.0.0, target.1, length)?)
    }

    /// Fills a part of a buffer with zeros. Offset and length are multiples of 4.
    ///
    /// # Errors
    /// As [`Commands::begin_timed_pass`].
    pub fn clear(&self, buffer: &Buffer, offset: u64, length: u64) -> Result<()> {
        Ok(self.0.clear_buffer(&buffer.0, offset, length)?)
    }

    /// Hands them to the device. Returns at once; what is read or submitted later sees their effect.
    ///
    /// # Errors
    /// `invalid`, naming the command that is wrong.
    pub fn submit(self) -> Result<Submission> {
        Ok(Submission(host::gpu::submit(self.0)?))
    }
}

/// Commands that the device carries out.
#[derive(Debug)]
pub struct Submission(host::gpu::Submission);

impl Submission {
    /// Waits for the end. Returns beginning and end of the timed passes, in nanoseconds of a clock of the device. That is real time: a
    /// function whose outputs follow from it is not deterministic.
    ///
    /// # Errors
    /// `limit` where it took too long, `invalid` where counts of an indirect dispatch were too large.
    pub fn wait(&self) -> Result<Vec<(u64, u64)>> {
        Ok(self.0.wait()?)
    }
}
