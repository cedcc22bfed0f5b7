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
