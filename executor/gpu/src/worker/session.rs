//! What the present session has made, and what the worker keeps from one session to the next.

use std::{collections::VecDeque, io, net::Shutdown, os::unix::net::UnixStream};

use fanfold_protocol::{Error, limit};

use super::{
    buffers::{Buffer, Memory},
    device::Device,
    kept::Kept,
    pipelines::{Group, Pipeline, PipelineKey, Shader},
    submit::Submissions,
};
use crate::{
    check::invalid,
    frame,
    message::{Answer, Handle, Reply, Request},
    table::Table,
};

/// A session, and what the worker keeps from one to the next.
pub(super) struct Session {
    pub(super) device: Device,
    pub(super) memory: Memory,
    pub(super) buffers: Table<Buffer>,
    /// Buffers that stay from one session to the next.
    pub(super) kept: Table<Buffer>,
    pub(super) shaders: Table<Shader>,
    pub(super) pipelines: Table<Pipeline>,
    pub(super) groups: Table<Group>,
    pub(super) submissions: Submissions,
    /// Written since the last hand-over, and hand-overs that may not have ended: each with the submissions before it.
    pub(super) staged: u64,
    pub(super) flushes: VecDeque<(u64, wgpu::SubmissionIndex)>,
    /// For reads; made at the first.
    pub(super) staging: Option<wgpu::Buffer>,
    pub(super) compiled: Kept<PipelineKey, Pipeline>,
    /// To the executor.
    socket: UnixStream,
}

impl Session {
    /// The first session on a device; buffers may have `memory` bytes. Who asks is at the other end of `socket`.
    pub fn new(device: Device, memory: u64, socket: UnixStream) -> Self {
        Self {
            device,
            memory: Memory { max: memory, used: 0, kept: 0, dropped: 0 },
            buffers: Table::new("buffer", 1),
            shaders: Table::new("shader", 2),
            pipelines: Table::new("pipeline", 3),
            groups: Table::new("bind group", 4),
            kept: Table::new("kept buffer", 5),
            submissions: Submissions::default(),
            staged: 0,
            flushes: VecDeque::new(),
            staging: None,
            compiled: Kept::new(limit::GPU_PIPELINES_KEPT_MAX),
            socket,
        }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether submissions have not ended.
    pub fn is_busy(&self) -> bool {
        !self.submissions.is_empty()
    }

    /// Says something to the executor.
    pub fn say(&mut self, reply: &Reply, data: &[u8]) -> io::Result<()> {
        frame::write(&mut self.socket, reply, data)
    }

    /// Tells of submissions that have ended since the last look.
    pub fn tell(&mut self) -> io::Result<()> {
        if self.submissions.is_empty() {
            return Ok(());
        }
        // What is wrong with the device shows in `Device::lost`.
        let _ = self.device.device.poll(wgpu::PollType::Poll);
        for done in self.submissions.ended(&self.device) {
            self.say(&Reply::Done(done), &[])?;
        }
        if self.submissions.is_empty() {
            self.memory.dropped = 0;
        }
        Ok(())
    }

    /// Waits until all submissions up to number `last` have ended. Tells of each as it ends: the executor counts the time of one from
    /// the end of the one before.
    pub(super) fn settle(&mut self, last: u64) -> Result<(), Error> {
        for index in self.submissions.until(last) {
            self.device.wait_for(Some(index))?;
            self.tell().map_err(|e| Error::internal(format!("the executor is gone: {e}")))?;
        }
        Ok(())
    }

    /// Waits until everything that was handed to the device has ended.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        self.settle(u64::MAX)?;
        self.device.wait()
    }

    /// Tells the executor that nothing follows, and ends. What is on the device stays there until the process ends: dropping it would
    /// wait for the device, which may be busy for ever.
    pub fn hang_up(self) {
        // An error means that the executor has hung up before.
        let _ = self.socket.shutdown(Shutdown::Write);
        std::mem::forget(self);
    }

    /// Carries out a request.
    pub fn handle(&mut self, request: Request, data: &[u8]) -> Result<Answer, Error> {
        match request {
            Request::CreateBuffer { label, size, usage } => {
                self.create_buffer(label, size, usage).map(Answer::Handle)
            }
            Request::Write { buffer, offset } => self.write(buffer, offset, data).map(|()| Answer::Nothing),
            Request::CreateShader { label, wgsl } => self.create_shader(label, &wgsl),
            Request::CreatePipeline(spec) => self.create_pipeline(spec),
            Request::CreateBindGroup { pipeline, group, entries } => {
                self.create_bind_group(pipeline, group, &entries).map(Answer::Handle)
            }
            Request::Submit(commands) => self.submit(&commands).map(Answer::Submission),
            Request::Keep(buffer) => self.keep_buffer(buffer).map(Answer::Handle),
            Request::Use { kept, label } => self.use_kept(kept, label).map(Answer::Handle),
            Request::Forget(kept) => {
                self.forget(kept);
                Ok(Answer::Nothing)
            }
            Request::Drop(handle) => {
                self.drop_handle(handle);
                Ok(Answer::Nothing)
            }
            Request::Close => self.close().map(|()| Answer::Nothing),
            Request::Start { .. } | Request::Read { .. } => Err(invalid("a request out of turn")),
        }
    }

    /// Gives up whatever the handle means; nothing where it means nothing any more.
    fn drop_handle(&mut self, handle: Handle) {
        if let Some(buffer) = self.buffers.remove(handle).filter(|buffer| !buffer.kept) {
            // Freed at once, or when the last submission that uses it has ended.
            buffer.buffer.destroy();
            self.memory.used -= buffer.size;
            if self.is_busy() {
                self.memory.dropped += buffer.size;
            }
        }
        self.shaders.remove(handle);
        self.pipelines.remove(handle);
        self.groups.remove(handle);
    }

    /// Ends what is running and forgets what the session made. Compiled pipelines and kept buffers stay.
    fn close(&mut self) -> Result<(), Error> {
        self.wait()?;
        for own in self.buffers.clear().iter().filter(|buffer| !buffer.kept) {
            own.buffer.destroy();
        }
        self.shaders.clear();
        self.pipelines.clear();
        self.groups.clear();
        self.memory = Memory { used: self.memory.kept, dropped: 0, ..self.memory };
        self.flush()?;
        self.device.wait()
    }
}
