//! What one seed stands for: programs, jobs, a cluster and the faults it will see.

use fanfold_protocol::{Code, ExecutorId, call::Durability};
use rand::{Rng as _, rngs::SmallRng};

use super::program::{Arg, Fails, Op, Program, Return, Shape, Wish};

/// Everything a run does that its own course does not decide.
#[derive(Debug)]
pub struct Plan {
    pub programs: Vec<Program>,
    pub jobs: Vec<JobPlan>,
    /// The executors at the start.
    pub executors: Vec<Size>,
    /// The least that any executor ever offers.
    pub executor_memory: u64,
    /// How much longer than elsewhere one thing of three takes on every other executor.
    pub slow: u64,
    /// Longest delay of a message.
    pub delay_ms: u64,
    /// Longest time from a journal write to its being durable.
    pub journal_ms: u64,
    /// How often in a thousand a message to the owner comes twice.
    pub duplicates: u32,
    pub faults: Vec<(u64, Fault)>,
    /// Whether a restarted owner asks the object store what it has.
    pub owner_probes: bool,
    /// Whether tasks may fail for being what they are: results need not equal the oracle's then.
    pub random_tasks: bool,
}

/// What an executor offers.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Thousandths of a slot.
    pub cpu_millis: u32,
    pub memory: u64,
}

#[derive(Debug)]
pub struct JobPlan {
    pub program: usize,
    pub recorded: bool,
    pub weight: u32,
    pub start_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An executor dies with all it has; another one comes a while later.
    Kill,
    /// The same, for this one.
    KillThis(ExecutorId),
    /// One more executor.
    Join,
    /// An executor finishes what it has begun, uploads what it has, and leaves.
    Drain,
    /// An executor offers more or less than before.
    Offer,
    /// An executor's link breaks; it comes back, with what it has, under the same id.
    Link,
    /// A copy of a partition vanishes, in the object store too.
    Rot,
    /// The gateway dies and comes back.
    Gateway(Company),
    /// Somebody cancels a job.
    Cancel(usize),
}

/// What becomes of the executors when their gateway dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Company {
    /// They live on, with what they have.
    Stays,
    /// They die, and others come.
    Goes,
    /// They are part of its process and start anew with it, under the same ids and with nothing.
    Returns,
}

impl Plan {
    pub fn new(rng: &mut SmallRng) -> Self {
        let random_tasks = rng.random_ratio(1, 8);
        let mut maker = Maker { rng, programs: Vec::new(), tasks_left: 0, random_tasks };
        let count = maker.rng.random_range(1..=3);
        let jobs: Vec<JobPlan> = (0..count).map(|n| maker.job(n)).collect();
        let programs = std::mem::take(&mut maker.programs);
        let calm = rng.random_ratio(1, 8);
        // Enough for every driver to wait at once, and little more.
        let executor_memory = rng.random_range(100..=600) + programs.len() as u64;
        let count = *pick(rng, &[1, 2, 3, 4, 6, 12]);
        Self {
            programs,
            executors: (0..count).map(|_| Size::any(rng, executor_memory)).collect(),
            executor_memory,
            slow: *pick(rng, &[1, 1, 1, 60, 100, 200]),
            delay_ms: *pick(rng, &[0, 1, 3, 10, 60]),
            journal_ms: *pick(rng, &[0, 5, 50, 200]),
            duplicates: *pick(rng, &[0, 0, 30, 150]),
            faults: if calm { Vec::new() } else { faults(rng, jobs.len()) },
            owner_probes: rng.random_bool(0.5),
            random_tasks,
            jobs,
        }
    }

    pub fn has(&self, wanted: impl Fn(&Fault) -> bool) -> bool {
        self.faults.iter().any(|(_, fault)| wanted(fault))
    }
}

impl Size {
    /// Of any size, with at least so much memory.
    pub fn any(rng: &mut SmallRng, memory: u64) -> Self {
        let more = rng.random_range(0..=memory);
        Self { cpu_millis: rng.random_range(1..=4) * 1000, memory: memory + more }
    }
}

fn faults(rng: &mut SmallRng, jobs: usize) -> Vec<(u64, Fault)> {
    let horizon_ms = *pick(rng, &[150, 500, 1500, 5000]);
    let count = rng.random_range(0..=6);
    let mut faults: Vec<(u64, Fault)> = (0..count)
        .map(|_| {
            let fault = match rng.random_range(0..28) {
                0..6 => Fault::Kill,
                6..9 => Fault::Join,
                20..22 => Fault::Drain,
                22..24 => Fault::Offer,
                24..28 => Fault::Link,
                9..14 => Fault::Rot,
                14..18 => Fault::Gateway(*pick(rng, &[Company::Stays, Company::Goes, Company::Returns])),
                18 => Fault::Cancel(rng.random_range(0..jobs)),
                _ => Fault::Kill,
            };
            (rng.random_range(1..horizon_ms), fault)
        })
        .collect();
    faults.sort_by_key(|(at_ms, _)| *at_ms);
    faults
}

