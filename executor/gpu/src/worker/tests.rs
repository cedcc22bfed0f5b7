//! What a worker says while it waits for its device, on a device in this process.

use std::os::unix::net::UnixStream;

use super::{device, session::Session};
use crate::{
    frame,
    message::{Answer, Binding, Command, Dispatch, Handle, PipelineSpec, Reply, Request, Usage, Workgroups},
};

const MIB: u64 = 1 << 20;
const DOUBLE: &str = "
    @group(0) @binding(0) var<storage, read_write> data: array<u32>;
    @compute @workgroup_size(64)
    fn double(@builtin(global_invocation_id) id: vec3<u32>) { data[id.x] = data[id.x] * 2u; }";

/// A session, the executor's end of its socket, and a kernel.
struct Bench {
    session: Session,
    socket: UnixStream,
    buffer: Handle,
    pipeline: Handle,
    group: Handle,
    submitted: u64,
}

impl Bench {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let device = device::open().expect("an adapter");
        let session = Session::new(device, 8 * MIB, theirs);
        let mut bench = Self { session, socket: ours, buffer: 0, pipeline: 0, group: 0, submitted: 0 };
        bench.buffer = bench.buffer(4 * MIB);
        let shader = Request::CreateShader { label: String::from("double"), wgsl: DOUBLE.to_owned() };
        let shader = bench.ask(shader);
        let spec =
            PipelineSpec { shader, entry: String::from("double"), layout: None, constants: Vec::new() };
        bench.pipeline = bench.ask(Request::CreatePipeline(spec));
        let entries = vec![Binding { binding: 0, buffer: bench.buffer, offset: 0, size: None }];
        bench.group = bench.ask(Request::CreateBindGroup { pipeline: bench.pipeline, group: 0, entries });
        bench
    }

    /// A request that is answered with a handle.
    fn ask(&mut self, request: Request) -> Handle {
        match self.session.handle(request, &[]) {
            Ok(Answer::Handle(handle) | Answer::Shader(handle, _) | Answer::Pipeline(handle, _)) => handle,
            other => panic!("{other:?}"),
        }
    }

    fn buffer(&mut self, size: u64) -> Handle {
        let usage = Usage { copy_src: true, copy_dst: true, storage: true, ..Usage::default() };
        self.ask(Request::CreateBuffer { label: String::from("data"), size, usage })
    }

    fn submit(&mut self) {
        let dispatch = Dispatch {
            pipeline: self.pipeline,
            groups: vec![self.group],
            workgroups: Workgroups::Direct([256, 1, 1]),
        };
        let commands = vec![Command::Pass { timed: false, dispatches: vec![dispatch] }];
        self.submitted += 1;
        let submission = self.session.handle(Request::Submit(commands), &[]);
        assert_eq!(submission, Ok(Answer::Submission(self.submitted)));
    }

    /// That the worker has told of the ends of the last `count` submissions, before anything else.
    fn told(&mut self, count: u64) {
        for number in self.submitted + 1 - count..=self.submitted {
            match frame::read(&mut self.socket).expect("a reply") {
                (Reply::Done(done), _) => assert_eq!((done.submission, done.error), (number, None)),
                (other, _) => panic!("{other:?} before the end of {number} was told"),
            }
        }
    }
}

/// An executor gives each submission its time from the end of the one before: it must know of that end while the worker waits for
/// more, not after.
#[test]
fn ends_are_told_while_something_waits_for_the_device() {
    let mut bench = Bench::new();
    bench.socket.set_nonblocking(true).expect("a socket");
    (0..3).for_each(|_| bench.submit());
    bench.session.read(bench.buffer, 0, 4).expect("read");
    bench.told(3);
    let (reply, data) = frame::read::<Reply>(&mut bench.socket).expect("an answer");
    assert_eq!((reply, data.len()), (Reply::Answer(Ok(Answer::Data)), 4));
    // Writes, once enough of them are on their way.
    bench.submit();
    let write = Request::Write { buffer: bench.buffer, offset: 0 };
    for _ in 0..20 {
        bench.session.handle(write.clone(), &vec![1; 4 << 20]).expect("written");
    }
    bench.told(1);
    // A buffer for which another one, dropped but in use, has to be gone.
    let other = bench.buffer(4 * MIB);
    bench.submit();
    bench.session.handle(Request::Drop(other), &[]).expect("dropped");
    bench.buffer(4 * MIB);
    bench.told(1);
    // A session that ends: the next one on this worker has nothing of it to wait for.
    (0..2).for_each(|_| bench.submit());
    assert_eq!(bench.session.handle(Request::Close, &[]), Ok(Answer::Nothing));
    assert!(!bench.session.is_busy(), "closed with submissions that have not been told of");
    bench.told(2);
}
