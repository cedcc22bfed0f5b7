//! `fanfold:function/data`: readers, writers, `put` and `yield-partition`.
//!
//! `reader.read` and `writer.write` are linked by hand: bytes go from the cache to the guest and back with one copy,
//! where the generated bindings would make a second one.

use bytes::Bytes;
use fanfold_protocol::{Error, PartitionId};
use wasmtime::{
    StoreContextMut,
    component::{Linker, Resource, WasmList},
};

use super::{
    bindings::fanfold::function::{data, types},
    convert,
    host::{HasTask, View, stale},
    resource,
};

/// The name of the interface in a linker.
const INTERFACE: &str = "fanfold:function/data@0.1.0";

/// Replaces the generated `read` and `write`.
pub fn link_bytes<T: HasTask>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut data = linker.instance(INTERFACE)?;
    data.func_wrap_async("[method]reader.read", |mut store: StoreContextMut<'_, T>, args| {
        let (reader, offset, length): (Resource<resource::Reader>, u64, u32) = args;
        Box::new(async move {
            let mut view = View(store.data_mut().task());
            let read = view.host()?.read(reader.rep(), offset, length).await;
            Ok((read.map_err(types::Error::from),))
        })
    })?;
    data.func_wrap_async("[method]writer.write", |store: StoreContextMut<'_, T>, args| {
        let (writer, bytes): (Resource<resource::Writer>, WasmList<u8>) = args;
        Box::new(async move { Ok((write(store, &writer, &bytes).await?.map_err(types::Error::from),)) })
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn write<T: HasTask>(
    mut store: StoreContextMut<'_, T>,
    handle: &Resource<resource::Writer>,
    bytes: &WasmList<u8>,
) -> wasmtime::Result<Result<(), Error>> {
    let mut view = View(store.data_mut().task());
    let host = view.host()?;
    let cache = host.env.cache.clone();
    let slot = host.writers.get_mut(handle.rep() as usize).ok_or_else(stale)?;
    if let Err(error) = slot.reserve(&cache, bytes.len()).await {
        return Ok(Err(error));
    }
    // The guest's memory and its task are both in the store, so the writer leaves it while it copies.
    let output = slot.output;
    let mut writer = std::mem::replace(slot, Box::new(super::writer::Writer::new(output)));
    writer.append(bytes.as_le_slice(&store));
    let mut view = View(store.data_mut().task());
    let slot = view.host()?.writers.get_mut(handle.rep() as usize).ok_or_else(stale)?;
    *slot = writer;
    Ok(Ok(()))
}

impl data::Host for View<'_> {
    async fn open(&mut self, value: types::Value) -> Result<Resource<resource::Reader>, Error> {
        let host = self.host()?;
        let reader = host.open_value(convert::value(value)?).await?;
        Ok(Resource::new_own(host.keep(reader)?))
    }

    fn create(&mut self, output: u32) -> Result<Resource<resource::Writer>, Error> {
        Ok(Resource::new_own(self.host()?.create(output)?))
    }

    fn finish(&mut self, writer: Resource<resource::Writer>) -> Result<types::Value, Error> {
        let host = self.host()?;
        let writer = host.writers.try_remove(writer.rep() as usize).ok_or_else(stale)?;
        Ok(host.finish(*writer).into())
    }

    async fn put(&mut self, payload: types::Payload) -> Result<types::PartitionId, Error> {
        Ok(self.host()?.put(payload).await?.into())
    }

    async fn yield_partition(&mut self, value: types::Value) -> Result<(), Error> {
        self.host()?.yield_value(value).await
    }
}

impl data::HostReader for View<'_> {
    fn size(&mut self, reader: Resource<resource::Reader>) -> wasmtime::Result<u64> {
        Ok(self.host()?.readers.get(reader.rep() as usize).ok_or_else(stale)?.size())
    }

    fn blocks(&mut self, reader: Resource<resource::Reader>) -> wasmtime::Result<Vec<data::Block>> {
        let reader = self.host()?.readers.get(reader.rep() as usize).ok_or_else(stale)?;
        let place = |offset: &mut u64, length: &u64| {
            let block = data::Block { offset: *offset, length: *length };
            *offset += length;
            Some(block)
        };
        Ok(reader.blocks().iter().scan(0, place).collect())
    }

    /// Only for completeness: [`link_bytes`] links another one.
    async fn read(
        &mut self,
        reader: Resource<resource::Reader>,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, Error> {
        self.host()?.read(reader.rep(), offset, length).await.map(Bytes::into)
    }

    fn refs(&mut self, reader: Resource<resource::Reader>) -> wasmtime::Result<Vec<types::PartitionId>> {
        let reader = self.host()?.readers.get(reader.rep() as usize).ok_or_else(stale)?;
        Ok(reader.refs().iter().copied().map(types::PartitionId::from).collect())
    }

    fn drop(&mut self, reader: Resource<resource::Reader>) -> wasmtime::Result<()> {
        self.host()?.readers.try_remove(reader.rep() as usize);
        Ok(())
    }
}

impl data::HostWriter for View<'_> {
    /// Only for completeness: [`link_bytes`] links another one.
    async fn write(&mut self, writer: Resource<resource::Writer>, bytes: Vec<u8>) -> Result<(), Error> {
        let host = self.host()?;
        let cache = host.env.cache.clone();
        let writer = host.writers.get_mut(writer.rep() as usize).ok_or_else(stale)?;
        writer.reserve(&cache, bytes.len()).await?;
        writer.append(&bytes);
        Ok(())
    }

    fn end_block(&mut self, writer: Resource<resource::Writer>) -> Result<u32, Error> {
        self.host()?.writers.get_mut(writer.rep() as usize).ok_or_else(stale)?.end_block()
    }

    fn add_ref(&mut self, writer: Resource<resource::Writer>, id: types::PartitionId) -> Result<(), Error> {
        let host = self.host()?;
        let id = PartitionId::from(id);
        host.check_named(id)?;
        host.writers.get_mut(writer.rep() as usize).ok_or_else(stale)?.add_ref(id)
    }

    fn drop(&mut self, writer: Resource<resource::Writer>) -> wasmtime::Result<()> {
        let host = self.host()?;
        if let Some(writer) = host.writers.try_remove(writer.rep() as usize) {
            host.abandon(&writer);
        }
        Ok(())
    }
}
