//! The calls of `fanfold:gpu/compute`.

use fanfold_gpu::message::{Binding, Command, Dispatch, PipelineSpec, Workgroups};
use fanfold_protocol::{Code, Error, Kind, limit};
use wasmtime::component::Resource;

use super::{Buffer, GpuHost, Shader, check_room, convert, keep, transfer::Part};
use crate::task::{
    bindings::fanfold::gpu::compute,
    host::{View, stale},
    resource,
};

type Pipeline = Resource<resource::ComputePipeline>;
type Group = Resource<resource::BindGroup>;
type Encoder = Resource<resource::CommandEncoder>;

impl compute::Host for View<'_> {
    async fn adapter(&mut self) -> Result<compute::AdapterInfo, Error> {
        Ok(convert::adapter(self.host()?.gpu().await?.session.adapter()))
    }

    async fn create_buffer(
        &mut self,
        label: String,
        size: u64,
        usage: compute::BufferUsage,
    ) -> Result<Resource<resource::Buffer>, Error> {
        let gpu = self.host()?.gpu().await?;
        let handle = gpu.session.create_buffer(&label, size, convert::usage(usage)).await?;
        Ok(Resource::new_own(keep(&mut gpu.buffers, Buffer { handle, size }, "buffers")?))
    }

    async fn create_kept_buffer(
        &mut self,
        label: String,
        source: Resource<resource::Reader>,
        source_offset: u64,
        length: u64,
        usage: compute::BufferUsage,
    ) -> Result<Resource<resource::Buffer>, Error> {
        let host = self.host()?;
        let part = Part { source: source.rep(), offset: source_offset, length };
        let buffer = host.kept_buffer(&label, part, convert::usage(usage)).await?;
        Ok(Resource::new_own(keep(&mut host.gpu().await?.buffers, buffer, "buffers")?))
    }

    async fn create_shader_module(
        &mut self,
        label: String,
        wgsl: String,
    ) -> Result<Resource<resource::ShaderModule>, Error> {
        let gpu = self.host()?.gpu().await?;
        let (handle, entries) = gpu.session.create_shader(&label, &wgsl).await?;
        Ok(Resource::new_own(keep(&mut gpu.shaders, Shader { handle, entries }, "shader modules")?))
    }

    async fn create_compute_pipeline(
        &mut self,
        module: Resource<resource::ShaderModule>,
        entry: String,
        layout: Option<Vec<Vec<compute::BindGroupLayoutEntry>>>,
        constants: Vec<(String, f64)>,
    ) -> Result<Pipeline, Error> {
        let gpu = self.host()?.gpu().await?;
        let shader = gpu.shaders.get(module.rep() as usize).ok_or_else(stale)?.handle;
        let spec = PipelineSpec { shader, entry, layout: layout.map(convert::layout), constants };
        let (handle, _) = gpu.session.create_pipeline(spec).await?;
        Ok(Resource::new_own(keep(&mut gpu.pipelines, handle, "compute pipelines")?))
    }

    async fn create_bind_group(
        &mut self,
        pipeline: Pipeline,
        group: u32,
        entries: Vec<(u32, Resource<resource::Buffer>, u64, Option<u64>)>,
    ) -> Result<Group, Error> {
        let gpu = self.host()?.gpu().await?;
        let pipeline = *gpu.pipelines.get(pipeline.rep() as usize).ok_or_else(stale)?;
        let mut bindings = Vec::with_capacity(entries.len());
        for (binding, buffer, offset, size) in entries {
            bindings.push(Binding { binding, buffer: gpu.buffer(buffer.rep())?.handle, offset, size });
        }
        let handle = gpu.session.create_bind_group(pipeline, group, bindings).await?;
        Ok(Resource::new_own(keep(&mut gpu.groups, handle, "bind groups")?))
    }

    async fn create_command_encoder(&mut self) -> Result<Encoder, Error> {
        let gpu = self.host()?.gpu().await?;
        check_room(&gpu.encoders, limit::GPU_ENCODERS_MAX, "command encoders")?;
        Ok(Resource::new_own(gpu.encoders.insert(Default::default()) as u32))
    }

    async fn submit(&mut self, commands: Encoder) -> Result<Resource<resource::Submission>, Error> {
        let gpu = self.host()?.gpu().await?;
        // Before the commands run: who gets an error would not know that they did.
        check_room(&gpu.submissions, limit::GPU_HANDLES_MAX, "submissions")?;
        let commands = gpu.encoders.try_remove(commands.rep() as usize).ok_or_else(stale)?.commands;
        let number = gpu.session.submit(commands).await?;
        Ok(Resource::new_own(keep(&mut gpu.submissions, number, "submissions")?))
    }
}

