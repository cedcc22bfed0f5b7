//! Shaders, pipelines and bind groups.

use std::borrow::Cow;

use fanfold_protocol::{Error, Kind};
use sha2::{Digest as _, Sha256};

use super::{device::Device, session::Session};
use crate::{
    check::{self, invalid},
    message::{Answer, Binding, BindingKind, Handle, LayoutEntry, PipelineSpec},
    shader::{self, Entry, Groups, Parsed},
};

/// A shader that was accepted.
pub(super) struct Shader {
    label: String,
    digest: [u8; 32],
    module: wgpu::ShaderModule,
    parsed: Parsed,
}

/// A pipeline and what it binds.
#[derive(Clone)]
pub(super) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub groups: Groups,
}

/// A bind group, and which group of a layout it was made for.
pub(super) struct Group {
    pub group: wgpu::BindGroup,
    pub index: u32,
}

/// What makes two pipelines the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PipelineKey {
    shader: [u8; 32],
    entry: String,
    layout: Option<Vec<Vec<LayoutEntry>>>,
    /// With the values' bits: two values are the same constant only if they are the same number.
    constants: Vec<(String, u64)>,
}

impl Session {
    pub(super) fn create_shader(&mut self, label: String, wgsl: &str) -> Result<Answer, Error> {
        self.shaders.check_room()?;
        let device = &self.device;
        let parsed = shader::parse(&label, wgsl, device.capabilities(), &device.adapter.limits)?;
        let digest = Sha256::digest(wgsl).into();
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Naga(Cow::Owned(parsed.module.clone())),
        };
        // With all runtime checks: bounds, loops, divisions.
        let made = device.guarded("compiling", || device.device.create_shader_module(descriptor));
        let module = made.map_err(|e| shader::refused(&label, e))?;
        let names = parsed.entries.iter().map(|entry| entry.name.clone()).collect();
        let shader = Shader { label, digest, module, parsed };
        Ok(Answer::Shader(self.shaders.insert(shader)?, names))
    }

    pub(super) fn create_pipeline(&mut self, spec: PipelineSpec) -> Result<Answer, Error> {
        self.pipelines.check_room()?;
        let shader = self.shaders.get(spec.shader)?;
        let entry = shader.parsed.entries.iter().find(|entry| entry.name == spec.entry).ok_or_else(|| {
            let has = shader
                .parsed
                .entries
                .iter()
                .map(|entry| entry.name.as_str())
                .collect::<Vec<_>>()
                .join("`, `");
            shader::refused(&shader.label, format!("no compute entry point of that name; it has `{has}`"))
        })?;
        check::entries("constants", spec.constants.len())?;
        let key = PipelineKey {
            shader: shader.digest,
            entry: spec.entry.clone(),
            constants: spec.constants.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect(),
            layout: spec.layout.clone(),
        };
        if let Some(pipeline) = self.compiled.get(&key) {
            return Ok(Answer::Pipeline(self.pipelines.insert(pipeline)?, true));
        }
        let pipeline = compile(&self.device, shader, entry, &spec)?;
        self.compiled.put(key, pipeline.clone());
        Ok(Answer::Pipeline(self.pipelines.insert(pipeline)?, false))
    }

    pub(super) fn create_bind_group(
        &mut self,
        pipeline: Handle,
        group: u32,
        entries: &[Binding],
    ) -> Result<Handle, Error> {
        self.groups.check_room()?;
        let pipeline = self.pipelines.get(pipeline)?;
        let layout = pipeline.groups.get(group as usize).ok_or_else(|| {
            invalid(format!("group {group}: the pipeline's layout has {}", pipeline.groups.len()))
        })?;
        check::entries("entries of a bind group", entries.len())?;
        let mut bound = Vec::with_capacity(entries.len());
        for entry in entries {
            let kind = *layout.get(&entry.binding).ok_or_else(|| {
                invalid(format!("binding {}: the layout of group {group} has none of it", entry.binding))
            })?;
            bound.push(self.bind(entry, kind)?);
        }
        let device = &self.device.device;
        let group = self.device.guarded("creating a bind group", || Group {
            group: device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.pipeline.get_bind_group_layout(group),
                entries: &bound,
            }),
            index: group,
        })?;
        self.groups.insert(group)
    }

    fn bind(&self, entry: &Binding, kind: BindingKind) -> Result<wgpu::BindGroupEntry<'_>, Error> {
        let buffer = self.buffers.get(entry.buffer)?;
        let (has, usage) = match kind {
            BindingKind::Uniform => (buffer.usage.uniform, "uniform"),
            BindingKind::Storage | BindingKind::ReadOnlyStorage => (buffer.usage.storage, "storage"),
        };
        check::usage(has, &buffer.label, usage, "binding")?;
        if buffer.kept && kind == BindingKind::Storage {
            let message = format!("binding {}: the buffer `{}` is kept", entry.binding, buffer.label);
            return Err(invalid(format!(
                "{message}; shaders bind it as `var<storage, read>` or `var<uniform>`"
            )));
        }
        let length = entry.size.unwrap_or_else(|| buffer.size.saturating_sub(entry.offset));
        check::binding(kind, entry.offset, length, buffer.size, &self.device.adapter.limits)?;
        Ok(wgpu::BindGroupEntry {
            binding: entry.binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &buffer.buffer,
                offset: entry.offset,
                size: std::num::NonZero::new(length),
            }),
        })
    }
}

