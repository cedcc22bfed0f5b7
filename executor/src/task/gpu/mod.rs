//! `fanfold:gpu/compute`: what a guest's calls on a gpu mean to its session. Thin: handles are looked up, arguments converted, and the
//! rest is checked where it is done, in `fanfold-gpu`.
//!
//! An attempt's session begins with its first call and ends with the attempt. Bytes of partitions go between the cache and the
//! session without passing through the guest ([`transfer`]).

mod convert;
mod host;
mod transfer;

use fanfold_gpu::{
    Session, Software,
    message::{Command, Handle},
};
use fanfold_protocol::{Code, Error, Kind, limit, manifest::SoftwareGpu};
use slab::Slab;

use super::host::{TaskHost, stale};

/// What an attempt has on its gpu.
pub(super) struct GpuHost {
    pub session: Session,
    pub buffers: Slab<Buffer>,
    pub shaders: Slab<Shader>,
    pub pipelines: Slab<Handle>,
    pub groups: Slab<Handle>,
    pub encoders: Slab<Encoder>,
    pub submissions: Slab<u64>,
    /// Handles that the guest has dropped and the session has not.
    dropped: Vec<Handle>,
}

#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub handle: Handle,
    pub size: u64,
}

/// Commands that are being recorded.
#[derive(Default)]
pub(super) struct Encoder {
    pub commands: Vec<Command>,
    /// How many these are, each pass, dispatch and bind group counted.
    pub count: usize,
}

pub(super) struct Shader {
    pub handle: Handle,
    pub entries: Vec<String>,
}

impl std::fmt::Debug for GpuHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuHost").field("adapter", self.session.adapter()).finish_non_exhaustive()
    }
}

impl GpuHost {
    fn new(session: Session) -> Self {
        Self {
            session,
            buffers: Slab::new(),
            shaders: Slab::new(),
            pipelines: Slab::new(),
            groups: Slab::new(),
            encoders: Slab::new(),
            submissions: Slab::new(),
            dropped: Vec::new(),
        }
    }

    fn buffer(&self, rep: u32) -> Result<Buffer, Error> {
        self.buffers.get(rep as usize).copied().ok_or_else(stale)
    }

    /// Hands the session what the guest has dropped.
    async fn flush_drops(&mut self) -> Result<(), Error> {
        while let Some(handle) = self.dropped.pop() {
            self.session.drop_handle(handle).await?;
        }
        Ok(())
    }
}

impl TaskHost {
    /// This attempt's gpu. Begins its session at the first call.
    ///
    /// # Errors
    /// `invalid` where it holds none; `conflict` where this executor has none that will do.
    pub(super) async fn gpu(&mut self) -> Result<&mut GpuHost, Error> {
        if self.gpu.is_none() {
            self.gpu = Some(Box::new(GpuHost::new(self.open_gpu().await?)));
        }
        let gpu = self.gpu.as_deref_mut().ok_or_else(stale)?;
        gpu.flush_drops().await?;
        Ok(gpu)
    }

    async fn open_gpu(&self) -> Result<Session, Error> {
        let manifest = &self.identity.function.manifest;
        if self.identity.gpu == 0 {
            let message =
                "this task holds no gpu: set resources.gpu = 1 in its manifest, or ask for one in its call";
            return Err(Error::new(Kind::Invalid, Code::Gpu, message));
        }
        let gpu = self.env.gpu.as_ref().ok_or_else(|| {
            let message = "this executor has no gpu slots: start it with --gpus";
            Error::new(Kind::Conflict, Code::GpuAdapter, message)
        })?;
        let software = match manifest.gpu.software {
            SoftwareGpu::Allow => Software::Allow,
            SoftwareGpu::Refuse => Software::Refuse,
        };
        gpu.open(&fanfold_gpu::Owner(self.identity.job.to_string().into()), software).await
    }

    /// The gpu, where a session has begun.
    fn begun_gpu(&mut self) -> Result<&mut GpuHost, Error> {
        self.gpu.as_deref_mut().ok_or_else(stale)
    }

    /// Ends the session, if there is one, so that the next attempt of the job finds its process warm.
    pub async fn close_gpu(&mut self) {
        if let Some(gpu) = self.gpu.take() {
            gpu.session.close().await;
        }
    }
}

/// Keeps something for the guest; its handle. `what` is for the message.
fn keep<T>(slab: &mut Slab<T>, thing: T, what: &str) -> Result<u32, Error> {
    check_room(slab, limit::GPU_HANDLES_MAX, what)?;
    Ok(slab.insert(thing) as u32)
}

/// That one more can be kept.
fn check_room<T>(slab: &Slab<T>, max: usize, what: &str) -> Result<(), Error> {
    if slab.len() >= max {
        let message = format!("the task holds {max} {what}: drop some first");
        return Err(Error::new(Kind::Limit, Code::GpuMemory, message));
    }
    Ok(())
}