impl compute::HostBuffer for View<'_> {
    fn size(&mut self, buffer: Resource<resource::Buffer>) -> wasmtime::Result<u64> {
        Ok(self.host()?.begun_gpu()?.buffer(buffer.rep())?.size)
    }

    async fn write(
        &mut self,
        buffer: Resource<resource::Buffer>,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        check_length(bytes.len() as u64)?;
        let gpu = self.host()?.gpu().await?;
        let buffer = gpu.buffer(buffer.rep())?.handle;
        gpu.session.write(buffer, offset, bytes.into()).await
    }

    async fn read(
        &mut self,
        buffer: Resource<resource::Buffer>,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, Error> {
        check_length(u64::from(length))?;
        let gpu = self.host()?.gpu().await?;
        let buffer = gpu.buffer(buffer.rep())?.handle;
        gpu.session.read(buffer, offset, u64::from(length)).await.map(Into::into)
    }

    async fn load(
        &mut self,
        buffer: Resource<resource::Buffer>,
        offset: u64,
        source: Resource<resource::Reader>,
        source_offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let part = Part { source: source.rep(), offset: source_offset, length };
        self.host()?.load_buffer(buffer.rep(), offset, part).await
    }

    async fn store(
        &mut self,
        buffer: Resource<resource::Buffer>,
        offset: u64,
        length: u64,
        target: Resource<resource::Writer>,
    ) -> Result<(), Error> {
        self.host()?.store_buffer(buffer.rep(), offset, length, target.rep()).await
    }

    fn drop(&mut self, buffer: Resource<resource::Buffer>) -> wasmtime::Result<()> {
        let gpu = self.host()?.begun_gpu()?;
        let buffer = gpu.buffers.try_remove(buffer.rep() as usize);
        gpu.dropped.extend(buffer.map(|buffer| buffer.handle));
        Ok(())
    }
}

/// As for any other data in one call.
fn check_length(length: u64) -> Result<(), Error> {
    let max = limit::HOST_CALL_BYTES_MAX as u64;
    if length > max {
        let message =
            format!("{length} bytes in one call: at most {max}; `load` and `store` take any length");
        return Err(Error::new(Kind::Invalid, Code::Gpu, message));
    }
    Ok(())
}

impl compute::HostShaderModule for View<'_> {
    fn entry_points(&mut self, module: Resource<resource::ShaderModule>) -> wasmtime::Result<Vec<String>> {
        let gpu = self.host()?.begun_gpu()?;
        Ok(gpu.shaders.get(module.rep() as usize).ok_or_else(stale)?.entries.clone())
    }

    fn drop(&mut self, module: Resource<resource::ShaderModule>) -> wasmtime::Result<()> {
        let gpu = self.host()?.begun_gpu()?;
        let shader = gpu.shaders.try_remove(module.rep() as usize);
        gpu.dropped.extend(shader.map(|shader| shader.handle));
        Ok(())
    }
}

impl compute::HostComputePipeline for View<'_> {
    fn drop(&mut self, pipeline: Pipeline) -> wasmtime::Result<()> {
        let gpu = self.host()?.begun_gpu()?;
        gpu.dropped.extend(gpu.pipelines.try_remove(pipeline.rep() as usize));
        Ok(())
    }
}

impl compute::HostBindGroup for View<'_> {
    fn drop(&mut self, group: Group) -> wasmtime::Result<()> {
        let gpu = self.host()?.begun_gpu()?;
        gpu.dropped.extend(gpu.groups.try_remove(group.rep() as usize));
        Ok(())
    }
}

impl compute::HostSubmission for View<'_> {
    async fn wait(&mut self, submission: Resource<resource::Submission>) -> Result<Vec<(u64, u64)>, Error> {
        let gpu = self.host()?.gpu().await?;
        let number = *gpu.submissions.get(submission.rep() as usize).ok_or_else(stale)?;
        let times = gpu.session.wait(number).await?;
        Ok(times.into_iter().map(|[begin, end]| (begin, end)).collect())
    }

    fn drop(&mut self, submission: Resource<resource::Submission>) -> wasmtime::Result<()> {
        self.host()?.begun_gpu()?.submissions.try_remove(submission.rep() as usize);
        Ok(())
    }
}

