//! What one attempt does on a gpu: calls, one after the other, on a worker that is its own as long as this lives.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use fanfold_protocol::{Error, limit};
use futures::{Stream, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    account::Account,
    kept::KeptKey,
    pool::Pool,
    process::{Process, REQUESTS_AHEAD},
};
use crate::{
    check::invalid,
    message::{Adapter, Answer, Binding, Command, Handle, PipelineSpec, Request, Usage},
};

/// A session. [`Session::close`] gives its worker back for others of the same owner; one that is dropped takes its worker with it,
/// since a call may be half way.
///
/// Errors of all calls: `invalid` where an argument is wrong; `limit` where memory or time ran out; `lost` and retryable where the
/// worker ended. Where the worker has ended, for lack of time or otherwise, the session is over: every further call gives the same error.
pub struct Session {
    process: Process,
    pool: Arc<Pool>,
    memory: Memory,
    /// Numbers of its submissions: the first, and the one after the last.
    submissions: Option<(u64, u64)>,
    _permit: OwnedSemaphorePermit,
}

impl Session {
    pub(super) fn new(
        process: Process,
        pool: Arc<Pool>,
        account: Arc<Account>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let memory = Memory { account, taken: 0, buffers: HashMap::new() };
        Self { process, pool, memory, submissions: None, _permit: permit }
    }

    /// What it computes on.
    pub fn adapter(&self) -> &Adapter {
        &self.process.adapter
    }

    /// A buffer of `size` bytes, all zero. What is kept and not used makes room for it.
    ///
    /// # Errors
    /// `limit` where the owner's buffers would be larger than they may, or the device has no memory.
    pub async fn create_buffer(&mut self, label: &str, size: u64, usage: Usage) -> Result<Handle, Error> {
        self.take_memory(size).await?;
        let request = Request::CreateBuffer { label: label.to_owned(), size, usage };
        let made = self.call(&request, &[]).await.and_then(|(answer, _)| handle(answer));
        match made {
            Ok(handle) => {
                self.memory.buffers.insert(handle, size);
                Ok(handle)
            }
            Err(error) => {
                self.memory.give(size);
                Err(error)
            }
        }
    }

    async fn take_memory(&mut self, size: u64) -> Result<(), Error> {
        loop {
            let taken = self.memory.take(size);
            if taken.is_ok() || !self.memory.account.may_fit(size) || !self.make_room().await? {
                return taken;
            }
        }
    }

    /// Frees the kept buffer that was not used for longest, or ends an idle worker of the owner that keeps some. Whether there was
    /// anything to free.
    async fn make_room(&mut self) -> Result<bool, Error> {
        match self.process.kept.give_up() {
            Some(kept) => self.call(&Request::Forget(kept), &[]).await.map(|_| true),
            None => Ok(self.pool.end_keeper(&self.memory.account)),
        }
    }

    /// The buffer that an earlier session of the owner on this worker, or this one, has kept under this key; for reading only.
    pub async fn kept(&mut self, key: &KeptKey, label: &str) -> Result<Option<Handle>, Error> {
        let Some(kept) = self.process.kept.find(key) else { return Ok(None) };
        let request = Request::Use { kept, label: label.to_owned() };
        handle(self.call(&request, &[]).await?.0).map(Some)
    }

    /// Keeps one of the session's buffers, which has its data, for later sessions. From now on it is for reading only: its usage is
    /// what it was without `copy_dst`, and shaders may bind it as `uniform` or as storage that they only read.
    pub async fn keep(&mut self, buffer: Handle, key: KeptKey) -> Result<(), Error> {
        if self.process.kept.is_full()
            && let Some(oldest) = self.process.kept.give_up()
        {
            self.call(&Request::Forget(oldest), &[]).await?;
        }
        let kept = handle(self.call(&Request::Keep(buffer), &[]).await?.0)?;
        if let Some(size) = self.memory.buffers.remove(&buffer) {
            self.memory.taken -= size;
            self.process.kept.insert(key, kept, size, &self.memory.account);
        }
        Ok(())
    }

    /// Writes data of any length at `offset`, a multiple of 4. Its last word is filled up with zeros.
    pub async fn write(&mut self, buffer: Handle, offset: u64, data: Bytes) -> Result<(), Error> {
        self.load(buffer, offset, futures::stream::iter([Ok(data)])).await.map(drop)
    }

