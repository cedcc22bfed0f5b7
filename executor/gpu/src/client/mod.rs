//! The executor's end: workers are started, watched, kept warm and ended here. Nothing here knows `wgpu`.

mod session;
mod pool;
mod account;
mod kept;
mod process;
mod watch;
mod death;

use std::{ffi::OsString, sync::Arc, time::Duration};

use fanfold_protocol::{Code, Error, Kind, limit};

use self::pool::Pool;
use crate::message::Adapter;

pub use kept::KeptKey;
pub use session::Session;

/// Whose sessions share workers and an allowance of memory: a job, by its name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Owner(pub Arc<str>);

/// Whether an adapter that computes on the processor will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Software {
    /// It will.
    Allow,
    /// Only hardware will.
    Refuse,
}

/// What workers may do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Program and arguments of a worker; its `main` is [`crate::gpu_worker`].
    pub command: Vec<OsString>,
    /// Sessions at a time; over 0.
    pub workers: usize,
    /// Bytes of all buffers of one owner.
    pub memory: u64,
    /// How long a submission may take, from being handed over or from the end of the one before.
    pub submission: Duration,
    /// How long any other call may take.
    pub call: Duration,
}

impl Settings {
    /// With the limits of [`fanfold_protocol::limit`].
    pub fn new(command: Vec<OsString>, workers: usize) -> Self {
        Self {
            command,
            workers: workers.max(1),
            memory: limit::GPU_MEMORY_BYTES_DEFAULT,
            submission: Duration::from_millis(limit::GPU_SUBMISSION_MS),
            call: Duration::from_millis(limit::GPU_CALL_MS),
        }
    }
}

/// The gpu of an executor. A cheap handle.
#[derive(Clone)]
pub struct Gpu {
    pool: Arc<Pool>,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("adapter", &self.pool.adapter()).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Starts nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { pool: Arc::new(Pool::new(settings)) }
    }

    /// Begins a session, on a worker that this owner had before or on a new one. Waits while there are as many sessions as there may
    /// be, and after workers that did not start.
    ///
    /// # Errors
    /// `conflict` with [`Code::GpuAdapter`] where there is no adapter, or only one in software and that is refused; `platform` where
    /// no worker starts, `lost` where it ends before it has an adapter.
    pub async fn open(&self, owner: &Owner, software: Software) -> Result<Session, Error> {
        let stopping = |_| Error::new(Kind::Overloaded, Code::Draining, "the executor is stopping");
        let permit = Arc::clone(&self.pool.permits).acquire_owned().await.map_err(stopping)?;
        let account = self.pool.account(owner);
        let mut process = self.pool.worker(&account).await?;
        if process.adapter.software && software == Software::Refuse {
            let message = format!(
                "a gpu is wanted, but {} computes on the processor: set gpu.software = \"allow\" where that will do",
                process.adapter.name
            );
            process.set_idle(true).await?;
            self.pool.keep(account, process);
            return Err(Error::new(Kind::Conflict, Code::GpuAdapter, message));
        }
        Ok(Session::new(process, Arc::clone(&self.pool), account, permit))
    }

    /// What there is to compute on. Starts a worker where none has been.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub async fn adapter(&self) -> Result<Adapter, Error> {
        if let Some(adapter) = self.pool.adapter() {
            return Ok(adapter);
        }
        let session = self.open(&Owner("".into()), Software::Allow).await?;
        let adapter = session.adapter().clone();
        session.close().await;
        Ok(adapter)
    }

    /// Ends all workers. Sessions must have been closed or dropped; this waits for those that have not.
    pub async fn stop(&self) {
        self.pool.stop().await;
    }
}
