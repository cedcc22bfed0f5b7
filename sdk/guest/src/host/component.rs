//! The host of a component: the generated imports.

use crate::{
    call::Entry,
    raw::{self, Call},
};

pub(crate) use crate::bindings::fanfold::function::{
    context::current,
    data::{Reader, Writer, create, finish, open, put, yield_partition},
    log::{log, status},
    objects::{
        ObjectWriter, create as create_object, finish as finish_object, head, list, put as put_object,
    },
    tasks::{Future, Generator, adopt, cancel, get, wait},
};

/// Nothing: the platform finds the code of a call.
#[derive(Clone, Copy, Default)]
pub struct Local;

impl Local {
    pub(crate) fn of<E: Entry>() -> Self {
        Self
    }
}

pub(crate) fn submit(call: &Call, outputs: u32, _: Local) -> Result<Vec<Future>, raw::Error> {
    crate::bindings::fanfold::function::tasks::submit(call, outputs)
}

pub(crate) fn submit_memo(call: &Call, outputs: u32, _: Local) -> Result<Vec<Future>, raw::Error> {
    crate::bindings::fanfold::function::tasks::submit_memo(call, outputs)
}

pub(crate) fn generate(call: &Call, _: Local) -> Result<Generator, raw::Error> {
    crate::bindings::fanfold::function::tasks::generate(call)
}