    /// Writes pieces one after the other, from `offset` on, while further ones come. Returns their length.
    ///
    /// # Errors
    /// Those of the source as well; pieces before are written then.
    pub async fn load(
        &mut self,
        buffer: Handle,
        offset: u64,
        mut pieces: impl Stream<Item = Result<Bytes, Error>> + Unpin,
    ) -> Result<u64, Error> {
        let mut words = Words { at: offset, carry: Vec::new() };
        let mut failed = Ok(());
        while failed.is_ok() {
            failed = match pieces.next().await {
                None => break,
                Some(Ok(piece)) => self.write_piece(buffer, &mut words, piece).await,
                Some(Err(error)) => Err(error),
            };
        }
        let rest = std::mem::take(&mut words.carry);
        let rested = if failed.is_ok() { self.write_ahead(buffer, words.at, &rest).await } else { Ok(()) };
        // What is on its way is answered in any case, so that the session can go on.
        let settled = self.settle().await;
        failed.and(rested).and(settled)?;
        Ok(words.at + rest.len() as u64 - offset)
    }

    async fn write_piece(&mut self, buffer: Handle, words: &mut Words, piece: Bytes) -> Result<(), Error> {
        let mut piece = words.fill(piece);
        if words.carry.len() == WORD {
            let word = std::mem::take(&mut words.carry);
            self.write_ahead(buffer, words.at, &word).await?;
            words.advance(WORD)?;
        }
        while piece.len() >= WORD {
            let length = piece.len().min(limit::GPU_CHUNK_BYTES_MAX);
            let chunk = piece.split_to(length - length % WORD);
            self.write_ahead(buffer, words.at, &chunk).await?;
            words.advance(chunk.len())?;
        }
        words.carry.extend_from_slice(&piece);
        Ok(())
    }

    /// Sends a chunk, and takes the answer to an earlier one once enough are on their way.
    async fn write_ahead(&mut self, buffer: Handle, offset: u64, chunk: &[u8]) -> Result<(), Error> {
        if chunk.is_empty() {
            return Ok(());
        }
        if self.process.ahead() >= REQUESTS_AHEAD {
            self.process.receive().await?;
        }
        self.process.send(&Request::Write { buffer, offset }, chunk).await
    }

    /// Takes all answers that are due. The first error is the result.
    async fn settle(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        while !self.process.is_settled() {
            let before = self.process.ahead();
            let answer = self.process.receive().await.map(drop);
            result = result.and(answer);
            if self.process.ahead() == before {
                // There will be no answers any more.
                break;
            }
        }
        result
    }

    /// Reads at most [`limit::GPU_CHUNK_BYTES_MAX`] bytes at `offset`, a multiple of 4, after everything submitted so far.
    pub async fn read(&mut self, buffer: Handle, offset: u64, length: u64) -> Result<Bytes, Error> {
        let (_, data) = self.call(&Request::Read { buffer, offset, length }, &[]).await?;
        if data.len() as u64 != length {
            return Err(Error::internal("the gpu's process answered with data of another length"));
        }
        Ok(data)
    }

    /// A shader, and the names of its compute entry points.
    ///
    /// # Errors
    /// [`fanfold_protocol::Code::Shader`] with the compiler's message.
    pub async fn create_shader(&mut self, label: &str, wgsl: &str) -> Result<(Handle, Vec<String>), Error> {
        if wgsl.len() > limit::GPU_SHADER_BYTES_MAX {
            let message = format!("{} bytes of WGSL, at most {}", wgsl.len(), limit::GPU_SHADER_BYTES_MAX);
            return Err(crate::shader::refused(label, message));
        }
        let request = Request::CreateShader { label: label.to_owned(), wgsl: wgsl.to_owned() };
        match self.call(&request, &[]).await?.0 {
            Answer::Shader(handle, entries) => Ok((handle, entries)),
            _ => Err(nonsense()),
        }
    }

    /// A pipeline, and whether it had been compiled before.
    ///
    /// # Errors
    /// [`fanfold_protocol::Code::Shader`] where it does not compile.
    pub async fn create_pipeline(&mut self, spec: PipelineSpec) -> Result<(Handle, bool), Error> {
        match self.call(&Request::CreatePipeline(spec), &[]).await?.0 {
            Answer::Pipeline(handle, cached) => Ok((handle, cached)),
            _ => Err(nonsense()),
        }
    }

