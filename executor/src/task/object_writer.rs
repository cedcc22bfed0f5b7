//! An object while its task writes it: bytes go from the guest into segments, and on to the store as they fill.
//!
//! Each byte is copied once on its way. The segments are charged against the cache's budget, and each charge goes with
//! its segment: it is given back when the store has sent the bytes. Nothing is seen of the object before `finish`.

use bytes::Bytes;
use fanfold_protocol::{Error, limit, rest::ObjectView};
use fanfold_store::objects;
use wasmtime::{
    StoreContextMut,
    component::{Linker, Resource, WasmList},
};

use super::{
    bindings::fanfold::function::types,
    convert,
    host::{HasTask, TaskHost, View, stale},
    resource,
    writer::reserve,
};
use crate::cache::{Cache, Charge, Growing};

/// The name of the interface in a linker.
const INTERFACE: &str = "fanfold:function/objects@0.1.0";

/// See the module.
#[derive(Debug)]
pub struct ObjectWriter {
    upload: objects::ObjectWriter,
    growing: Growing,
    charge: Charge,
}

impl ObjectWriter {
    async fn reserve(&mut self, cache: &Cache, bytes: usize) -> Result<(), Error> {
        reserve(&self.growing, &mut self.charge, cache, bytes).await
    }

    /// Passes on what is full. Waits while as much is on its way as may be.
    async fn send(&mut self) -> Result<(), Error> {
        for segment in self.growing.take_full() {
            let charge = self.charge.split(segment.len() as u64);
            self.upload.write(Bytes::from_owner(Charged { segment, _charge: charge })).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<ObjectView, Error> {
        self.upload.write(self.growing.into_tail()).await?;
        self.upload.finish().await
    }
}

/// A segment, and the room it takes.
struct Charged {
    segment: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.segment
    }
}

/// Replaces the generated `write`, which would copy every byte once more.
pub fn link_write<T: HasTask>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut objects = linker.instance(INTERFACE)?;
    objects.func_wrap_async("[method]object-writer.write", |store: StoreContextMut<'_, T>, args| {
        let (writer, bytes): (Resource<resource::ObjectWriter>, WasmList<u8>) = args;
        Box::new(async move { Ok((write(store, &writer, &bytes).await?.map_err(types::Error::from),)) })
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn write<T: HasTask>(
    mut store: StoreContextMut<'_, T>,
    handle: &Resource<resource::ObjectWriter>,
    bytes: &WasmList<u8>,
) -> wasmtime::Result<Result<(), Error>> {
    let mut view = View(store.data_mut().task());
    let host = view.host()?;
    let cache = host.env.cache.clone();
    let slot = host.object_writers.get_mut(handle.rep() as usize).ok_or_else(stale)?;
    // The guest's memory and its task are both in the store, so the writer leaves it while it copies.
    let mut writer = slot.take().ok_or_else(stale)?;
    let mut written = writer.reserve(&cache, bytes.len()).await;
    if written.is_ok() {
        writer.growing.append(bytes.as_le_slice(&store));
        written = writer.send().await;
    }
    let mut view = View(store.data_mut().task());
    let host = view.host()?;
    if written.is_ok() {
        host.bytes_written += bytes.len() as u64;
    }
    *host.object_writers.get_mut(handle.rep() as usize).ok_or_else(stale)? = Some(writer);
    Ok(written)
}

impl TaskHost {
    /// Begins an object; its handle.
    pub(super) fn create_object(&mut self, key: &str) -> Result<u32, Error> {
        convert::key(key)?;
        if self.object_writers.len() >= limit::OBJECT_WRITERS_MAX {
            return Err(Error::invalid(format!(
                "the task writes {} objects: finish some first",
                limit::OBJECT_WRITERS_MAX
            )));
        }
        let upload = self.env.store.objects().create(key)?;
        let writer = ObjectWriter { upload, growing: Growing::default(), charge: Charge::default() };
        Ok(self.object_writers.insert(Some(Box::new(writer))) as u32)
    }

    /// Completes an object.
    pub(super) async fn finish_object(&mut self, handle: u32) -> Result<ObjectView, Error> {
        let writer = self.object_writers.try_remove(handle as usize).flatten().ok_or_else(stale)?;
        let object = writer.finish().await?;
        self.wrote(&object).await?;
        Ok(object)
    }
}
