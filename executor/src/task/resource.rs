//! The types behind the WIT resources. They have no values: a handle's number is an index into the tables of its
//! [`super::TaskHost`], which keeps handles small and typed.

/// A handle to a partition that may not exist yet.
#[derive(Debug)]
pub enum Future {}

/// A handle to a running generator.
#[derive(Debug)]
pub enum Generator {}

/// An open value.
#[derive(Debug)]
pub enum Reader {}

/// A partition that is being written.
#[derive(Debug)]
pub enum Writer {}

/// An object that is being written.
#[derive(Debug)]
pub enum ObjectWriter {}

/// Memory of a gpu.
#[derive(Debug)]
pub enum Buffer {}

/// A shader.
#[derive(Debug)]
pub enum ShaderModule {}

/// A compiled entry point of one.
#[derive(Debug)]
pub enum ComputePipeline {}

/// Buffers bound to a pipeline's variables.
#[derive(Debug)]
pub enum BindGroup {}

/// Commands for a gpu that are being recorded.
#[derive(Debug)]
pub enum CommandEncoder {}

/// Commands that a gpu carries out.
#[derive(Debug)]
pub enum Submission {}
