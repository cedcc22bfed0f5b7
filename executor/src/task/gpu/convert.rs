//! Between the generated types of `fanfold:gpu` and the session's.

use fanfold_gpu::message::{self, BindingKind, LayoutEntry, Usage};

use crate::task::bindings::fanfold::gpu::compute;

pub(super) fn adapter(adapter: &message::Adapter) -> compute::AdapterInfo {
    let limits = &adapter.limits;
    let [x, y, z] = limits.max_compute_workgroup_size;
    compute::AdapterInfo {
        name: adapter.name.clone(),
        driver: adapter.driver.clone(),
        software: adapter.software,
        f16: adapter.f16,
        subgroups: adapter.subgroups,
        timestamps: adapter.timestamps,
        limits: compute::Limits {
            max_buffer_size: limits.max_buffer_size,
            max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
            max_uniform_buffer_binding_size: limits.max_uniform_buffer_binding_size,
            min_storage_buffer_offset_alignment: limits.min_storage_buffer_offset_alignment,
            min_uniform_buffer_offset_alignment: limits.min_uniform_buffer_offset_alignment,
            max_bind_groups: limits.max_bind_groups,
            max_storage_buffers_per_shader_stage: limits.max_storage_buffers_per_shader_stage,
            max_compute_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
            max_compute_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            max_compute_workgroup_size_x: x,
            max_compute_workgroup_size_y: y,
            max_compute_workgroup_size_z: z,
            max_compute_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        },
    }
}

pub(super) fn usage(usage: compute::BufferUsage) -> Usage {
    use compute::BufferUsage as From;
    Usage {
        copy_src: usage.contains(From::COPY_SRC),
        copy_dst: usage.contains(From::COPY_DST),
        storage: usage.contains(From::STORAGE),
        uniform: usage.contains(From::UNIFORM),
        indirect: usage.contains(From::INDIRECT),
    }
}

pub(super) fn layout(groups: Vec<Vec<compute::BindGroupLayoutEntry>>) -> Vec<Vec<LayoutEntry>> {
    let entry = |entry: compute::BindGroupLayoutEntry| LayoutEntry {
        binding: entry.binding,
        kind: match entry.kind {
            compute::BindingKind::Uniform => BindingKind::Uniform,
            compute::BindingKind::ReadOnlyStorage => BindingKind::ReadOnlyStorage,
            compute::BindingKind::Storage => BindingKind::Storage,
        },
    };
    groups.into_iter().map(|group| group.into_iter().map(entry).collect()).collect()
}
