//! Scripted pure programs: what the simulated tasks do, and an oracle that says what must come out.
//!
//! A program's result depends on its arguments and on what its callees return, never on time, order or attempt: what
//! it does in the order in which things become ready, it folds with a commutative sum. So the oracle can evaluate it
//! by plain recursion, knowing nothing of schedulers, and any disturbed run must agree with it.

use std::rc::Rc;

use fanfold_protocol::{Code, call::Durability};

/// What a task does. Futures it gets are kept in numbered registers, in the order of the operations that make them.
#[derive(Clone, Debug)]
pub struct Program {
    pub ops: Vec<Op>,
    pub returns: Vec<Return>,
    pub generator: bool,
    /// An error it reads fails it, too; otherwise the error's code is a value like any other.
    pub strict: bool,
    pub fails: Fails,
    pub cpu_millis: u32,
    /// What it asks for, what it takes and where its ceiling is.
    pub memory: u64,
    pub memory_taken: u64,
    pub memory_max: u64,
    pub wish: Wish,
    pub durability: Durability,
    pub deterministic: bool,
    /// Planted: its result varies by attempt although it says it does not.
    pub lies: bool,
}

/// Where a program's caller would have it run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Local,
    Spread,
    /// Near the first of its arguments that is a partition.
    Near,
    /// Where its caller is; nowhere else, if no executor can be lost.
    Here,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fails {
    Never,
    /// In every attempt.
    Always(Code),
    /// In the first attempt there ever is of the task, with a retryable error.
    Once,
}

#[derive(Clone, Debug)]
pub enum Op {
    /// Takes this many milliseconds.
    Work(u64),
    Call {
        program: usize,
        args: Vec<Arg>,
    },
    Put(Shape),
    /// Reads a future and what its value names.
    Read(usize),
    /// Reads futures as they become ready; with `follow`, has that program run on each at once.
    Any {
        registers: Vec<usize>,
        follow: Option<usize>,
    },
    /// Waits for all, but only so long; calls `extra` if that was too short.
    Timed {
        registers: Vec<usize>,
        timeout_ms: u64,
        extra: usize,
    },
    Drop(usize),
    /// Calls, cancels, and looks at what became of it without minding.
    Cancel {
        program: usize,
    },
    /// Calls a generator and takes its outputs, all or the first few.
    Take {
        program: usize,
        most: Option<u32>,
    },
    Yield(Shape),
}

#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Inline,
    /// Inline, but larger than what is kept of freed outputs.
    Large,
    Stored(u64),
}

#[derive(Clone, Debug)]
pub enum Arg {
    Inline(u64),
    Register(usize),
    Block(usize),
    /// Inline bytes that name the partition: it may not exist yet.
    Named(usize),
}

#[derive(Clone, Debug)]
pub enum Return {
    Data(Shape),
    Alias(usize),
    /// Data that names futures.
    Naming(Shape, Vec<usize>),
}

impl Return {
    pub fn shape(&self) -> Shape {
        match self {
            Self::Data(shape) | Self::Naming(shape, _) => *shape,
            Self::Alias(_) => Shape::Inline,
        }
    }
}

/// Mixes the bits of a number well (splitmix64).
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// What reading an error counts for. Which error is not said: of two arguments that failed, the task that needs both
/// fails like the one that failed first.
pub fn error_value(_: Code) -> u64 {
    mix(0xe000)
}

/// Whether a program can fail with this by itself: nothing that the platform does to it.
pub fn is_own_error(code: Code) -> bool {
    matches!(code, Code::Trap | Code::ExitStatus | Code::Timeout | Code::OutOfMemory | Code::ErrorReturned)
}

/// What argument `n` counts for.
pub fn argument_value(value: u64, n: usize) -> u64 {
    mix(value.wrapping_add(n as u64))
}

/// Output `n` of a program that has gathered `sum`.
pub fn output_value(program: usize, sum: u64, n: usize) -> u64 {
    mix(sum ^ mix((program as u64) << 20 | n as u64))
}

/// What a `put` holds.
pub fn put_value(program: usize, sum: u64) -> u64 {
    mix(sum ^ mix(0xbeef + program as u64))
}

/// A value and what it names, as the oracle sees it.
#[derive(Debug)]
pub struct Known {
    pub value: u64,
    pub names: Vec<Future>,
}

pub type Future = Rc<Result<Known, Code>>;

