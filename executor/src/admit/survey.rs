//! One pass over a component or module: is it valid, is it within the limits, what does it import and export?

use fanfold_protocol::{Code, Error, Kind, limit};
use wasmparser::{
    ComponentExternalKind, FuncValidatorAllocations, FunctionBody, Parser, Payload, ValidPayload, Validator,
    component_types::ComponentEntityType, types::Types,
};

use super::malformed;
use crate::engine;

/// An import of the outermost component.
#[derive(Debug)]
pub(super) struct Import {
    /// Its name.
    pub name: String,
    /// Functions of the interface, or nothing where it is a function itself.
    pub functions: Vec<String>,
}

/// What the outermost component imports and exports.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// In order.
    pub imports: Vec<Import>,
    /// Names, in order.
    pub exports: Vec<String>,
}

impl Survey {
    /// Looks at all of `bytes`, modules and components within included.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, Error> {
        let mut validator = Validator::new_with_features(engine::features());
        let mut spare = FuncValidatorAllocations::default();
        let mut counts = Counts::default();
        let mut survey = Self::default();
        let mut types = None;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(unparsable)?;
            // Counting comes first: it is what bounds the validator's work and memory.
            counts.add(&payload)?;
            if counts.depth == 0 {
                survey.add(&payload)?;
            }
            match validator.payload(&payload).map_err(invalid)? {
                ValidPayload::Func(function, body) => {
                    let mut function = function.into_validator(std::mem::take(&mut spare));
                    function.validate(&body).map_err(invalid)?;
                    spare = function.into_allocations();
                }
                ValidPayload::End(of) => types = Some(of),
                ValidPayload::Ok | ValidPayload::Parser(_) => {}
            }
        }
        // The last end is that of the outermost component.
        if let Some(types) = types {
            survey.imports.iter_mut().for_each(|import| import.functions = functions(&types, &import.name));
        }
        Ok(survey)
    }

    fn add(&mut self, payload: &Payload<'_>) -> Result<(), Error> {
        match payload {
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let name = import.map_err(unparsable)?.name.name.to_owned();
                    self.imports.push(Import { name, functions: Vec::new() });
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(unparsable)?;
                    if export.kind != ComponentExternalKind::Type {
                        self.exports.push(export.name.name.to_owned());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn functions(types: &Types, import: &str) -> Vec<String> {
    let item = types.component_item_for_import(import);
    let Some(ComponentEntityType::Instance(instance)) = item.map(|item| item.ty) else { return Vec::new() };
    let exports = types.as_ref().get(instance).map(|instance| instance.exports.iter()).into_iter().flatten();
    exports
        .filter(|(_, item)| matches!(item.ty, ComponentEntityType::Func(_)))
        .map(|(name, _)| name.clone())
        .collect()
}

/// What the limits of the platform count, over all nested modules and components.
#[derive(Default)]
struct Counts {
    /// Components and modules around the current payload, the outermost not counted.
    depth: u32,
    functions: u32,
    modules: u32,
    imports: u32,
}

impl Counts {
    fn add(&mut self, payload: &Payload<'_>) -> Result<(), Error> {
        match payload {
            Payload::ModuleSection { .. } => {
                self.depth += 1;
                add(&mut self.modules, 1, limit::CORE_MODULES_MAX, "core modules")
            }
            Payload::ComponentSection { .. } => {
                self.depth += 1;
                Ok(())
            }
            Payload::End(_) => {
                self.depth = self.depth.saturating_sub(1);
                Ok(())
            }
            Payload::ImportSection(section) => self.functions(section.count()),
            Payload::FunctionSection(section) => self.functions(section.count()),
            Payload::CodeSectionEntry(body) => check_body(body),
            Payload::ComponentImportSection(section) if self.depth == 0 => {
                add(&mut self.imports, section.count(), limit::IMPORTS_MAX, "imports")
            }
            _ => Ok(()),
        }
    }

    fn functions(&mut self, more: u32) -> Result<(), Error> {
        add(&mut self.functions, more, limit::COMPONENT_FUNCTIONS_MAX, "functions")
    }
}

fn add(count: &mut u32, more: u32, max: u32, what: &str) -> Result<(), Error> {
    *count = count.saturating_add(more);
    if *count <= max { Ok(()) } else { Err(too_large(format!("{count} {what}: at most {max} are taken"))) }
}

fn check_body(body: &FunctionBody<'_>) -> Result<(), Error> {
    let range = body.range();
    let max = limit::FUNCTION_BODY_BYTES_MAX as usize;
    if range.len() > max {
        let message = format!(
            "a function of {} bytes at offset {:#x}: at most {max} are taken",
            range.len(),
            range.start
        );
        return Err(too_large(message));
    }
    let mut locals = 0;
    for group in body.get_locals_reader().map_err(unparsable)? {
        let (count, _) = group.map_err(unparsable)?;
        add(&mut locals, count, limit::FUNCTION_LOCALS_MAX, "locals in one function")?;
    }
    Ok(())
}

fn too_large(message: String) -> Error {
    Error::new(Kind::Invalid, Code::ComponentTooLarge, format!("the component has {message}"))
}

fn unparsable(error: wasmparser::BinaryReaderError) -> Error {
    let message = error.message();
    if message.contains("unexpected end") {
        return malformed(format_args!(
            "it ends too early, at offset {:#x}; was the upload cut off?",
            error.offset()
        ));
    }
    invalid(error)
}

fn invalid(error: wasmparser::BinaryReaderError) -> Error {
    let message = error.message();
    // How the validator words proposals that are switched off.
    let off = ["must be enabled", "not enabled", "proposal disabled", "requires the"];
    if off.iter().any(|words| message.contains(words)) {
        return malformed(format_args!(
            "{message} (at offset {:#x}); that WebAssembly proposal is switched off here",
            error.offset()
        ));
    }
    malformed(format_args!("{message} (at offset {:#x})", error.offset()))
}
