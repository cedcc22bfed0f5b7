//! What can happen in a state, and what it leads to: the rules of `store::journal`, of the owner's lane, and of tokens.

use stateright::{Model, Property};

use super::state::{
    ATTEMPTS, CHECKPOINTS, EPOCHS, Note, Opening, Owner, SEGMENTS, State, TASKS, Task, Token, Wrong,
};

/// Which rules hold. All of them do; a test takes one away to see that its loss is noticed.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A new owner writes a fence at the tail before it goes on.
    pub fence: bool,
    /// An owner whose last write is long ago asks for the newest epoch after its next one, and before it acknowledges.
    pub ask_after_silence: bool,
    /// An opening that took so long that what it read may have been collected is given up.
    pub open_in_time: bool,
    /// A result counts only where epoch and number are those of an attempt of this owner.
    pub tokens: bool,
}

pub const ALL_RULES: Rules = Rules { fence: true, ask_after_silence: true, open_in_time: true, tokens: true };

/// How large a world is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Journal {
    pub rules: Rules,
    pub owners: usize,
    pub tasks: usize,
    /// Claims of the shard; at most [`EPOCHS`].
    pub epochs: u8,
    /// Attempts of a task by one owner; at most [`ATTEMPTS`].
    pub attempts: u8,
    /// Segments of the log, at most [`SEGMENTS`].
    pub segments: u8,
    /// At any time, at most [`CHECKPOINTS`].
    pub checkpoints: usize,
    pub days: u8,
    /// Crashes of owners. (One that never moves again is as good as crashed, so few add much.)
    pub crashes: u8,
}

/// A step. Owners and tasks are named by their place in the state before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// A process claims the next epoch and reads the newest checkpoint.
    Claim(usize),
    /// It reads to the tail and sends its fence.
    Replay(usize),
    /// The store carries out the request of an epoch's owner: creates the segment, or refuses because it exists.
    Carry {
        epoch: u8,
    },
    /// An owner gets the answer to its request.
    Answer(usize),
    /// An owner that got none looks at what is there.
    Look(usize),
    /// A client that was not told so asks again whether a task is accepted.
    Ask {
        owner: usize,
        task: usize,
    },
    /// An owner has an executor run a task.
    Start {
        owner: usize,
        task: usize,
    },
    /// An owner sends a segment: for each task that it was submitted, or that the message of an attempt came, or nothing.
    Write {
        owner: usize,
        notes: [Note; TASKS],
    },
    Checkpoint(usize),
    /// Somebody removes what an old checkpoint covers.
    Collect,
    /// A day passes: longer than an owner trusts its epoch, than a request can be on the way, than segments are kept.
    Sleep,
    Crash(usize),
}

impl Model for Journal {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        assert!(usize::from(self.epochs) <= EPOCHS && self.attempts <= ATTEMPTS);
        assert!(usize::from(self.segments) < SEGMENTS && self.checkpoints <= CHECKPOINTS);
        vec![State::new(self.owners, self.tasks)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.wrong.is_some() {
            return;
        }
        for (owner, known) in state.owners.iter().enumerate() {
            // Owners that are down are alike.
            let repeated = owner > 0 && state.owners[owner - 1] == Owner::Down;
            match known {
                Owner::Down if state.epochs < self.epochs && !repeated => {
                    steps.push(Step::Claim(owner));
                    continue;
                }
                Owner::Down | Owner::Absent => continue,
                Owner::Opening { opening: Opening::Replaying, .. } => steps.push(Step::Replay(owner)),
                Owner::Opening { .. } => waiting(state, owner, steps),
                Owner::Live { .. } => self.live(state, owner, steps),
            }
            if state.crashes < self.crashes {
                steps.push(Step::Crash(owner));
            }
        }
        steps.extend(
            (1..=self.epochs)
                .filter(|epoch| state.puts[usize::from(*epoch) - 1] > 0)
                .map(|epoch| Step::Carry { epoch }),
        );
        if collectable(state).is_some() {
            steps.push(Step::Collect);
        }
        if state.day < self.days {
            steps.push(Step::Sleep);
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = *before;
        match step {
            Step::Claim(owner) => claim(&mut state, owner),
            Step::Replay(owner) => self.replay(&mut state, owner),
            Step::Carry { epoch } => carry(&mut state, epoch),
            Step::Answer(owner) => self.written(&mut state, owner),
            Step::Look(owner) => self.look(&mut state, owner),
            Step::Ask { task, .. } => state.tasks[task].acknowledged = true,
            Step::Start { owner, task } => start(&mut state, owner, task),
            Step::Write { owner, notes } => write(&mut state, owner, notes),
            Step::Checkpoint(owner) => checkpoint(&mut state, owner),
            Step::Collect => collect(&mut state),
            Step::Sleep => {
                state.day += 1;
                // A store refuses a request whose signature is older than a quarter of an hour.
                (1..=EPOCHS as u8).for_each(|epoch| drop_put(&mut state, epoch));
            }
            Step::Crash(owner) => {
                state.crashes += 1;
                end(&mut state, owner);
            }
        }
        Some(state.sorted())
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.length <= self.segments
    }

    fn properties(&self) -> Vec<Property<Self>> {
        super::properties::all()
    }
}

impl Journal {
    /// What a live owner can do.
    fn live(&self, state: &State, owner: usize, steps: &mut Vec<Step>) {
        let Owner::Live { epoch, next, writing, .. } = state.owners[owner] else { return };
        let mut choices = Vec::new();
        for (task, known) in state.tasks.iter().enumerate().filter(|(_, task)| !task.absent) {
            let held = known.held[usize::from(epoch) - 1];
            let choice = self.choice(known, epoch, next);
            // Of tasks that are alike in every respect one is tried.
            let repeated = task > 0 && state.tasks[task - 1] == *known;
            if !repeated && known.is_accepted_before(next) && !known.acknowledged {
                steps.push(Step::Ask { owner, task });
            }
            let runs = known.is_accepted_before(next)
                && known.commit_before(next).or(held.writing.committed).is_none();
            if !repeated && runs && held.started < self.attempts {
                steps.push(Step::Start { owner, task });
            }
            choices.push(choice);
        }
        if writing.is_some() {
            return waiting(state, owner, steps);
        }
        segments(&choices, |notes| steps.push(Step::Write { owner, notes }));
        let made = state.checkpoints.iter().filter(|(seq, _)| *seq > 0).count();
        if made < self.checkpoints && next - 1 > state.covered() {
            steps.push(Step::Checkpoint(owner));
        }
    }