/// Compiles a pipeline.
fn compile(device: &Device, shader: &Shader, entry: &Entry, spec: &PipelineSpec) -> Result<Pipeline, Error> {
    for (name, _) in &spec.constants {
        check::name("a constant", name)?;
    }
    let constants: Vec<(&str, f64)> =
        spec.constants.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let parsed = &shader.parsed;
    let fits = parsed.check_workgroup_memory(&entry.name, &constants, &device.adapter.limits);
    fits.map_err(|e| shader::refused(&shader.label, e))?;
    let layout = spec.layout.as_deref().map(|groups| layout(device, groups)).transpose()?;
    let made = device.guarded("compiling a pipeline", || {
        device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: layout.as_ref().map(|(layout, _)| layout),
            module: &shader.module,
            entry_point: Some(&entry.name),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &constants,
                zero_initialize_workgroup_memory: true,
            },
            cache: None,
        })
    });
    let pipeline = made.map_err(|e| match e.kind {
        Kind::Invalid | Kind::Platform => shader::refused(&shader.label, e),
        _ => e,
    })?;
    Ok(Pipeline { pipeline, groups: layout.map_or_else(|| entry.groups.clone(), |(_, groups)| groups) })
}

/// An explicit layout.
fn layout(device: &Device, groups: &[Vec<LayoutEntry>]) -> Result<(wgpu::PipelineLayout, Groups), Error> {
    check::groups(groups.len(), &device.adapter.limits)?;
    for entries in groups {
        check::entries("entries of a layout", entries.len())?;
    }
    let kinds: Groups =
        groups.iter().map(|group| group.iter().map(|entry| (entry.binding, entry.kind)).collect()).collect();
    let layout = device.guarded("creating a layout", || {
        let made: Vec<_> = groups.iter().map(|entries| group_layout(&device.device, entries)).collect();
        let all: Vec<_> = made.iter().map(Some).collect();
        device.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &all,
            immediate_size: 0,
        })
    })?;
    Ok((layout, kinds))
}

fn group_layout(device: &wgpu::Device, entries: &[LayoutEntry]) -> wgpu::BindGroupLayout {
    let entry = |entry: &LayoutEntry| wgpu::BindGroupLayoutEntry {
        binding: entry.binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: match entry.kind {
                BindingKind::Uniform => wgpu::BufferBindingType::Uniform,
                BindingKind::Storage => wgpu::BufferBindingType::Storage { read_only: false },
                BindingKind::ReadOnlyStorage => wgpu::BufferBindingType::Storage { read_only: true },
            },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}
