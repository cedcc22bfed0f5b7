//! What `bindgen!` makes of `sdk/wit`: one trait per imported interface, and the typed call of the export.
//!
//! Functions that may wait are async; the rest are not, which saves a suspension point per call. Every function may
//! trap, and every `error` is a [`fanfold_protocol::Error`] on our side.

#![allow(missing_docs, reason = "the WIT documents every item")]

use crate::task::resource;

wasmtime::component::bindgen!({
    path: ["../sdk/wit", "../sdk/wit/gpu"],
    world: "fanfold:gpu/gpu-task",
    imports: {
        "fanfold:function/tasks.submit": async | trappable,
        "fanfold:function/tasks.submit-memo": async | trappable,
        "fanfold:function/tasks.generate": async | trappable,
        "fanfold:function/tasks.wait": async | trappable,
        "fanfold:function/tasks.get": async | trappable,
        "fanfold:function/tasks.cancel": async | trappable,
        "fanfold:function/tasks.[method]generator.next": async | trappable,
        "fanfold:function/data.open": async | trappable,
        "fanfold:function/data.put": async | trappable,
        "fanfold:function/data.yield-partition": async | trappable,
        "fanfold:function/data.[method]reader.read": async | trappable,
        "fanfold:function/data.[method]writer.write": async | trappable,
        "fanfold:function/objects.[drop]object-writer": trappable,
        "fanfold:function/objects.create": trappable,
        "fanfold:function/objects": async | trappable,
        "fanfold:gpu/compute.adapter": async | trappable,
        "fanfold:gpu/compute.create-buffer": async | trappable,
        "fanfold:gpu/compute.create-kept-buffer": async | trappable,
        "fanfold:gpu/compute.create-shader-module": async | trappable,
        "fanfold:gpu/compute.create-compute-pipeline": async | trappable,
        "fanfold:gpu/compute.create-bind-group": async | trappable,
        "fanfold:gpu/compute.create-command-encoder": async | trappable,
        "fanfold:gpu/compute.submit": async | trappable,
        "fanfold:gpu/compute.[method]buffer.write": async | trappable,
        "fanfold:gpu/compute.[method]buffer.read": async | trappable,
        "fanfold:gpu/compute.[method]buffer.load": async | trappable,
        "fanfold:gpu/compute.[method]buffer.store": async | trappable,
        "fanfold:gpu/compute.[method]submission.wait": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    trappable_error_type: { "fanfold:function/types.error" => fanfold_protocol::Error },
    with: {
        "fanfold:function/tasks.future": resource::Future,
        "fanfold:function/tasks.generator": resource::Generator,
        "fanfold:function/data.reader": resource::Reader,
        "fanfold:function/data.writer": resource::Writer,
        "fanfold:function/objects.object-writer": resource::ObjectWriter,
        "fanfold:gpu/compute.buffer": resource::Buffer,
        "fanfold:gpu/compute.shader-module": resource::ShaderModule,
        "fanfold:gpu/compute.compute-pipeline": resource::ComputePipeline,
        "fanfold:gpu/compute.bind-group": resource::BindGroup,
        "fanfold:gpu/compute.command-encoder": resource::CommandEncoder,
        "fanfold:gpu/compute.submission": resource::Submission,
    },
});

/// The export is that of every task function, whether it imports a gpu or not.
pub use GpuTaskPre as TaskPre;
