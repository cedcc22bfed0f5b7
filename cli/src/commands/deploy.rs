//! `fanfold deploy`: from a project or a component to a version that can be called.

use std::path::{Path, PathBuf};

use fanfold_client::{Client, Upload, rest::DeployedView};
use fanfold_protocol::{Manifest, limit};

use crate::{commands::cargo, failure::Failure, output::Output, progress, units};

/// `deploy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fanfold deploy hello --build
  fanfold deploy functions/echo --component target/functions/wasm32-wasip2/release/echo.wasm")]
pub struct Args {
    /// A directory with a fanfold.toml, or the manifest itself
    #[arg(default_value = ".")]
    project: PathBuf,
    /// The component [default: what the manifest's `component` says, or what cargo builds]
    #[arg(short, long, value_name = "FILE")]
    component: Option<PathBuf>,
    /// Build it with cargo first
    #[arg(short, long, conflicts_with = "component")]
    build: bool,
}

/// A manifest and where it was found.
struct Project {
    dir: PathBuf,
    text: String,
    manifest: Manifest,
}

/// Runs it.
pub async fn run(client: &Client, args: &Args, out: Output) -> Result<(), Failure> {
    let project = read(&args.project)?;
    let component = match &args.component {
        Some(component) => component.clone(),
        None => find(&project, args.build)?,
    };
    let deployed = upload(client, &project, &component).await?;
    out.print(&deployed, |deployed| told(client, deployed))
}

fn read(path: &Path) -> Result<Project, Failure> {
    let file = if path.is_dir() { path.join("fanfold.toml") } else { path.to_owned() };
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let failure = Failure::file(&file, &error);
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                failure.fix("name the project's directory; `fanfold new NAME --template task` makes one")
            }
            _ => failure,
        }
    })?;
    let manifest = Manifest::parse(&text).map_err(|e| Failure::platform(&e))?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(Project { dir: dir.to_owned(), text, manifest })
}

/// The component that the manifest names, built first where that was asked for or it is missing.
fn find(project: &Project, build: bool) -> Result<PathBuf, Failure> {
    let named = project.manifest.component.as_ref().map(|component| project.dir.join(component));
    let is_cargo_project = project.dir.join("Cargo.toml").is_file();
    match named {
        Some(path) if path.is_file() && !build => Ok(path),
        _ if is_cargo_project => cargo::build(&project.dir),
        _ if build => Err(Failure::usage(
            format!("{} has no Cargo.toml to build", project.dir.display()),
            "build it as its language does, then deploy with --component FILE",
        )),
        Some(path) => Err(Failure::usage(
            format!("the component {} does not exist", path.display()),
            "build it, or name another one with --component FILE",
        )),
        None => Err(Failure::usage("the manifest names no component", "name it with --component FILE")),
    }
}

async fn upload(client: &Client, project: &Project, component: &Path) -> Result<DeployedView, Failure> {
    let meta = tokio::fs::metadata(component).await.map_err(|e| Failure::file(component, &e))?;
    if meta.len() > limit::COMPONENT_BYTES_MAX {
        let (has, may) = (units::bytes(meta.len()), units::bytes(limit::COMPONENT_BYTES_MAX));
        let failure = Failure::new(
            format!("{} has {has}, a component may have {may}", component.display()),
            crate::hints::fix(fanfold_protocol::Code::ComponentTooLarge),
        );
        return Err(failure);
    }
    let name = &project.manifest.name;
    let bar = progress::bytes(&format!("uploading {name}"), Some(meta.len()));
    let shown = bar.clone();
    let body = Upload::file(component).on_progress(move |sent| {
        shown.set_position(sent);
        if sent == shown.length().unwrap_or(0) {
            shown.set_message("compiling");
        }
    });
    let deployed = client.deploy(name, project.text.clone(), body).await;
    bar.finish_and_clear();
    deployed.map_err(|e| Failure::from(e).during(format_args!("deploying {name}")))
}

fn told(client: &Client, deployed: &DeployedView) -> String {
    let DeployedView { name, version, kind, created, compile_us } = deployed;
    let version = version.short();
    let what = match (created, compile_us) {
        (false, _) => format!("{name} is at version {version} already"),
        (true, 0) => format!("deployed {name}, version {version}"),
        (true, us) => format!("deployed {name}, version {version}, compiled in {}", units::duration_us(*us)),
    };
    let url = client.url();
    use fanfold_protocol::function::ComponentKind::{Cli, Http, Task};
    let call = match kind {
        Http => format!("curl {url}/function/{name}"),
        Cli | Task => format!("fanfold invoke {name} --data '...'"),
    };
    format!("{what}\ncall it: {call}")
}
