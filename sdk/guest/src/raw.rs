//! The contract's own plain data, as generated from `sdk/wit/fanfold-function.wit`, which documents it.

pub use crate::bindings::fanfold::function::{
    context::Info,
    data::Block,
    log::Level,
    objects::{Object, Page},
    tasks::{Amount, Call, Durability, Options, Placement},
    types::{BlockRange, Error, ErrorKind, ObjectRange, PartitionId, Payload, TaskId, Value},
};
