//! Embeds what `fanfold new` writes: the templates, and the guest SDK as crates that build outside this workspace.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Folders of the SDK, below `sdk/`, and what of them a dependent needs.
const SDK: [&str; 5] =
    ["wit", "guest/src", "guest/macros/src", "guest/Cargo.toml", "guest/macros/Cargo.toml"];

fn main() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let root = here.parent().ok_or("the crate lies in no workspace")?;
    let workspace: Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    watch(&root.join("Cargo.toml"));

    let mut sdk = Vec::new();
    for part in SDK {
        let path = root.join("sdk").join(part);
        watch(&path);
        if part.ends_with("Cargo.toml") {
            sdk.push((part.to_owned(), standalone(&path, &workspace, root, &out)?));
        } else {
            collect(&path, part, &mut sdk)?;
        }
    }
    let mut templates = Vec::new();
    watch(&here.join("templates"));
    collect(&here.join("templates"), "", &mut templates)?;
    let code = format!("{}{}", list("SDK", &mut sdk), list("TEMPLATES", &mut templates));
    Ok(fs::write(out.join("embedded.rs"), code)?)
}

fn watch(path: &Path) {
    println!("cargo:rerun-if-changed={}", path.display());
}

/// Every file below `dir` under its path from there, after `prefix`.
fn collect(dir: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file name is not UTF-8")?;
        let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        if path.is_dir() { collect(&path, &key, files)? } else { files.push((key, path)) }
    }
    Ok(())
}

fn list(name: &str, files: &mut [(String, PathBuf)]) -> String {
    files.sort();
    let entry = |(key, path): &(String, PathBuf)| format!("    ({key:?}, include_str!({path:?})),\n");
    let entries: String = files.iter().map(entry).collect();
    format!("/// Path and text.\npub static {name}: &[(&str, &str)] = &[\n{entries}];\n")
}

/// A copy of a manifest that inherits nothing from the workspace.
fn standalone(path: &Path, workspace: &Table, root: &Path, out: &Path) -> Result<PathBuf> {
    let mut manifest: Table = fs::read_to_string(path)?.parse()?;
    manifest.remove("dev-dependencies");
    manifest.remove("lints");
    let shared = workspace.get("workspace").and_then(Value::as_table).ok_or("no [workspace]")?;
    let crate_dir = path.parent().ok_or("a manifest without a folder")?;
    if let Some(Value::Table(package)) = manifest.get_mut("package") {
        inherit(package, table(shared, "package")?)?;
    }
    if let Some(Value::Table(dependencies)) = manifest.get_mut("dependencies") {
        for (name, dependency) in dependencies.iter_mut() {
            let root_entry = table(shared, "dependencies")?.get(name);
            *dependency = resolve(dependency, root_entry, root, crate_dir)?;
        }
    }
    let name = crate_dir.file_name().and_then(|n| n.to_str()).ok_or("a crate without a name")?;
    let copy = out.join(format!("{name}.Cargo.toml"));
    fs::write(&copy, toml::to_string(&manifest)?)?;
    Ok(copy)
}

fn table<'a>(of: &'a Table, name: &str) -> Result<&'a Table> {
    of.get(name).and_then(Value::as_table).ok_or_else(|| format!("no [workspace.{name}]").into())
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

fn inherit(package: &mut Table, shared: &Table) -> Result<()> {
    for (name, value) in package.iter_mut().filter(|(_, value)| is_inherited(value)) {
        *value = shared.get(name).ok_or_else(|| format!("no workspace.package.{name}"))?.clone();
    }
    Ok(())
}

/// A dependency as the workspace declares it, with what the crate adds; paths are made relative to the crate.
fn resolve(dependency: &Value, shared: Option<&Value>, root: &Path, crate_dir: &Path) -> Result<Value> {
    if !is_inherited(dependency) {
        return Ok(dependency.clone());
    }
    let mut resolved = match shared.ok_or("an inherited dependency is not in the workspace")? {
        Value::Table(table) => table.clone(),
        version => Table::from_iter([("version".to_owned(), version.clone())]),
    };
    if let Some(Value::String(path)) = resolved.get_mut("path") {
        let relative = root.join(&*path).strip_prefix(crate_dir)?.to_owned();
        *path = relative.to_str().ok_or("a path is not UTF-8")?.to_owned();
    }
    for (key, value) in dependency.as_table().into_iter().flatten().filter(|(key, _)| *key != "workspace") {
        match (resolved.get_mut(key), value) {
            (Some(Value::Array(all)), Value::Array(more)) => all.extend(more.iter().cloned()),
            _ => drop(resolved.insert(key.clone(), value.clone())),
        }
    }
    Ok(Value::Table(resolved))
}
