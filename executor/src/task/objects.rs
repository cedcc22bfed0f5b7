//! `fanfold:function/objects`, `context` and `log`: the users' objects, what a task knows of itself, and log lines.

use bytes::Bytes;
use fanfold_protocol::{Code, Error, limit, message::FromExecutor, rest::ObjectView};
use wasmtime::component::Resource;

use super::{
    bindings::fanfold::function::{context, log, objects, types},
    convert,
    host::{HasTask, TaskHost, View},
    resource,
};

impl TaskHost {
    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<objects::Page, Error> {
        if prefix.len() > limit::OBJECT_KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a prefix of {} bytes: keys have at most {}",
                prefix.len(),
                limit::OBJECT_KEY_BYTES_MAX
            )));
        }
        let page = self.env.store.objects().list(prefix, after, limit::LIST_PAGE_MAX).await?;
        Ok(objects::Page { objects: page.items.into_iter().map(Into::into).collect(), next: page.next })
    }

    async fn put_object(&mut self, key: &str, bytes: Vec<u8>) -> Result<objects::Object, Error> {
        convert::key(key)?;
        if bytes.len() > limit::FUNCTION_OBJECT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "an object of {} bytes: a function puts at most {} at once; write larger ones piece by piece, with `create`",
                bytes.len(),
                limit::FUNCTION_OBJECT_BYTES_MAX
            )));
        }
        self.bytes_written += bytes.len() as u64;
        let body = futures::stream::iter([Ok(Bytes::from(bytes))]);
        let object = self.env.store.objects().put(key, body).await?;
        self.wrote(&object).await?;
        Ok(object.into())
    }

    /// Tells the owner of an object, where there is one.
    pub(super) async fn wrote(&self, object: &ObjectView) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        owner.send(FromExecutor::Wrote { attempt: owner.attempt(), object: Box::new(object.clone()) }).await
    }

    fn current(&self) -> context::Info {
        let identity = &self.identity;
        context::Info {
            task: identity.attempt.task.halves(),
            job: identity.job.to_string(),
            function: identity.function.name.as_str().to_owned(),
            version: identity.function.version.to_string(),
            entry: identity.entry.clone(),
            attempt: identity.attempt.number,
            executor: self.env.executor.0,
            outputs: if identity.generator { 0 } else { identity.outputs },
        }
    }
}

impl From<ObjectView> for objects::Object {
    fn from(object: ObjectView) -> Self {
        Self { key: object.key, bytes: object.bytes, etag: object.etag }
    }
}

impl types::Host for View<'_> {
    fn convert_error(&mut self, error: Error) -> wasmtime::Result<types::Error> {
        if error.code == Code::NonDeterministic
            && let Some(task) = self.0.as_deref_mut()
        {
            task.differs = Some(error.message.clone());
        }
        Ok(error.into())
    }
}

impl objects::Host for View<'_> {
    async fn list(&mut self, prefix: String, after: Option<String>) -> Result<objects::Page, Error> {
        self.host()?.list(&prefix, after.as_deref()).await
    }

    async fn head(&mut self, key: String) -> Result<objects::Object, Error> {
        convert::key(&key)?;
        Ok(self.host()?.env.store.objects().head(&key).await?.into())
    }

    async fn put(&mut self, key: String, bytes: Vec<u8>) -> Result<objects::Object, Error> {
        self.host()?.put_object(&key, bytes).await
    }

    fn create(&mut self, key: String) -> Result<Resource<resource::ObjectWriter>, Error> {
        Ok(Resource::new_own(self.host()?.create_object(&key)?))
    }

    async fn finish(&mut self, writer: Resource<resource::ObjectWriter>) -> Result<objects::Object, Error> {
        Ok(self.host()?.finish_object(writer.rep()).await?.into())
    }
}

impl objects::HostObjectWriter for View<'_> {
    /// Never called: [`super::object_writer::link_write`] links another one, which copies less.
    async fn write(&mut self, _: Resource<resource::ObjectWriter>, _: Vec<u8>) -> Result<(), Error> {
        Err(Error::internal("this way to write objects is not linked"))
    }

    fn drop(&mut self, writer: Resource<resource::ObjectWriter>) -> wasmtime::Result<()> {
        self.host()?.object_writers.try_remove(writer.rep() as usize);
        Ok(())
    }
}

impl context::Host for View<'_> {
    fn current(&mut self) -> wasmtime::Result<context::Info> {
        Ok(self.host()?.current())
    }
}

/// A guest that logs, which need not be a task.
#[derive(Debug)]
pub struct Logger<'a, T>(pub &'a mut T);

impl<T: HasTask> log::Host for Logger<'_, T> {
    fn log(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        self.0.log(level, &message)
    }

    fn status(&mut self, text: String) -> wasmtime::Result<()> {
        self.0.stands(text);
        Ok(())
    }
}
