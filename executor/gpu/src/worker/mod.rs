//! The worker process: limits itself, opens an adapter, answers requests until its executor hangs up.
//!
//! One thread reads the socket, one talks to the device. Whatever panics while a request is handled ends the process, after an answer
//! that says so; what a driver does to the process, the executor sees from its exit status.

mod confine;
mod device;
mod session;
mod buffers;
mod pipelines;
mod submit;
mod record;
mod kept;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::{fd::AsFd as _, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use fanfold_protocol::{Code, Error, Kind};

use self::session::Session;
use crate::{
    frame,
    message::{REQUESTS_AHEAD, Reply, Request},
};

/// Stack of the thread that parses shaders and calls drivers; only what is used of it is ever memory. Shaders are refused long before
/// they need as much.
const STACK_BYTES: usize = 256 << 20;
/// How long until the device is asked whether submissions have ended, while nothing else is asked of it: short ones end soon, and a
/// long one does not mind.
const POLL_MIN: Duration = Duration::from_micros(20);
const POLL_MAX: Duration = Duration::from_micros(200);

type Incoming = (Request, Vec<u8>);

/// The whole of the worker process: `main` of the `gpu-worker` subcommand. Its standard input is the socket to the executor.
pub fn gpu_worker() -> ExitCode {
    let served = socket().and_then(|socket| {
        let (tx, rx) = sync_channel(REQUESTS_AHEAD);
        let reading = socket.try_clone()?;
        thread::Builder::new().spawn(move || read(reading, &tx))?;
        let serving = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(socket, &rx))?;
        serving.join().unwrap_or_else(|_| Err(io::Error::other("the device's thread panicked")))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn socket() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Reads requests until the executor is gone. Then the process ends at once: the device may be busy for ever, exit handlers of its
/// driver would wait for it, and nobody is left to read a status.
fn read(mut socket: UnixStream, requests: &SyncSender<Incoming>) {
    while let Ok(incoming) = frame::read(&mut socket) {
        if requests.send(incoming).is_err() {
            // The other thread has ended, and says how.
            return;
        }
    }
    std::process::abort()
}

fn serve(mut socket: UnixStream, requests: &Receiver<Incoming>) -> io::Result<()> {
    let Ok((Request::Start { memory }, _)) = requests.recv() else {
        return Err(io::Error::other("the first message is not `start`"));
    };
    confine::before_drivers(memory)?;
    let device = match device::open() {
        Ok(device) => device,
        Err(error) => return frame::write(&mut socket, &Reply::Ready(Err(error)), &[]),
    };
    if device.adapter.software {
        confine::after_drivers()?;
    }
    frame::write(&mut socket, &Reply::Ready(Ok(device.adapter.clone())), &[])?;
    let mut session = Session::new(device, memory, socket);
    let mut pause = POLL_MIN;
    loop {
        if let Err(error) = turn(&mut session, requests, &mut pause) {
            session.hang_up();
            return Err(error);
        }
    }
}

/// Carries out a request, or looks after submissions where there is none. An error ends the process.
fn turn(session: &mut Session, requests: &Receiver<Incoming>, pause: &mut Duration) -> io::Result<()> {
    if let Some((request, data)) = next(session, requests, *pause)? {
        *pause = POLL_MIN;
        answer(session, request, &data)?;
    } else {
        *pause = POLL_MAX.min(*pause * 2);
    }
    session.tell()?;
    match session.device().lost() {
        Some(error) => Err(io::Error::other(error.message)),
        None => Ok(()),
    }
}

/// The next request; none where submissions are on their way and it is time to look after them: after `pause`.
fn next(session: &Session, requests: &Receiver<Incoming>, pause: Duration) -> io::Result<Option<Incoming>> {
    let gone = || io::Error::other("the executor is gone");
    if !session.is_busy() {
        return requests.recv().map(Some).map_err(|_| gone());
    }
    match requests.recv_timeout(pause) {
        Ok(incoming) => Ok(Some(incoming)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(gone()),
    }
}

/// Carries a request out and answers it. An error of this function ends the process.
fn answer(session: &mut Session, request: Request, data: &[u8]) -> io::Result<()> {
    let (name, compiles) = (request.name(), request.compiles());
    let handled = catch_unwind(AssertUnwindSafe(|| {
        if let Request::Read { buffer, offset, length } = request {
            return session.read(buffer, offset, length);
        }
        let answer = session.handle(request, data);
        if compiles {
            // Submissions may have ended long ago. From the answer on, the executor counts their time again.
            session.tell()?;
        }
        session.say(&Reply::Answer(answer), &[])
    }));
    handled.unwrap_or_else(|_| {
        let error = if compiles {
            // As where it ends the process in any other way.
            Error::new(Kind::Invalid, Code::Shader, format!("{name}: what compiles it panicked"))
        } else {
            Error::internal(format!("the gpu's process panicked while {name}"))
        };
        session.say(&Reply::Answer(Err(error)), &[])?;
        Err(io::Error::other(format!("panicked while {name}")))
    })
}