    /// What the next segment may say of a task.
    fn choice(&self, task: &Task, epoch: u8, next: u8) -> Vec<Note> {
        let mut choice = vec![Note::default()];
        if !task.is_accepted_before(next) {
            choice.push(Note { accepted: true, committed: None });
        } else if task.commit_before(next).is_none() {
            let counts = |token: &Token| token.epoch == epoch || !self.rules.tokens;
            let come = Token::all().filter(|token| task.sent & token.bit() != 0).filter(counts);
            choice.extend(come.map(|token| Note { accepted: false, committed: Some(token) }));
        }
        choice
    }

    /// Reads from the checkpoint to the first number that is free, and sends the fence.
    fn replay(&self, state: &mut State, owner: usize) {
        let Owner::Opening { epoch, mut next, began, mut astray, .. } = state.owners[owner] else { return };
        while let Some(found) = state.segment(next) {
            if found > epoch {
                return end(state, owner);
            }
            astray |= next <= state.collected;
            next += 1;
        }
        // Later segments without this one: it says that one is missing, and does not start.
        if next < state.tail() {
            return end(state, owner);
        }
        if self.rules.fence {
            *state.put(epoch) = next;
            let opening = Opening::Fencing { created: false };
            state.owners[owner] = Owner::Opening { epoch, next, began, opening, astray };
        } else {
            self.open(state, owner, (epoch, next, began, astray));
        }
    }

    /// Becomes the owner.
    fn open(&self, state: &mut State, owner: usize, (epoch, next, began, astray): (u8, u8, u8, bool)) {
        if self.rules.open_in_time && began < state.day {
            return end(state, owner);
        }
        if astray {
            state.wrong = Some(Wrong::ReadWhatIsNotTheLog);
        }
        state.owners[owner] = Owner::Live { epoch, next, wrote: state.day, writing: None };
    }

    /// An owner looks at the number that it wants for its segment.
    fn look(&self, state: &mut State, owner: usize) {
        let (epoch, next) = match state.owners[owner] {
            Owner::Opening { epoch, next, .. } | Owner::Live { epoch, next, .. } => (epoch, next),
            Owner::Down | Owner::Absent => return,
        };
        match (state.segment(next), &mut state.owners[owner]) {
            (Some(found), _) if found == epoch => self.written(state, owner),
            // A former owner was faster: its segment is read first.
            (Some(found), Owner::Opening { opening, .. }) if found < epoch => *opening = Opening::Replaying,
            (Some(_), _) | (None, Owner::Opening { .. }) => end(state, owner),
            // Nobody knows what became of it: the same bytes once more.
            (None, _) => *state.put(epoch) = next,
        }
    }

