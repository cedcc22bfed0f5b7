//! Executors that come, change what they offer, drain and go.

use fanfold_protocol::{
    Code, Error, ExecutorId, Kind, call::Placement, link::Held, message::Offer, value::Output,
};

use crate::{
    Scheduler,
    output::Content,
    scheduler::Work,
    slab::{ExecutorIx, TaskIx},
    task::{Part, Phase},
};

impl Scheduler {
    pub(crate) fn executor_joined(&mut self, offer: &Offer, held: &[Held]) {
        self.executor_left(offer.executor); // If it is here already, its link was broken or it has started anew.
        self.pool.join(offer);
        held.iter().for_each(|held| self.take_over(offer.executor, held));
        // What was away with it and has not come back is lost.
        let away_with_it = |content: &Content| match content {
            Content::Gone(gone) => gone.away().is_some_and(|away| away.at == Some(offer.executor)),
            _ => false,
        };
        for part in self.parts(away_with_it) {
            self.sweep(part);
            self.agenda.push_back(Work::Need(part));
        }
    }

    /// The executor offers more or less than before. What runs there goes on; nothing new starts until it fits.
    pub(crate) fn offered(&mut self, id: ExecutorId, offer: &Offer) {
        let Some(ix) = self.pool.find(id) else { return };
        let total = self.pool.offered(offer);
        self.pool.executors[ix].total = total;
        self.pool.version += 1;
        self.give_up_reservation(ix);
    }

    /// The executor takes nothing new. What it has can be read there until it has left; what nobody else has it
    /// uploads by itself.
    pub(crate) fn leaving(&mut self, id: ExecutorId) {
        let Some(ix) = self.pool.find(id).filter(|&ix| !self.pool.executors[ix].leaving) else { return };
        self.pool.executors[ix].leaving = true;
        self.give_up_reservation(ix);
        self.check_bindings();
    }

    /// Lets the class for which the executor is kept free look for another one, if it will never start here.
    fn give_up_reservation(&mut self, ix: ExecutorIx) {
        let executor = &self.pool.executors[ix];
        let Some((class, _)) = executor.reservation else { return };
        let of_use =
            self.ready.classes.get(class).is_some_and(|class| executor.could_fit(&class.shape.needs));
        if !of_use {
            self.unreserve(class);
        }
    }

    pub(crate) fn executor_left(&mut self, id: ExecutorId) {
        let Some((left, executor)) = self.pool.leave(id) else { return };
        self.frees.remove(&id);
        self.holdings.forget(id);
        if let Some((class, timer)) = executor.reservation {
            self.timers.cancel(timer);
            if let Some(class) = self.ready.classes.get_mut(class) {
                class.reserved = false;
            }
        }
        let here =
            |content: &Content| matches!(content, Content::Made(output) if output_at(output) == Some(id));
        for part in self.parts(here) {
            self.copy_away(part);
        }
        let runs = self.tasks.iter().filter(|(_, task)| task.run().is_some_and(|run| run.is_on(left)));
        let runs: Vec<TaskIx> = runs.map(|(ix, _)| ix).collect();
        self.expect_return();
        self.check_bindings();
        for ix in runs {
            self.lose_attempt(ix, left, id);
        }
    }

    /// The outputs whose content is so.
    fn parts(&self, wanted: impl Fn(&Content) -> bool) -> Vec<Part> {
        let mut parts = Vec::new();
        for (task_ix, task) in self.tasks.iter() {
            let so = |output: &u32| task.slot(*output).is_some_and(|slot| wanted(&slot.content));
            parts.extend(task.output_numbers().filter(so).map(|output| Part { task: task_ix, output }));
        }
        parts
    }

    fn lose_attempt(&mut self, ix: TaskIx, executor: ExecutorIx, id: ExecutorId) {
        // An earlier one's end may have ended this one too.
        if !self.tasks[ix].run().is_some_and(|run| run.is_on(executor)) || self.lose_backed_run(ix, executor)
        {
            return;
        }
        self.lose_run(ix);
        let message = format!("executor {id} left while it ran the task");
        self.attempt_lost(ix, Error::new(Kind::Lost, Code::ExecutorLost, message));
    }

    /// Whether a task bound to the executor would wait for it in vain. One that the log may know is given its time.
    pub(crate) fn is_out_of_reach(&self, id: ExecutorId) -> bool {
        match self.pool.find(id) {
            Some(ix) => self.pool.executors[ix].leaving,
            None => !self.holdings.is_grace(),
        }
    }

    /// Queued tasks that may run on one executor only, which will not take them, fail.
    pub(crate) fn check_bindings(&mut self) {
        let mut bound = Vec::new();
        for (ix, task) in self.tasks.iter().filter(|(_, task)| task.is_open()) {
            let placement = task.spec.as_ref().map(|spec| spec.terms.placement);
            if let (Phase::Ready(_), Some(Placement::On { executor, strict: true })) =
                (&task.phase, placement)
                && self.is_out_of_reach(executor)
            {
                bound.push(ix);
            }
        }
        for ix in bound {
            if matches!(self.tasks[ix].phase, Phase::Ready(_)) {
                self.arguments_ready(ix);
            }
        }
    }
}

fn output_at(output: &Output) -> Option<ExecutorId> {
    match output {
        Output::Stored(stored) => stored.at,
        _ => None,
    }
}
