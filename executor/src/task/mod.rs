//! The task world: the host side of `sdk/wit`.
//!
//! It owns what one attempt holds (handles, readers, writers, outputs) and turns host calls into messages to the owner
//! and reads and writes of the cache. It promises that no guest input panics the host: what is wrong is an error that
//! the guest sees, and only what ends the attempt anyway is a trap. It does not know how attempts are started; `worker`
//! and [`run_direct`] do that.

mod bindings;
mod calls;
mod convert;
mod data;
mod futures;
mod gpu;
mod host;
mod object_writer;
mod objects;
mod open;
mod outputs;
mod owner;
mod reader;
mod resource;
mod run;
mod writer;

use wasmtime::component::{HasData, Linker};

pub use bindings::TaskPre;
pub use host::{Environment, HasTask, Identity, TaskHost, View};
pub use owner::Owner;
pub use reader::Fetched;
pub use run::{DirectCall, DirectOutput, run_direct};
pub(crate) use run::{open, outputs};

use bindings::fanfold::function;

/// Adds the host calls of the task world.
///
/// # Errors
/// Where the linker has one of them already.
pub fn add_to_linker<T: HasTask>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    fn view<T: HasTask>(guest: &mut T) -> View<'_> {
        View(guest.task())
    }
    fn logger<T: HasTask>(guest: &mut T) -> objects::Logger<'_, T> {
        objects::Logger(guest)
    }
    function::types::add_to_linker::<T, Views>(linker, view)?;
    function::tasks::add_to_linker::<T, Views>(linker, view)?;
    function::data::add_to_linker::<T, Views>(linker, view)?;
    function::objects::add_to_linker::<T, Views>(linker, view)?;
    function::context::add_to_linker::<T, Views>(linker, view)?;
    function::log::add_to_linker::<T, Loggers<T>>(linker, logger)?;
    bindings::fanfold::gpu::compute::add_to_linker::<T, Views>(linker, view)?;
    data::link_bytes(linker)?;
    object_writer::link_write(linker)
}

struct Views;

impl HasData for Views {
    type Data<'a> = View<'a>;
}

struct Loggers<T>(std::marker::PhantomData<T>);

impl<T: HasTask> HasData for Loggers<T> {
    type Data<'a> = objects::Logger<'a, T>;
}