impl compute::HostCommandEncoder for View<'_> {
    fn begin_compute_pass(&mut self, encoder: Encoder, timed: bool) -> Result<(), Error> {
        self.host()?.begun_gpu()?.record(&encoder, Command::Pass { timed, dispatches: Vec::new() })
    }

    fn dispatch_workgroups(
        &mut self,
        encoder: Encoder,
        pipeline: Pipeline,
        groups: Vec<Group>,
        x: u32,
        y: u32,
        z: u32,
    ) -> Result<(), Error> {
        let gpu = self.host()?.begun_gpu()?;
        gpu.dispatch(&encoder, &pipeline, &groups, Workgroups::Direct([x, y, z]))
    }

    fn dispatch_workgroups_indirect(
        &mut self,
        encoder: Encoder,
        pipeline: Pipeline,
        groups: Vec<Group>,
        counts: Resource<resource::Buffer>,
        offset: u64,
    ) -> Result<(), Error> {
        let gpu = self.host()?.begun_gpu()?;
        let buffer = gpu.buffer(counts.rep())?.handle;
        gpu.dispatch(&encoder, &pipeline, &groups, Workgroups::Indirect { buffer, offset })
    }

    fn copy_buffer_to_buffer(
        &mut self,
        encoder: Encoder,
        source: Resource<resource::Buffer>,
        source_offset: u64,
        target: Resource<resource::Buffer>,
        target_offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let gpu = self.host()?.begun_gpu()?;
        let (source, target) = (gpu.buffer(source.rep())?.handle, gpu.buffer(target.rep())?.handle);
        gpu.record(&encoder, Command::Copy { source, source_offset, target, target_offset, length })
    }

    fn clear_buffer(
        &mut self,
        encoder: Encoder,
        buffer: Resource<resource::Buffer>,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let gpu = self.host()?.begun_gpu()?;
        let buffer = gpu.buffer(buffer.rep())?.handle;
        gpu.record(&encoder, Command::Zero { buffer, offset, length })
    }

    fn drop(&mut self, encoder: Encoder) -> wasmtime::Result<()> {
        self.host()?.begun_gpu()?.encoders.try_remove(encoder.rep() as usize);
        Ok(())
    }
}

impl GpuHost {
    fn record(&mut self, encoder: &Encoder, command: Command) -> Result<(), Error> {
        self.encoder(encoder, 1)?.commands.push(command);
        Ok(())
    }

    fn dispatch(
        &mut self,
        encoder: &Encoder,
        pipeline: &Pipeline,
        groups: &[Group],
        workgroups: Workgroups,
    ) -> Result<(), Error> {
        let pipeline = *self.pipelines.get(pipeline.rep() as usize).ok_or_else(stale)?;
        let handle = |group: &Group| self.groups.get(group.rep() as usize).copied().ok_or_else(stale);
        let groups: Vec<_> = groups.iter().map(handle).collect::<Result<_, _>>()?;
        let recorded = self.encoders.get(encoder.rep() as usize).ok_or_else(stale)?;
        let begins_pass = !matches!(recorded.commands.last(), Some(Command::Pass { .. }));
        let encoder = self.encoder(encoder, usize::from(begins_pass) + 1 + groups.len())?;
        let dispatch = Dispatch { pipeline, groups, workgroups };
        match encoder.commands.last_mut() {
            Some(Command::Pass { dispatches, .. }) => dispatches.push(dispatch),
            _ => encoder.commands.push(Command::Pass { timed: false, dispatches: vec![dispatch] }),
        }
        Ok(())
    }

    /// An encoder with room for `more` commands. The worker counts as well; but until they are submitted they are memory of the
    /// executor.
    fn encoder(&mut self, encoder: &Encoder, more: usize) -> Result<&mut super::Encoder, Error> {
        let encoder = self.encoders.get_mut(encoder.rep() as usize).ok_or_else(stale)?;
        if encoder.count + more > limit::GPU_COMMANDS_MAX {
            let max = limit::GPU_COMMANDS_MAX;
            let message = format!("more than {max} commands in one submission: submit them in parts");
            return Err(Error::new(Kind::Invalid, Code::Gpu, message));
        }
        encoder.count += more;
        Ok(encoder)
    }
}
