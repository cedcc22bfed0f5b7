//! `fanfold new`: a project that builds anywhere, because it brings the guest SDK along.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use fanfold_protocol::FunctionName;
use serde_json::json;

use crate::{failure::Failure, output::Output};

/// Files of the guest SDK and of the templates, as the build script found them.
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Where a project keeps its copy of the SDK.
const VENDORED: &str = "vendor/fanfold";

/// `new`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fanfold new thumbnail --template task")]
pub struct Args {
    /// Name of the function and of its directory: a-z, 0-9 and -
    name: FunctionName,
    /// What to start from
    #[arg(short, long, value_enum)]
    template: Template,
    /// Use the guest SDK of this checkout of Fanfold instead of a copy in the project
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// What to start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Template {
    /// Answers HTTP requests
    Http,
    /// Takes and returns values; can be called by other functions
    Task,
    /// Fans out tasks over objects and folds their results
    Job,
}

impl Template {
    fn folder(self) -> &'static str {
        match self {
            Self::Http => "http/",
            Self::Task => "task/",
            Self::Job => "job/",
        }
    }
}

/// Runs it.
pub fn run(args: &Args, out: Output) -> Result<(), Failure> {
    let dir = PathBuf::from(args.name.as_str());
    let sdk = args.sdk.as_deref().map(checkout).transpose()?;
    create(&dir, &args.name, args.template, sdk.as_deref())?;
    let told = json!({ "name": args.name, "dir": dir });
    out.print(&told, |_| format!("made {0}; deploy it with\n  fanfold deploy {0} --build", args.name))
}

/// The guest SDK in a checkout: its root, its `sdk` folder or the crate itself.
fn checkout(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = path.canonicalize().map_err(|e| Failure::file(path, &e))?;
    let places = ["sdk/guest", "guest", "."].map(|place| absolute.join(place));
    let is_sdk = |place: &&PathBuf| place.join("macros/Cargo.toml").is_file();
    places.iter().find(is_sdk).and_then(|place| place.canonicalize().ok()).ok_or_else(|| {
        Failure::usage(
            format!("{} holds no guest SDK", path.display()),
            "name the root of a Fanfold checkout",
        )
    })
}

/// Writes a project into a directory that must not exist yet.
fn create(dir: &Path, name: &FunctionName, template: Template, sdk: Option<&Path>) -> Result<(), Failure> {
    fs::create_dir(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{} exists already", dir.display()), "choose another name, or remove it")
        }
        _ => Failure::file(dir, &error),
    })?;
    let sdk_path = match sdk {
        Some(path) => path.to_string_lossy().into_owned(),
        None => format!("{VENDORED}/guest"),
    };
    let mut uses_sdk = false;
    for (path, text) in embedded::TEMPLATES {
        let Some(path) = path.strip_prefix(template.folder()) else { continue };
        let path = path.strip_suffix(".template").unwrap_or(path);
        uses_sdk |= text.contains("{{sdk}}");
        write(&dir.join(path), &render(text, name, &sdk_path))?;
    }
    if sdk.is_some() || !uses_sdk {
        return Ok(());
    }
    embedded::SDK.iter().try_for_each(|(path, text)| write(&dir.join(VENDORED).join(path), text))
}

fn render(text: &str, name: &FunctionName, sdk: &str) -> String {
    text.replace("{{name}}", name.as_str()).replace("{{sdk}}", sdk)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::file(path, &e);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    fs::write(path, text).map_err(fail)
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::Manifest;

    use super::*;

    fn files(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn projects_are_complete() {
        let name: FunctionName = "my-function".parse().unwrap();
        for template in Template::value_variants() {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join(name.as_str());
            create(&dir, &name, *template, None).unwrap();
            let manifest = Manifest::parse(&fs::read_to_string(dir.join("fanfold.toml")).unwrap()).unwrap();
            assert_eq!(manifest.name, name);
            let cargo: toml::Table = fs::read_to_string(dir.join("Cargo.toml")).unwrap().parse().unwrap();
            assert_eq!(cargo["package"]["name"].as_str(), Some(name.as_str()));
            let mut written = Vec::new();
            files(&dir, &mut written);
            assert!(written.iter().any(|path| path.ends_with("src/lib.rs")), "{template:?}");
            for path in written.iter().filter(|path| !path.starts_with(dir.join("vendor"))) {
                let text = fs::read_to_string(path).unwrap();
                assert!(!text.contains("{{name}}") && !text.contains("{{sdk}}"), "{}", path.display());
                assert!(path.extension().is_none_or(|e| e != "template"), "{}", path.display());
            }
            assert!(create(&dir, &name, *template, None).is_err(), "an existing project is left alone");
        }
    }

    #[test]
    fn the_vendored_sdk_needs_no_workspace() {
        let manifests = embedded::SDK.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
        let mut seen = 0;
        for (path, text) in manifests {
            let manifest: toml::Table = text.parse().unwrap();
            assert!(!text.contains("workspace"), "{path}: {text}");
            assert!(manifest["package"]["version"].as_str().is_some());
            seen += 1;
        }
        assert_eq!(seen, 2);
        assert!(embedded::SDK.iter().any(|(path, _)| *path == "wit/fanfold-function.wit"));
    }
}