/// The value of a future and of all it names.
pub fn deep(future: &Future) -> Result<u64, Code> {
    let known = future.as_ref().as_ref().map_err(|code| *code)?;
    let named = known.names.iter().map(|name| mix(deep(name).unwrap_or_else(error_value)));
    Ok(known.value.wrapping_add(named.fold(0, u64::wrapping_add)))
}

/// What program `index` makes of `args`: its outputs, or what it yields.
pub fn evaluate(programs: &[Program], index: usize, args: &[Future]) -> Result<Vec<Future>, Code> {
    let program = &programs[index];
    // The error of an argument that is needed is the task's; one that is only named is a value like any other.
    let args: Vec<u64> = args.iter().map(deep).collect::<Result<_, _>>()?;
    if program.memory_taken > program.memory_max {
        return Err(Code::OutOfMemory);
    }
    let mut oracle = Oracle { programs, index, sum: 0, registers: Vec::new(), yields: Vec::new() };
    for (n, arg) in args.into_iter().enumerate() {
        oracle.sum = oracle.sum.wrapping_add(argument_value(arg, n));
    }
    for op in &program.ops {
        oracle.perform(op)?;
    }
    if let Fails::Always(code) = program.fails {
        return Err(code);
    }
    if program.generator {
        return Ok(oracle.yields);
    }
    Ok(program.returns.iter().enumerate().map(|(n, output)| oracle.output(n, output)).collect())
}

struct Oracle<'a> {
    programs: &'a [Program],
    index: usize,
    sum: u64,
    registers: Vec<Future>,
    yields: Vec<Future>,
}

impl Oracle<'_> {
    fn perform(&mut self, op: &Op) -> Result<(), Code> {
        match op {
            Op::Work(_) | Op::Timed { .. } | Op::Drop(_) | Op::Cancel { .. } => {}
            Op::Call { program, args } => {
                let futures = self.call(*program, args);
                self.registers.extend(futures);
            }
            Op::Put(_) => {
                let value = put_value(self.index, self.sum);
                self.registers.push(Rc::new(Ok(Known { value, names: Vec::new() })));
            }
            Op::Read(register) => self.read(&self.registers[*register].clone())?,
            Op::Any { registers, follow } => {
                for register in registers {
                    self.read(&self.registers[*register].clone())?;
                    if let Some(follow) = follow {
                        let futures = self.call(*follow, &[Arg::Register(*register)]);
                        self.read(&futures[0])?;
                    }
                }
            }
            Op::Take { program, most } => {
                let yields = evaluate(self.programs, *program, &[]);
                match yields {
                    Ok(yields) => {
                        let most = most.map_or(yields.len(), |most| most as usize);
                        for future in yields.iter().take(most) {
                            self.read(future)?;
                        }
                    }
                    Err(code) => self.read(&Rc::new(Err(code)))?,
                }
            }
            Op::Yield(_) => {
                let value = output_value(self.index, self.sum, self.yields.len());
                self.yields.push(Rc::new(Ok(Known { value, names: Vec::new() })));
            }
        }
        Ok(())
    }

    fn call(&self, program: usize, args: &[Arg]) -> Vec<Future> {
        let plain = |value: u64, names: Vec<Future>| Rc::new(Ok(Known { value, names }));
        let args: Vec<Future> = args
            .iter()
            .map(|arg| match arg {
                Arg::Inline(value) => plain(*value, Vec::new()),
                Arg::Register(register) | Arg::Block(register) => self.registers[*register].clone(),
                Arg::Named(register) => plain(1, vec![self.registers[*register].clone()]),
            })
            .collect();
        let outputs = self.programs[program].returns.len();
        match evaluate(self.programs, program, &args) {
            Ok(futures) => futures,
            Err(code) => (0..outputs).map(|_| Rc::new(Err(code))).collect(),
        }
    }

    fn read(&mut self, future: &Future) -> Result<(), Code> {
        let value = match deep(future) {
            Ok(value) => value,
            Err(_) if self.programs[self.index].strict => return Err(Code::ErrorReturned),
            Err(code) => error_value(code),
        };
        self.sum = self.sum.wrapping_add(mix(value));
        Ok(())
    }

    fn output(&self, n: usize, output: &Return) -> Future {
        let value = output_value(self.index, self.sum, n);
        match output {
            Return::Data(_) => Rc::new(Ok(Known { value, names: Vec::new() })),
            Return::Alias(register) => self.registers[*register].clone(),
            Return::Naming(_, registers) => {
                let names = registers.iter().map(|register| self.registers[*register].clone()).collect();
                Rc::new(Ok(Known { value, names }))
            }
        }
    }
}