fn pick<'a, T>(rng: &mut SmallRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}

struct Maker<'a> {
    rng: &'a mut SmallRng,
    programs: Vec<Program>,
    tasks_left: i32,
    random_tasks: bool,
}

impl Maker<'_> {
    fn job(&mut self, n: u64) -> JobPlan {
        let large = self.rng.random_ratio(1, 40);
        self.tasks_left = if large { 300 } else { self.rng.random_range(4..=60) };
        let depth = self.rng.random_range(1..=3);
        let program = self.driver(depth);
        // A root is retried where it may be; what fails once must not use that up over many restarts.
        self.programs[program].strict &= self.rng.random_ratio(1, 4);
        JobPlan {
            program,
            recorded: self.rng.random_ratio(3, 4),
            weight: self.rng.random_range(1..=4),
            start_ms: n * self.rng.random_range(0..=40),
        }
    }

    fn add(&mut self, program: Program) -> usize {
        self.programs.push(program);
        self.programs.len() - 1
    }

    fn shape(&mut self) -> Shape {
        match self.rng.random_range(0..5) {
            0..2 => Shape::Inline,
            2 => Shape::Large,
            _ => Shape::Stored(self.rng.random_range(1..=1000) * 1000),
        }
    }

    fn blank(&mut self) -> Program {
        let memory = self.rng.random_range(1..=6);
        let durabilities = [Durability::Lazy, Durability::Lazy, Durability::Eager, Durability::None];
        Program {
            ops: Vec::new(),
            returns: Vec::new(),
            generator: false,
            strict: self.rng.random_ratio(1, 6),
            fails: Fails::Never,
            cpu_millis: *pick(self.rng, &[1000, 1000, 1000, 500, 250]),
            memory,
            memory_taken: memory,
            memory_max: memory,
            wish: *pick(
                self.rng,
                &[Wish::Local, Wish::Local, Wish::Local, Wish::Spread, Wish::Near, Wish::Here],
            ),
            durability: *pick(self.rng, &durabilities),
            deterministic: !(self.random_tasks && self.rng.random_ratio(1, 6)),
            lies: self.random_tasks && self.rng.random_ratio(1, 4),
        }
    }

    /// What can go wrong with a task by itself.
    fn trouble(&mut self, program: &mut Program) {
        match self.rng.random_range(0..24) {
            0 => {
                program.fails = Fails::Always(*pick(self.rng, &[Code::Trap, Code::ExitStatus, Code::Timeout]))
            }
            1..3 => program.fails = Fails::Once,
            3..5 => {
                program.memory_max = program.memory * 6;
                program.memory_taken = program.memory * self.rng.random_range(2..=6);
            }
            5 if self.rng.random_bool(0.3) => {
                program.memory_max = program.memory * 2;
                program.memory_taken = program.memory * 3;
            }
            _ => {}
        }
    }

    fn leaf(&mut self) -> usize {
        self.tasks_left -= 1;
        let mut program = self.blank();
        program.ops.push(Op::Work(self.rng.random_range(0..=40)));
        let outputs = if self.rng.random_ratio(1, 5) { 2 } else { 1 };
        program.returns = (0..outputs).map(|_| Return::Data(self.shape())).collect();
        self.trouble(&mut program);
        self.add(program)
    }

    fn generator(&mut self) -> usize {
        self.tasks_left -= 1;
        let mut program = self.blank();
        program.generator = true;
        program.strict = false; // The oracle knows no generator that fails after some outputs.
        if self.rng.random_ratio(1, 6) {
            program.fails = Fails::Once;
        }
        let count = *pick(self.rng, &[0, 1, 3, 8, 20, 40]);
        let helper = self.rng.random_ratio(1, 3).then(|| self.leaf());
        for n in 0..count {
            program.ops.push(Op::Work(self.rng.random_range(0..=5)));
            if let Some(helper) = helper.filter(|_| n == 1) {
                let register = Draft::registers(&program, &self.programs);
                program.ops.push(Op::Call { program: helper, args: vec![Arg::Inline(n)] });
                program.ops.push(Op::Read(register));
            }
            program.ops.push(Op::Yield(self.shape()));
        }
        self.add(program)
    }

    fn driver(&mut self, depth: u32) -> usize {
        self.tasks_left -= 1;
        let mut draft = Draft { program: self.blank(), live: Vec::new() };
        // Drivers keep their memory while they wait: it has to suffice for all that may wait at once.
        let program = &mut draft.program;
        (program.memory, program.memory_taken, program.memory_max) = (1, 1, 1);
        for _ in 0..self.rng.random_range(2..=6) {
            self.passage(&mut draft, depth);
        }
        let outputs = self.rng.random_range(1..=2);
        for _ in 0..outputs {
            let output = self.output(&draft);
            draft.program.returns.push(output);
        }
        if depth < 3 && self.rng.random_ratio(1, 12) {
            draft.program.fails = Fails::Once;
        }
        self.add(draft.program)
    }

    /// A few operations of a driver.
    fn passage(&mut self, draft: &mut Draft, depth: u32) {
        match self.rng.random_range(0..16) {
            0..6 => self.calls(draft, depth),
            6 => draft.program.ops.push(Op::Work(self.rng.random_range(0..=20))),
            7..9 => {
                draft.live.push(Draft::registers(&draft.program, &self.programs));
                draft.program.ops.push(Op::Put(self.shape()));
            }
            9..11 => {
                if let Some(register) = self.some(draft, 1).first() {
                    draft.program.ops.push(Op::Read(*register));
                    self.maybe_drop(draft, *register);
                }
            }
            11..13 if self.tasks_left > 0 => {
                let registers = self.some(draft, 5);
                let follow = self.rng.random_bool(0.5).then(|| self.leaf());
                if !registers.is_empty() {
                    draft.program.ops.push(Op::Any { registers, follow });
                }
            }
            13 if self.tasks_left > 0 => {
                let registers = self.some(draft, 4);
                if !registers.is_empty() {
                    let (timeout_ms, extra) = (self.rng.random_range(0..=60), self.leaf());
                    draft.program.ops.push(Op::Timed { registers, timeout_ms, extra });
                }
            }
            14 if self.tasks_left > 0 => {
                let program = if depth > 1 { self.driver(depth - 1) } else { self.leaf() };
                draft.program.ops.push(Op::Cancel { program });
            }
            15 if self.tasks_left > 0 => {
                let most = self.rng.random_ratio(1, 3).then(|| self.rng.random_range(0..=4));
                let program = self.generator();
                draft.program.ops.push(Op::Take { program, most });
            }
            _ => {}
        }
    }

    fn calls(&mut self, draft: &mut Draft, depth: u32) {
        let many = self.rng.random_ratio(1, 6);
        let same = many || self.rng.random_bool(0.5);
        let mut program = many.then(|| self.leaf());
        let count = if many { self.rng.random_range(8..=14) } else { self.rng.random_range(1..=6) };
        for _ in 0..count {
            if self.tasks_left <= 0 {
                return;
            }
            let chosen = match program.filter(|_| same) {
                Some(program) => program,
                None if depth > 1 && self.rng.random_ratio(1, 3) => self.driver(depth - 1),
                None => self.leaf(),
            };
            program = Some(chosen);
            self.tasks_left -= 1;
            let args = self.args(draft);
            let first = Draft::registers(&draft.program, &self.programs);
            draft.program.ops.push(Op::Call { program: chosen, args });
            draft.live.extend(first..first + self.programs[chosen].returns.len());
        }
    }

    fn args(&mut self, draft: &Draft) -> Vec<Arg> {
        let count = self.rng.random_range(0..=3);
        self.some(draft, count)
            .into_iter()
            .map(|register| match self.rng.random_range(0..8) {
                0 => Arg::Inline(self.rng.random()),
                1 => Arg::Block(register),
                2 => Arg::Named(register),
                _ => Arg::Register(register),
            })
            .collect()
    }

    fn output(&mut self, draft: &Draft) -> Return {
        let registers = self.some(draft, 3);
        match (self.rng.random_range(0..6), registers.first()) {
            (0, Some(register)) => Return::Alias(*register),
            (1..3, Some(_)) => Return::Naming(self.shape(), registers),
            _ => Return::Data(self.shape()),
        }
    }

    /// Up to `most` registers that were not dropped.
    fn some(&mut self, draft: &Draft, most: usize) -> Vec<usize> {
        let mut live = draft.live.clone();
        let count = most.min(live.len());
        (0..count).map(|_| live.swap_remove(self.rng.random_range(0..live.len()))).collect()
    }

    fn maybe_drop(&mut self, draft: &mut Draft, register: usize) {
        if self.rng.random_bool(0.5) {
            draft.live.retain(|live| *live != register);
            draft.program.ops.push(Op::Drop(register));
        }
    }
}

struct Draft {
    program: Program,
    /// Registers that may still be used.
    live: Vec<usize>,
}

impl Draft {
    /// How many registers the program has filled so far.
    fn registers(program: &Program, programs: &[Program]) -> usize {
        let filled = |op: &Op| match op {
            Op::Call { program, .. } => programs[*program].returns.len(),
            Op::Put(_) => 1,
            _ => 0,
        };
        program.ops.iter().map(filled).sum()
    }
}
