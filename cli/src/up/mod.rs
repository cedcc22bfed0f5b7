//! `fanfold up`: the whole platform in one process, with its data in one directory.

pub mod machine;
pub mod platform;
pub mod prices;
pub mod signals;

use std::{
    ffi::OsString,
    net::{SocketAddr, TcpListener},
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

use fanfold_protocol::{
    ExecutorId,
    custom::{Custom, custom_fault},
};
use serde_json::json;

use crate::{failure::Failure, output::Output, units};

pub use machine::{available_memory, raise_open_files};
pub use prices::PriceList;

/// Bytes below which `--memory` is a mistake: one function has 128 MiB if its manifest does not say.
const MEMORY_MIN: u64 = 256 << 20;

/// Where below --dir partitions go that do not fit into memory.
const SPILL: &str = "spill";

/// `up`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fanfold up --dir /var/lib/fanfold")]
pub struct Args {
    /// Where all data lives; made if missing
    #[arg(long)]
    dir: PathBuf,
    /// Address to serve REST on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    #[command(flatten)]
    capacity: Capacity,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    prices: PriceList,
    /// What to log on stderr: error, warn, info, debug, or directives like `fanfold_gateway=debug`
    #[arg(long, env = "FANFOLD_LOG", hide_env_values = true, default_value = "info")]
    log: String,
}

/// Runs the platform until it is told to stop.
pub fn run(args: &Args, out: Output) -> Result<(), Failure> {
    let settings = settings(args)?;
    start_log(&args.log)?;
    machine::raise_open_files();
    check_place(args)?;
    let platform = platform::Platform::start(&settings)?;
    tell_ready(args, &platform, out)?;
    platform.run_until_stopped()
}

/// Everything decided before anything is started.
pub struct Settings {
    /// Where data lives.
    pub dir: PathBuf,
    /// Where to serve.
    pub listen: SocketAddr,
    /// What clients must know.
    pub token: Option<String>,
    /// What bills are made with.
    pub prices: fanfold_gateway::Prices,
    /// What runs functions.
    pub executor: fanfold_executor::Config,
}

/// What an executor may use of this machine.
#[derive(Debug, clap::Args)]
pub struct Capacity {
    /// Tasks that compute at once [default: this machine's cpus]
    #[arg(long)]
    slots: Option<NonZeroU32>,
    /// Memory for functions, such as 4GiB [default: three quarters of what this machine or its cgroup has]
    #[arg(long, value_parser = units::parse_bytes)]
    memory: Option<u64>,
    /// Memory for partitions that tasks hand to each other, out of --memory [default: an eighth of it]
    #[arg(long, value_parser = units::parse_bytes)]
    cache_memory: Option<u64>,
    /// Tasks that want a gpu at once; 0: none. They find the best Vulkan adapter that there is, if need be one in software
    #[arg(long, default_value_t = 0)]
    gpus: u32,
    /// Memory of the gpu for the buffers of one job, such as 4GiB
    #[arg(long, value_parser = units::parse_bytes, value_name = "SIZE", default_value = "1GiB")]
    gpu_memory: u64,
    /// Custom resources it has, as NAME=COUNT; functions ask for them in `[resources.custom]`
    #[arg(long = "resource", value_name = "NAME=COUNT", value_parser = amount)]
    resources: Vec<(String, u32)>,
    /// Directory for partitions that do not fit into --cache-memory [default: one that goes with the process]
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// Disk space for them; 0: none, they are uploaded instead [default: half of what is free there]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    spill_max: Option<u64>,
    /// Let functions reach private addresses that their manifest allows; for development
    #[arg(long)]
    allow_private_egress: bool,
}

impl Capacity {
    /// An executor with this capacity, which spills to `spill` unless told otherwise.
    pub fn executor(
        &self,
        executor: ExecutorId,
        spill: PathBuf,
    ) -> Result<fanfold_executor::Config, Failure> {
        let memory = self.memory.unwrap_or_else(|| available_memory() / 4 * 3);
        let cache_memory = self.cache_memory.unwrap_or(memory / 8);
        if memory < MEMORY_MIN {
            let (given, min) = (units::bytes(memory), units::bytes(MEMORY_MIN));
            let what = format!("--memory {given} is too little to run functions in");
            return Err(Failure::usage(what, format!("give it {min} or more")));
        }
        if cache_memory >= memory {
            return Err(Failure::usage("--cache-memory leaves nothing of --memory", "make it smaller"));
        }
        let custom: Custom = self.resources.iter().cloned().collect();
        if let Some(why) = custom_fault(&custom) {
            return Err(Failure::usage(format!("--resource: {why}"), "as in `--resource licence=2`"));
        }
        Ok(fanfold_executor::Config {
            executor,
            custom,
            gpus: self.gpus,
            gpu_memory: self.gpu_memory,
            gpu_submission: Duration::from_millis(fanfold_protocol::limit::GPU_SUBMISSION_MS),
            gpu_worker: gpu_worker(),
            slots: self.slots.map_or_else(machine::cpus, NonZeroU32::get),
            memory: memory - cache_memory,
            cache_memory,
            spill: self.spill(spill),
            compiler: vec!["/proc/self/exe".into(), "compile-component".into()],
            allow_private_egress: self.allow_private_egress,
            security: fanfold_peer::Security::default(),
        })
    }

    fn spill(&self, default: PathBuf) -> Option<fanfold_executor::Spill> {
        let dir = self.spill.clone().unwrap_or(default);
        let bytes = self.spill_max.unwrap_or_else(|| machine::free_space(&dir) / 2);
        (bytes > 0).then_some(fanfold_executor::Spill { dir, bytes })
    }
}

/// What runs [`fanfold_executor::gpu_worker`].
pub fn gpu_worker() -> Vec<OsString> {
    vec!["/proc/self/exe".into(), "gpu-worker".into()]
}

/// `NAME=COUNT`.
fn amount(text: &str) -> Result<(String, u32), String> {
    let parsed = text.split_once('=').and_then(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
    parsed.ok_or_else(|| "write NAME=COUNT, as in licence=2".to_owned())
}

fn settings(args: &Args) -> Result<Settings, Failure> {
    Ok(Settings {
        dir: args.dir.clone(),
        listen: args.listen,
        token: args.access.token(args.listen)?,
        prices: args.prices.read()?,
        executor: args.capacity.executor(ExecutorId(1), args.dir.join(SPILL))?,
    })
}

/// Finds out what only the person who typed the command can mend, before anything is started.
fn check_place(args: &Args) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir)
        .map_err(|e| Failure::file(&args.dir, &e).fix("choose another --dir"))?;
    check_address(args.listen)
}