    /// An owner learns that its segment is there.
    fn written(&self, state: &mut State, owner: usize) {
        match state.owners[owner] {
            Owner::Down | Owner::Absent => {}
            Owner::Opening { epoch, next, began, astray, .. } => {
                self.open(state, owner, (epoch, next + 1, began, astray));
            }
            Owner::Live { epoch, wrote, .. }
                if self.rules.ask_after_silence && wrote < state.day && state.epochs > epoch =>
            {
                end(state, owner);
            }
            Owner::Live { epoch, next, .. } => {
                acknowledge(state, epoch, next);
                let wrote = state.day;
                state.owners[owner] = Owner::Live { epoch, next: next + 1, wrote, writing: None };
            }
        }
    }
}

/// What an owner can do that waits for an answer.
fn waiting(state: &State, owner: usize, steps: &mut Vec<Step>) {
    let (epoch, next, created) = match state.owners[owner] {
        Owner::Live { epoch, next, writing: Some(created), .. }
        | Owner::Opening { epoch, next, opening: Opening::Fencing { created }, .. } => (epoch, next, created),
        _ => return,
    };
    // While the segment is there, looking at it and the answer say the same.
    if created && state.segment(next) != Some(epoch) {
        steps.push(Step::Answer(owner));
    }
    if state.puts[usize::from(epoch) - 1] == 0 {
        steps.push(Step::Look(owner));
    }
}

fn claim(state: &mut State, owner: usize) {
    state.epochs += 1;
    let next = state.covered() + 1;
    let (epoch, began) = (state.epochs, state.day);
    state.owners[owner] = Owner::Opening { epoch, next, began, opening: Opening::Replaying, astray: false };
}

fn carry(state: &mut State, epoch: u8) {
    let seq = *state.put(epoch);
    let free = state.segment(seq).is_none();
    if free && seq <= state.collected {
        state.recreated[usize::from(seq) - 1] = epoch;
    } else if free {
        state.log[usize::from(seq) - 1] = epoch;
        state.length += 1;
        state.tasks.iter_mut().for_each(|task| task.log[usize::from(seq) - 1] = task.held_by(epoch).writing);
    }
    drop_put(state, epoch);
    for owner in &mut state.owners {
        match owner {
            Owner::Live { epoch: of, writing: Some(created), .. }
            | Owner::Opening { epoch: of, opening: Opening::Fencing { created }, .. }
                if *of == epoch && free =>
            {
                *created = true;
            }
            _ => {}
        }
    }
}

/// Forgets a request, and what was in it if its owner is gone too.
fn drop_put(state: &mut State, epoch: u8) {
    *state.put(epoch) = 0;
    let alive = |owner: &Owner| matches!(owner, Owner::Live { epoch: of, .. } if *of == epoch);
    if !state.owners.iter().any(alive) {
        state.tasks.iter_mut().for_each(|task| task.held_by(epoch).writing = Note::default());
    }
}

/// Tells clients what the segment `seq` has made true.
fn acknowledge(state: &mut State, epoch: u8, seq: u8) {
    if state.log[usize::from(seq) - 1] != epoch {
        state.wrong = Some(Wrong::AcknowledgedOutsideTheLog);
    }
    for task in &mut state.tasks {
        let Note { accepted, committed } = std::mem::take(&mut task.held_by(epoch).writing);
        task.acknowledged |= accepted;
        task.told = task.told.or(committed);
    }
}

fn start(state: &mut State, owner: usize, task: usize) {
    let Owner::Live { epoch, .. } = state.owners[owner] else { return };
    let task = &mut state.tasks[task];
    let held = task.held_by(epoch);
    let token = Token { epoch, number: held.started };
    held.started += 1;
    task.sent |= token.bit();
}

fn write(state: &mut State, owner: usize, notes: [Note; TASKS]) {
    let Owner::Live { epoch, next, writing, .. } = &mut state.owners[owner] else { return };
    *writing = Some(false);
    let (epoch, seq) = (*epoch, *next);
    *state.put(epoch) = seq;
    for (task, note) in state.tasks.iter_mut().zip(notes) {
        task.held_by(epoch).writing = note;
    }
}

/// All segments that say one of the choices of each task, and not nothing.
fn segments(choices: &[Vec<Note>], mut found: impl FnMut([Note; TASKS])) {
    let count = choices.iter().map(Vec::len).product();
    for mut number in 1..count {
        let mut notes = [Note::default(); TASKS];
        for (note, choice) in notes.iter_mut().zip(choices) {
            *note = choice[number % choice.len()];
            number /= choice.len();
        }
        found(notes);
    }
}

fn checkpoint(state: &mut State, owner: usize) {
    let Owner::Live { next, .. } = state.owners[owner] else { return };
    state.checkpoints.rotate_left(1);
    state.checkpoints[CHECKPOINTS - 1] = (next - 1, state.day);
}

/// Up to where segments may be removed: the newest checkpoint is never the one to rely on.
fn collectable(state: &State) -> Option<u8> {
    let older = state.checkpoints[..CHECKPOINTS - 1].iter();
    let old = older.filter(|(seq, day)| *seq > 0 && *day < state.day).map(|(seq, _)| *seq).next_back()?;
    let again = state.recreated[..usize::from(old)].iter().any(|epoch| *epoch > 0);
    (old > state.collected || again).then_some(old)
}

fn collect(state: &mut State) {
    let Some(covered) = collectable(state) else { return };
    state.collected = covered;
    state.recreated[..usize::from(covered)].fill(0);
    for checkpoint in state.checkpoints.iter_mut().filter(|(seq, _)| *seq < covered) {
        *checkpoint = (0, 0);
    }
}

/// A process ends: crashed, or because it has been replaced. Its request may still be on the way.
fn end(state: &mut State, owner: usize) {
    let former = std::mem::replace(&mut state.owners[owner], Owner::Down);
    let (Owner::Opening { epoch, .. } | Owner::Live { epoch, .. }) = former else { return };
    let on_the_way = *state.put(epoch) > 0;
    for task in &mut state.tasks {
        let held = task.held_by(epoch);
        held.started = 0;
        if !on_the_way {
            held.writing = Note::default();
        }
    }
}
