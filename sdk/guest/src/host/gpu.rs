//! The gpu of the in-process host: there is none. Every call that would make something fails, so nothing else is ever called.

use super::{Reader, Writer};
pub use crate::bindings::fanfold::gpu::compute::{
    AdapterInfo, BindGroupLayoutEntry, BindingKind, BufferUsage, Limits,
};
use crate::raw::{Error, ErrorKind};

type Result<T> = std::result::Result<T, Error>;

/// A thing of which there is none.
macro_rules! nothing {
    ($($name:ident),*) => {$(
        #[derive(Debug)]
        pub enum $name {}
    )*};
}

nothing!(Buffer, ShaderModule, ComputePipeline, BindGroup, CommandEncoder, Submission);

fn none<T>() -> Result<T> {
    let message = String::from("there is no gpu outside of the platform");
    Err(Error { kind: ErrorKind::Conflict, message, retryable: false })
}

pub fn adapter() -> Result<AdapterInfo> {
    none()
}

pub fn create_buffer(_: &str, _: u64, _: BufferUsage) -> Result<Buffer> {
    none()
}

pub fn create_kept_buffer(_: &str, _: &Reader, _: u64, _: u64, _: BufferUsage) -> Result<Buffer> {
    none()
}

pub fn create_shader_module(_: &str, _: &str) -> Result<ShaderModule> {
    none()
}

pub fn create_compute_pipeline(
    module: &ShaderModule,
    _: &str,
    _: Option<&[Vec<BindGroupLayoutEntry>]>,
    _: &[(String, f64)],
) -> Result<ComputePipeline> {
    match *module {}
}

pub fn create_bind_group(
    pipeline: &ComputePipeline,
    _: u32,
    _: &[(u32, &Buffer, u64, Option<u64>)],
) -> Result<BindGroup> {
    match *pipeline {}
}

pub fn create_command_encoder() -> Result<CommandEncoder> {
    none()
}

pub fn submit(commands: CommandEncoder) -> Result<Submission> {
    match commands {}
}

impl Buffer {
    pub fn size(&self) -> u64 {
        match *self {}
    }

    pub fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        match *self {}
    }

    pub fn read(&self, _: u64, _: u32) -> Result<Vec<u8>> {
        match *self {}
    }

    pub fn load(&self, _: u64, _: &Reader, _: u64, _: u64) -> Result<()> {
        match *self {}
    }

    pub fn store(&self, _: u64, _: u64, _: &Writer) -> Result<()> {
        match *self {}
    }
}

impl ShaderModule {
    pub fn entry_points(&self) -> Vec<String> {
        match *self {}
    }
}

impl CommandEncoder {
    pub fn begin_compute_pass(&self, _: bool) -> Result<()> {
        match *self {}
    }

    pub fn dispatch_workgroups(
        &self,
        _: &ComputePipeline,
        _: &[&BindGroup],
        _: u32,
        _: u32,
        _: u32,
    ) -> Result<()> {
        match *self {}
    }

    pub fn dispatch_workgroups_indirect(
        &self,
        _: &ComputePipeline,
        _: &[&BindGroup],
        _: &Buffer,
        _: u64,
    ) -> Result<()> {
        match *self {}
    }

    pub fn copy_buffer_to_buffer(&self, _: &Buffer, _: u64, _: &Buffer, _: u64, _: u64) -> Result<()> {
        match *self {}
    }

    pub fn clear_buffer(&self, _: &Buffer, _: u64, _: u64) -> Result<()> {
        match *self {}
    }
}

impl Submission {
    pub fn wait(&self) -> Result<Vec<(u64, u64)>> {
        match *self {}
    }
}
