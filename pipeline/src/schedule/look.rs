//! How the stages stand, for people who watch: nothing is decided by it.

use super::{Engine, Mode};

/// How a stage stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// Rows that it has made.
    pub rows: u64,
    /// Bytes that it made and that wait for the next stage, or to leave the pipeline.
    pub buffered_bytes: u64,
    /// Bytes that its running tasks may make.
    pub granted_bytes: u64,
    /// Why it starts no further task now.
    pub why: Why,
}

/// Why a stage starts no further task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It could: it was not asked yet.
    Ready,
    /// All its input is processed, and no more comes.
    Done,
    /// Nothing waits for it.
    Input,
    /// What waits for it is less than a batch.
    Batch,
    /// Rows that were set aside want so many bytes at once.
    Aside(u64),
    /// Running tasks have all of this resource, by its place in [`super::Limits::capacity`].
    Resource(usize),
    /// What it would make does not fit into the memory.
    Memory,
    /// As many bytes wait between the stages as are of use: more would make nothing faster.
    Budget(u64),
    /// Another stage's turn, or others have its share.
    Turn,
}

impl Engine {
    /// How each stage stands. Ask when [`Engine::launch`] has nothing more to start.
    pub fn look(&self) -> Vec<Look> {
        let look = |n: usize| {
            let stage = &self.stages[n];
            let next = self.stages.get(n + 1).map_or(&self.out, |next| &next.queue);
            Look {
                rows: stage.totals.rows,
                buffered_bytes: next.bytes(),
                granted_bytes: stage.granted,
                why: self.why(n),
            }
        };
        (0..self.stages.len()).map(look).collect()
    }

    /// Bytes that are held or granted.
    pub fn used_bytes(&self) -> u64 {
        self.memory.limit() - self.memory.free()
    }

    /// The first of the conditions to start a task that does not hold; as in `choose`.
    fn why(&self, n: usize) -> Why {
        let stage = &self.stages[n];
        let empty = if n == 0 { self.source.is_empty() } else { stage.queue.is_empty() };
        let aside = self.stages.iter().flat_map(|stage| &stage.aside).map(|(_, wants)| *wants).max();
        let source = n == 0 && matches!(self.limits.mode, Mode::Full | Mode::NoRepartition);
        match aside {
            Some(wants) if n == 0 || !stage.aside.is_empty() => Why::Aside(wants),
            _ if empty && !self.more_comes(n) => Why::Done,
            _ if empty => Why::Input,
            _ if n > 0 && !self.has_batch(n) && self.more_comes(n) => Why::Batch,
            _ => match self.lacking(n) {
                Some(resource) => Why::Resource(resource),
                None if !self.has_room(n, stage.grant, self.is_first(n)) => Why::Memory,
                None if source && self.waiting_bytes() >= self.budget() => Why::Budget(self.budget()),
                None if matches!(self.limits.mode, Mode::Static | Mode::Staged) => Why::Turn,
                None => Why::Ready,
            },
        }
    }

    /// The first resource of which too little is free.
    pub(super) fn lacking(&self, n: usize) -> Option<usize> {
        let needs = self.shapes[n].needs.iter().zip(&self.used).zip(&self.limits.capacity);
        needs.into_iter().position(|((needs, used), capacity)| needs + used > *capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Limits, Outcome, Shape};

    #[test]
    fn each_stage_says_why_it_waits() {
        let shape = |name: &str, needs: [u32; 2], batch| Shape {
            name: name.into(),
            needs: needs.into(),
            batch,
            stateful: false,
            rows_max: None,
            sink: false,
        };
        let limits = Limits {
            mode: Mode::Full,
            memory_bytes: 1000,
            target_bytes: 100,
            capacity: vec![2, 1],
            keyed: false,
            ordered: false,
        };
        let mut engine =
            Engine::new(vec![shape("read", [1, 0], 1), shape("infer", [0, 1], 50)], limits, 0..3);
        let why = |engine: &Engine| engine.look().iter().map(|look| look.why).collect::<Vec<_>>();
        assert_eq!(why(&engine), [Why::Ready, Why::Done], "nothing has begun");
        let launched: Vec<_> = std::iter::from_fn(|| engine.launch()).collect();
        assert_eq!((launched.len(), why(&engine)), (2, vec![Why::Resource(0), Why::Input]));
        engine.done(launched[0].id, &Outcome { rows: 30, bytes: 90, ..Outcome::default() });
        assert_eq!(engine.launch().map(|launch| launch.stage), Some(0));
        assert_eq!(why(&engine), [Why::Done, Why::Batch]);
        let looks = engine.look();
        assert_eq!((looks[0].rows, looks[0].buffered_bytes, looks[0].granted_bytes), (30, 90, 200));
        assert_eq!(engine.used_bytes(), 290);
        engine.done(launched[1].id, &Outcome { rows: 30, bytes: 90, ..Outcome::default() });
        assert_eq!(engine.launch().map(|launch| launch.stage), Some(1));
        assert_eq!(why(&engine)[1], Why::Batch, "the ten rows that were left wait for more");
    }
}
