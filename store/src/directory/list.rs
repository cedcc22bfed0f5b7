//! Listing objects of a tree in key order, reading only the folders a page needs.

use std::{fs, io, path::Path};

use super::read::Meta;
use crate::paths;

/// What to list.
pub(crate) struct Query<'a> {
    /// Keys begin with this.
    pub(crate) prefix: &'a str,
    /// Keys are greater than this.
    pub(crate) after: &'a str,
    /// At most so many.
    pub(crate) limit: usize,
}

/// Keys below the folder of all objects, in byte order.
pub(crate) fn keys(objects: &Path, query: &Query<'_>) -> io::Result<Vec<(String, Meta)>> {
    // The folder that the prefix names is where to begin; only what follows its last `/` needs filtering.
    let base = query.prefix.rsplit_once('/').map_or("", |(folder, _)| &query.prefix[..=folder.len()]);
    let mut found = Vec::new();
    if base.is_empty() || base.trim_end_matches('/').split('/').all(paths::is_part) && !base.ends_with("//") {
        visit(&objects.join(paths::tree_path(base)), base, query, &mut found)?;
    }
    Ok(found)
}

/// Adds the keys of one folder, whose own key is `base`, and of those inside it.
fn visit(folder: &Path, base: &str, query: &Query<'_>, found: &mut Vec<(String, Meta)>) -> io::Result<()> {
    for (key, name) in children(folder, base)? {
        if found.len() == query.limit {
            break;
        }
        let file = folder.join(&name);
        if key.ends_with('/') {
            let begins = key.starts_with(query.prefix) || query.prefix.starts_with(&key);
            // Every key in the folder begins with its own: they are all passed unless `after` does so too.
            let passed = query.after > key.as_str() && !query.after.starts_with(&key);
            if begins && !passed {
                visit(&file, &key, query, found)?;
            }
        } else if key.starts_with(query.prefix) && key.as_str() > query.after {
            match fs::metadata(&file) {
                Ok(metadata) => found.push((key, Meta::from(&metadata))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

/// The entries of a folder as (key, file name), sorted by key; the key of a folder ends with `/`. That is also the
/// order of everything inside them.
fn children(folder: &Path, base: &str) -> io::Result<Vec<(String, String)>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if let Some((part, is_folder)) = paths::tree_name(&name) {
            let end = if is_folder { "/" } else { "" };
            children.push((format!("{base}{part}{end}"), name));
        }
    }
    children.sort_unstable();
    Ok(children)
}

/// Names in a folder after `after`, sorted.
pub(crate) fn names(folder: &Path, after: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string()
            && name.as_str() > after
            && !name.contains('#')
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
