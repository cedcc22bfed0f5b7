//! The one device of a worker, and how its errors become ours: nothing that `wgpu` finds wrong panics.

use std::sync::{Arc, Mutex, PoisonError};

use fanfold_protocol::{Code, Error, Kind};
use futures::FutureExt as _;
use wgpu::{Backends, DeviceType, ErrorFilter, Features, naga::valid::Capabilities};

use crate::message::{Adapter, Limits};

/// What shaders may use where the adapter has it.
const WANTED: Features = Features::SHADER_F16.union(Features::SUBGROUP).union(Features::TIMESTAMP_QUERY);

/// An open device.
pub(super) struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub adapter: Adapter,
    /// What went wrong outside of [`Device::guarded`], or for good.
    fault: Arc<Mutex<Option<Error>>>,
}

/// Opens the best adapter there is: hardware before software.
///
/// # Errors
/// [`Code::GpuAdapter`] where there is none.
pub(super) fn open() -> Result<Device, Error> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN;
    descriptor.flags = wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL;
    let instance = wgpu::Instance::new(descriptor);
    let adapters = instance.enumerate_adapters(Backends::VULKAN).now_or_never().unwrap_or_default();
    let best = adapters.into_iter().max_by_key(|adapter| rank(adapter.get_info().device_type));
    let Some(best) = best else {
        let message =
            "no Vulkan adapter: install a driver (Mesa's `mesa-vulkan-drivers` has one without hardware)";
        return Err(Error::new(Kind::Conflict, Code::GpuAdapter, message));
    };
    let descriptor = wgpu::DeviceDescriptor {
        label: None,
        required_features: best.features() & WANTED,
        required_limits: best.limits(),
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    let unopened = |why: String| Error::new(Kind::Conflict, Code::GpuAdapter, why);
    let opened = best.request_device(&descriptor).now_or_never();
    let (device, queue) = opened
        .ok_or_else(|| unopened(String::from("the adapter does not answer")))?
        .map_err(|e| unopened(format!("the adapter {} does not open: {e}", best.get_info().name)))?;
    let fault = Arc::new(Mutex::new(None));
    watch(&device, &fault);
    Ok(Device { adapter: describe(&best), device, queue, fault })
}

fn rank(kind: DeviceType) -> u8 {
    match kind {
        DeviceType::DiscreteGpu => 4,
        DeviceType::IntegratedGpu => 3,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 1,
        DeviceType::Cpu => 0,
    }
}

/// Has the device say what no scope catches, in place of its default, which panics.
fn watch(device: &wgpu::Device, fault: &Arc<Mutex<Option<Error>>>) {
    let keep = |fault: &Mutex<Option<Error>>, error: Error| {
        fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let uncaptured = Arc::clone(fault);
    device.on_uncaptured_error(Arc::new(move |error| {
        keep(&uncaptured, Error::internal(format!("an error out of turn: {error}")));
    }));
    let lost = Arc::clone(fault);
    device.set_device_lost_callback(move |_, why| {
        keep(&lost, Error::new(Kind::Lost, Code::GpuLost, format!("the device is lost: {why}")));
    });
}

fn describe(adapter: &wgpu::Adapter) -> Adapter {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    Adapter {
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        software: info.device_type == DeviceType::Cpu,
        name: info.name,
        f16: features.contains(Features::SHADER_F16),
        subgroups: features.contains(Features::SUBGROUP),
        timestamps: features.contains(Features::TIMESTAMP_QUERY),
        limits: Limits {
            max_buffer_size: limits.max_buffer_size,
            max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
            max_uniform_buffer_binding_size: limits.max_uniform_buffer_binding_size,
            min_storage_buffer_offset_alignment: limits.min_storage_buffer_offset_alignment,
            min_uniform_buffer_offset_alignment: limits.min_uniform_buffer_offset_alignment,
            max_bind_groups: limits.max_bind_groups,
            max_storage_buffers_per_shader_stage: limits.max_storage_buffers_per_shader_stage,
            max_compute_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
            max_compute_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            max_compute_workgroup_size: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            max_compute_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        },
    }
}

impl Device {
    /// Calls the device, and turns what it finds wrong into an error.
    pub fn guarded<T>(&self, what: &str, call: impl FnOnce() -> T) -> Result<T, Error> {
        let scopes = [ErrorFilter::Internal, ErrorFilter::OutOfMemory, ErrorFilter::Validation]
            .map(|filter| self.device.push_error_scope(filter));
        let value = call();
        let mut found = None;
        // Innermost first, as they nest.
        for scope in scopes.into_iter().rev() {
            found = found.or(scope.pop().now_or_never().flatten());
        }
        match found {
            None => self.lost().map_or(Ok(value), Err),
            Some(error) => Err(explained(what, &error)),
        }
    }

    /// Why the device cannot be used any more, if it cannot.
    pub fn lost(&self) -> Option<Error> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What shaders may use, for their validation.
    pub fn capabilities(&self) -> Capabilities {
        // `pack2x16float` and its inverse are for every adapter: they need no `enable f16`.
        let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        capabilities.set(Capabilities::SHADER_FLOAT16, self.adapter.f16);
        capabilities.set(Capabilities::SUBGROUP, self.adapter.subgroups);
        capabilities
    }

    /// Waits until everything that was submitted has ended.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_for(None)
    }

    /// Waits for one submission.
    pub fn wait_for(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
        let wait = wgpu::PollType::Wait { submission_index: submission, timeout: None };
        let polled = self.device.poll(wait);
        polled
            .map(drop)
            .map_err(|e| self.lost().unwrap_or_else(|| Error::internal(format!("the device: {e}"))))
    }
}

fn explained(what: &str, error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => {
            let message = format!("{what}: the device has no memory left");
            Error::new(Kind::Limit, Code::GpuMemory, message)
        }
        wgpu::Error::Validation { .. } => crate::check::invalid(format!("{what}: {}", chain(error))),
        wgpu::Error::Internal { .. } => Error::internal(format!("{what}: {}", chain(error))),
    }
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    crate::check::cut(text)
}
