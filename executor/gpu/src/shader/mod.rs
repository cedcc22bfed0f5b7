//! From WGSL to a validated module and what it binds. Parsing runs in the worker only: it may abort on what it did not expect.

mod scan;

use std::collections::BTreeMap;

use fanfold_protocol::{Code, Error, Kind};
use wgpu::naga::{
    AddressSpace, GlobalVariable, Module, Scalar, ShaderStage, StorageAccess,
    back::{PipelineConstants, pipeline_constants::process_overrides},
    front::wgsl,
    valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator},
};

use crate::{
    check,
    message::{BindingKind, Limits},
};

/// The bindings of each bind group, by `@group` and `@binding`.
pub(crate) type Groups = Vec<BTreeMap<u32, BindingKind>>;

/// A compute entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub name: String,
    /// What it binds.
    pub groups: Groups,
}

/// A shader that may be handed to a device.
pub(crate) struct Parsed {
    /// What was read.
    pub module: Module,
    info: ModuleInfo,
    /// Its compute entry points.
    pub entries: Vec<Entry>,
}

/// Reads a shader. Bounds its nesting before anything recursive sees it.
///
/// # Errors
/// [`Code::Shader`], naming the shader by its label.
pub(crate) fn parse(
    label: &str,
    source: &str,
    capabilities: Capabilities,
    limits: &Limits,
) -> Result<Parsed, Error> {
    let named = |message: String| refused(label, message);
    check::name("a shader's label", label)?;
    scan::scan(source).map_err(named)?;
    let module = wgsl::parse_str(source).map_err(|e| named(e.emit_to_string(source)))?;
    if !capabilities.contains(Capabilities::SHADER_FLOAT16) && has_f16(&module) {
        return Err(named(String::from(
            "it uses f16, which this adapter does not have (`f16` of its `adapter-info`)",
        )));
    }
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    if capabilities.contains(Capabilities::SUBGROUP) {
        validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    }
    let info = validator.validate(&module).map_err(|e| named(e.emit_to_string(source)))?;
    let entries = entries(&module, &info, limits).map_err(named)?;
    Ok(Parsed { module, info, entries })
}

/// Whether a type has numbers of 16 bits. Where they are in an expression only, validation finds them.
fn has_f16(module: &Module) -> bool {
    module.types.iter().any(|(_, of)| of.inner.scalar() == Some(Scalar::F16))
}

impl Parsed {
    /// That an entry point's `var<workgroup>`s, with these constants, are no more than the adapter has. `wgpu` does not ask.
    pub fn check_workgroup_memory(
        &self,
        entry: &str,
        constants: &[(&str, f64)],
        limits: &Limits,
    ) -> Result<(), String> {
        let constants: PipelineConstants =
            constants.iter().map(|(name, value)| (String::from(*name), *value)).collect();
        let stage = Some((ShaderStage::Compute, entry));
        let (module, info) = process_overrides(&self.module, &self.info, stage, &constants)
            .map_err(|e| format!("with these constants: {e}"))?;
        let Some(index) = module.entry_points.iter().position(|other| other.name == entry) else {
            return Err(format!("no entry point `{entry}`"));
        };
        let used = info.get_entry_point(index);
        let of_workgroup = module.global_variables.iter().filter(|(handle, variable)| {
            variable.space == AddressSpace::WorkGroup && !used[*handle].is_empty()
        });
        let size = |variable: &GlobalVariable| module.types[variable.ty].inner.try_size(module.to_ctx());
        let max = limits.max_compute_workgroup_storage_size;
        // A size that is not known is one beyond all bounds.
        let sum: u64 = of_workgroup.map(|(_, variable)| size(variable).map_or(1 << 32, u64::from)).sum();
        if sum > u64::from(max) {
            return Err(format!("`{entry}` has {sum} bytes of var<workgroup>: this adapter has {max}"));
        }
        Ok(())
    }
}

/// A shader's fault.
pub(crate) fn refused(label: &str, message: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, Code::Shader, check::cut(format!("shader `{label}`: {message}")))
}

fn entries(module: &Module, info: &ModuleInfo, limits: &Limits) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (index, entry) in module.entry_points.iter().enumerate() {
        if entry.stage != ShaderStage::Compute {
            return Err(format!("`{}` is no compute entry point", entry.name));
        }
        let used = info.get_entry_point(index);
        let mut groups = Groups::new();
        for (handle, variable) in module.global_variables.iter() {
            if !used[handle].is_empty() {
                bind(variable, &mut groups, limits)?;
            }
        }
        entries.push(Entry { name: entry.name.clone(), groups });
    }
    Ok(entries)
}

/// Notes what an entry point binds with `variable`.
fn bind(variable: &GlobalVariable, groups: &mut Groups, limits: &Limits) -> Result<(), String> {
    let Some(place) = &variable.binding else { return Ok(()) };
    let kind = match variable.space {
        AddressSpace::Uniform => BindingKind::Uniform,
        AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => BindingKind::Storage,
        AddressSpace::Storage { .. } => BindingKind::ReadOnlyStorage,
        _ => {
            return Err(format!(
                "@group({}) @binding({}) is no buffer: there are only buffers here",
                place.group, place.binding
            ));
        }
    };
    if place.group >= limits.max_bind_groups {
        return Err(format!("@group({}): this adapter has {}", place.group, limits.max_bind_groups));
    }
    let group = place.group as usize;
    if groups.len() <= group {
        groups.resize(group + 1, BTreeMap::new());
    }
    groups[group].insert(place.binding, kind);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any limits will do: this shader is within them.
    const LIMITS: Limits = Limits {
        max_buffer_size: 1 << 28,
        max_storage_buffer_binding_size: 1 << 27,
        max_uniform_buffer_binding_size: 1 << 16,
        min_storage_buffer_offset_alignment: 256,
        min_uniform_buffer_offset_alignment: 256,
        max_bind_groups: 4,
        max_storage_buffers_per_shader_stage: 8,
        max_compute_workgroup_storage_size: 1 << 14,
        max_compute_invocations_per_workgroup: 256,
        max_compute_workgroup_size: [256, 256, 64],
        max_compute_workgroups_per_dimension: 65_535,
    };

    #[test]
    fn numbers_of_16_bits_need_an_adapter_that_has_them() {
        let of_type = "enable f16; @group(0) @binding(0) var<storage, read_write> d: array<f16>;
            @compute @workgroup_size(1) fn double() { d[0] *= 2.0h; }";
        let in_expression = "enable f16; @group(0) @binding(0) var<storage, read_write> d: array<f32>;
            @compute @workgroup_size(1) fn double() { d[0] = f32(f16(d[0]) * 2.0h); }";
        for source in [of_type, in_expression] {
            let with = parse("double", source, Capabilities::SHADER_FLOAT16, &LIMITS);
            assert_eq!(with.map(|parsed| parsed.entries.len()), Ok(1));
            let Err(without) = parse("double", source, Capabilities::empty(), &LIMITS) else {
                panic!("accepted without f16: {source}");
            };
            assert_eq!((without.kind, without.code), (Kind::Invalid, Code::Shader));
            assert!(without.message.contains("f16"), "{}", without.message);
        }
    }
}