    /// Binds parts of buffers to group `group` of a pipeline's layout.
    pub async fn create_bind_group(
        &mut self,
        pipeline: Handle,
        group: u32,
        entries: Vec<Binding>,
    ) -> Result<Handle, Error> {
        let request = Request::CreateBindGroup { pipeline, group, entries };
        handle(self.call(&request, &[]).await?.0)
    }

    /// Hands commands to the device. Returns at once, with the submission's number.
    pub async fn submit(&mut self, commands: Vec<Command>) -> Result<u64, Error> {
        match self.call(&Request::Submit(commands), &[]).await?.0 {
            Answer::Submission(number) => {
                let first = self.submissions.map_or(number, |(first, _)| first);
                self.submissions = Some((first, number + 1));
                Ok(number)
            }
            _ => Err(nonsense()),
        }
    }

    /// Waits for a submission's end. Returns beginning and end of its timed passes, in nanoseconds.
    ///
    /// # Errors
    /// `limit` where it took too long; `invalid` where an indirect dispatch had too large counts.
    pub async fn wait(&mut self, submission: u64) -> Result<Vec<[u64; 2]>, Error> {
        match self.submissions {
            Some((first, end)) if (first..end).contains(&submission) => {}
            _ => return Err(invalid(format!("there is no submission {submission}"))),
        }
        Ok(self.process.done(submission).await?.timestamps)
    }

    /// Gives a handle back. One that means nothing is ignored.
    pub async fn drop_handle(&mut self, handle: Handle) -> Result<(), Error> {
        self.call(&Request::Drop(handle), &[]).await?;
        if let Some(size) = self.memory.buffers.remove(&handle) {
            self.memory.give(size);
        }
        Ok(())
    }

    /// Ends the session. Its worker, with what it has compiled and kept, is there for the next one of this owner.
    pub async fn close(mut self) {
        let closed = self.call(&Request::Close, &[]).await;
        self.process.kept.rest();
        if closed.is_ok() && self.process.set_idle(true).await.is_ok() {
            self.pool.keep(Arc::clone(&self.memory.account), self.process);
        }
    }

    async fn call(&mut self, request: &Request, data: &[u8]) -> Result<(Answer, Bytes), Error> {
        if let Some(error) = self.process.ended() {
            return Err(error);
        }
        // Answers to calls whose futures were dropped.
        self.settle().await.ok();
        self.process.send(request, data).await?;
        self.process.receive().await
    }
}

fn handle(answer: Answer) -> Result<Handle, Error> {
    match answer {
        Answer::Handle(handle) => Ok(handle),
        _ => Err(nonsense()),
    }
}

fn nonsense() -> Error {
    Error::internal("the gpu's process answered something else than what it was asked")
}

/// What a session has taken of its owner's memory; given back with it, whichever way it ends.
struct Memory {
    account: Arc<Account>,
    taken: u64,
    /// Sizes of its buffers.
    buffers: HashMap<Handle, u64>,
}

impl Memory {
    fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.account.take(bytes)?;
        self.taken += bytes;
        Ok(())
    }

    fn give(&mut self, bytes: u64) {
        self.account.give(bytes);
        self.taken -= bytes;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.account.give(self.taken);
    }
}

const WORD: usize = crate::check::ALIGNMENT as usize;

/// Cuts pieces of any length into whole words.
struct Words {
    /// Where the next byte goes, without those in `carry`.
    at: u64,
    /// The beginning of a word, until its end comes.
    carry: Vec<u8>,
}

impl Words {
    /// Goes on behind `length` bytes.
    ///
    /// # Errors
    /// Where there is nothing behind: no buffer is as large.
    fn advance(&mut self, length: usize) -> Result<(), Error> {
        let behind = self.at.checked_add(length as u64);
        self.at = behind
            .ok_or_else(|| invalid(format!("writing: {length} bytes at {} do not fit a buffer", self.at)))?;
        Ok(())
    }

    /// Completes the word that was begun, as far as the piece goes. Returns what is left of it.
    fn fill(&mut self, mut piece: Bytes) -> Bytes {
        if !self.carry.is_empty() {
            let missing = (WORD - self.carry.len()).min(piece.len());
            self.carry.extend_from_slice(&piece.split_to(missing));
        }
        piece
    }
}