/// Whether REST can be served there.
pub fn check_address(listen: SocketAddr) -> Result<(), Failure> {
    TcpListener::bind(listen).map(drop).map_err(|error| {
        let what = format!("cannot serve on {listen}: {}", error.kind());
        Failure::new(
            what,
            "a platform may be running there; choose another --listen address, or port 0 for a free one",
        )
    })
}

/// Who may ask a gateway.
#[derive(Debug, clap::Args)]
pub struct Access {
    /// Ask every client for the token in this environment variable
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,
    /// Serve other machines without asking for a token
    #[arg(long, conflicts_with = "token_env")]
    insecure: bool,
}

impl Access {
    /// The token that clients of a gateway on `listen` must have.
    pub fn token(&self, listen: SocketAddr) -> Result<Option<String>, Failure> {
        match &self.token_env {
            Some(name) => match std::env::var(name) {
                Ok(token) if token.len() >= 16 => Ok(Some(token)),
                Ok(_) => Err(Failure::usage(
                    format!("the token in {name} is too short to be secret"),
                    "use 16 or more random characters: `openssl rand -hex 32`",
                )),
                Err(_) => Err(Failure::usage(
                    format!("{name} is not set"),
                    format!("export {name}, or drop --token-env"),
                )),
            },
            None if listen.ip().is_loopback() || self.insecure => Ok(None),
            None => Err(Failure::usage(
                format!("{listen} can be reached from other machines, and no token protects it"),
                "add --token-env NAME, or --insecure if a private network protects it",
            )),
        }
    }
}

/// Starts the log on stderr.
pub fn start_log(directives: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(directives)
        .map_err(|e| Failure::usage(format!("--log {directives}: {e}"), "use error, warn, info or debug"))?;
    let stderr = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A second start in one process is the only way to fail, and then a log is there already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr)
        .with_writer(std::io::stderr)
        // They would go to stderr, too, and panic where that is full.
        .log_internal_errors(false)
        .try_init();
    Ok(())
}

fn tell_ready(args: &Args, platform: &platform::Platform, out: Output) -> Result<(), Failure> {
    let url = format!("http://{}", platform.address());
    let (slots, memory) = (platform.slots(), platform.memory());
    let told = json!({
        "url": url, "dir": args.dir, "slots": slots, "memory": memory, "pid": std::process::id(),
    });
    out.print(&told, |_| {
        let (dir, memory) = (args.dir.display(), units::bytes(memory));
        format!(
            "fanfold is ready on {url} with {slots} slots and {memory}; data is in {dir}; Ctrl-C stops it"
        )
    })
}
