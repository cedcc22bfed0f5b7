//! Who waits for which output: doubly linked lists in one slab, so that telling, counting down and giving up each
//! cost the same however many wait or are waited for.

use fanfold_protocol::{
    Error, PartitionId,
    value::{Output, Value},
};

use crate::{
    Scheduler,
    output::Content,
    scheduler::Work,
    slab::{NodeIx, TaskIx},
    task::{Blocked, Outcome, Part, Phase},
};

/// Waits as an argument; smaller positions are places in a `wait`.
pub(crate) const ARGUMENT: u32 = u32::MAX;
/// Waits for the job's end.
pub(crate) const END: u32 = u32::MAX - 1;

/// An output is an alias of something that nothing is known of: its task was cancelled in an earlier epoch.
static FORGOTTEN: Error = Error {
    kind: fanfold_protocol::Kind::Lost,
    code: fanfold_protocol::Code::PartitionLost,
    message: std::borrow::Cow::Borrowed("the partition is an alias of one that is not known any more"),
    retryable: false,
};

/// `owner` waits for `part`.
#[derive(Debug)]
pub(crate) struct Node {
    part: Part,
    next: Option<NodeIx>,
    previous: Option<NodeIx>,
    /// The owner's next node.
    sibling: Option<NodeIx>,
    owner: TaskIx,
    position: u32,
    /// No longer in the output's list: the output was made or failed.
    told: bool,
}

/// How an output stands, aliases followed.
#[derive(Debug)]
pub(crate) enum Resolved<'a> {
    /// Inline, stored, or an alias of something that is no whole partition. The part is the one that has it.
    Ready(Part, &'a Output),
    /// It will never be.
    Failed(&'a Error),
    /// This one has to be made first.
    Pending(Part),
}

impl<'a> Resolved<'a> {
    fn ready(narrowed: Option<(Part, &'a Output)>, part: Part, output: &'a Output) -> Self {
        let (part, output) = narrowed.unwrap_or((part, output));
        Self::Ready(part, output)
    }
}

impl Scheduler {
    /// Follows aliases from `part` to what there is of it.
    pub(crate) fn resolve(&self, mut part: Part) -> Resolved<'_> {
        // The first alias of some blocks: what is behind it has to be ready, too.
        let mut narrowed = None;
        loop {
            let task = &self.tasks[part.task];
            let failure = match &task.outcome {
                Outcome::Failed(error) => Some(error),
                _ if task.flags.unmakeable => task.error.as_ref(),
                _ => None,
            };
            let output = match (task.slot(part.output).map(|slot| &slot.content), failure) {
                (Some(Content::Made(output)), _) => output.as_ref(),
                (_, Some(error)) => return Resolved::Failed(error),
                _ => return Resolved::Pending(part),
            };
            let Output::Alias(value) = output else { return Resolved::ready(narrowed, part, output) };
            let (target, whole) = match value.as_ref() {
                Value::Partition(id) => (id, true),
                Value::Blocks { partition, .. } => (partition, false),
                Value::Inline(_) | Value::Object(_) => return Resolved::ready(narrowed, part, output),
            };
            if !whole {
                narrowed.get_or_insert((part, output));
            }
            match self.part_seen(*target) {
                Some(next) => part = next,
                None => return Resolved::Failed(&FORGOTTEN),
            }
        }
    }

    /// Whether following aliases from `value` leads to `part` itself: such an output would never be.
    pub(crate) fn leads_to(&self, value: &Value, part: Part) -> bool {
        let mut next = value.needs();
        while let Some(id) = next {
            let Some(target) = self.part_seen(id) else { return false };
            if target == part {
                return true;
            }
            next = match self.slot(target).map(|slot| &slot.content) {
                Some(Content::Made(output)) => match output.as_ref() {
                    Output::Alias(value) => value.needs(),
                    _ => None,
                },
                _ => None,
            };
        }
        false
    }

    /// Notes that `owner` waits for `part`, which must not be ready.
    pub(crate) fn watch(&mut self, owner: TaskIx, part: Part, position: u32) {
        let sibling = self.tasks[owner].interest;
        let node = Node { part, next: None, previous: None, sibling, owner, position, told: true };
        let node = self.nodes.insert(node);
        self.tasks[owner].interest = Some(node);
        self.link(node, part);
        self.agenda.push_back(Work::Need(part));
    }

    fn link(&mut self, node: NodeIx, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        let first = slot.interest.replace(node);
        if let Some(first) = first {
            self.nodes[first].previous = Some(node);
        }
        let node = &mut self.nodes[node];
        (node.part, node.next, node.previous, node.told) = (part, first, None, false);
    }

    /// Forgets everything `owner` waits for.
    pub(crate) fn unwatch(&mut self, owner: TaskIx) {
        let mut next = self.tasks[owner].interest.take();
        while let Some(ix) = next {
            let Some(node) = self.nodes.remove(ix) else { return };
            next = node.sibling;
            if node.told {
                continue;
            }
            if let Some(after) = node.next {
                self.nodes[after].previous = node.previous;
            }
            match node.previous {
                Some(before) => self.nodes[before].next = node.next,
                None => {
                    if let Some(slot) = self.slot_mut(node.part) {
                        slot.interest = node.next;
                    }
                }
            }
        }
    }

    /// Tells those who wait for `part`, first come first, that it is ready or failed. Where it turned out to be an
    /// alias of something that is not ready yet, they wait for that instead.
    pub(crate) fn tell(&mut self, part: Part) {
        let Some(mut next) = self.slot_mut(part).map(|slot| slot.interest.take()) else { return };
        let mut waiting = Vec::new();
        while let Some(ix) = next {
            let node = &mut self.nodes[ix];
            node.told = true;
            next = node.next;
            waiting.push(ix);
        }
        if waiting.is_empty() {
            return;
        }
        let failure = match self.resolve(part) {
            Resolved::Pending(target) => {
                waiting.iter().rev().for_each(|&node| self.link(node, target));
                return self.agenda.push_back(Work::Need(target));
            }
            Resolved::Failed(error) => Some(error.clone()),
            Resolved::Ready(..) => None,
        };
        for node in waiting.into_iter().rev() {
            // An earlier one may have ended this one's waiting: its node is gone then.
            if let Some((owner, position)) = self.nodes.get(node).map(|node| (node.owner, node.position)) {
                self.arrived(owner, position, failure.as_ref());
            }
        }
    }

    fn arrived(&mut self, owner: TaskIx, position: u32, failure: Option<&Error>) {
        let task = &mut self.tasks[owner];
        let job = task.job;
        match &mut task.phase {
            _ if position == END => self.agenda.push_back(Work::End(job)),
            Phase::Waiting { missing } if position == ARGUMENT => {
                *missing -= 1;
                let ready = *missing == 0;
                match failure {
                    Some(error) => self.argument_failed(owner, error.clone()),
                    None if ready => self.arguments_ready(owner),
                    None => {}
                }
            }
            Phase::Running(run) => {
                if let Some(Blocked::Wait(wait)) = &mut run.blocked {
                    wait.ready += 1;
                    if wait.ready >= wait.needed() {
                        self.wake(owner);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether somebody waits for `part`.
    pub(crate) fn is_awaited(&self, part: Part) -> bool {
        self.slot(part).is_some_and(|slot| slot.interest.is_some())
    }

    /// Tells those who wait for an output of `task` that is not there how things stand now.
    pub(crate) fn tell_missing(&mut self, task: TaskIx) {
        for output in self.tasks[task].output_numbers() {
            let part = Part { task, output };
            if self.is_awaited(part) {
                self.agenda.push_back(Work::Settled(part));
            }
        }
    }

    /// Has what is still awaited of `task` seen to again.
    pub(crate) fn need_missing(&mut self, task: TaskIx) {
        for output in self.tasks[task].output_numbers() {
            let part = Part { task, output };
            if self.is_awaited(part) {
                self.agenda.push_back(Work::Need(part));
            }
        }
    }

    /// The first partition that `owner` waits for and that is not ready, for people.
    pub(crate) fn first_awaited(&self, owner: TaskIx) -> Option<Part> {
        let mut first = None;
        let mut next = self.tasks[owner].interest;
        while let Some(node) = next.and_then(|ix| self.nodes.get(ix)) {
            if !node.told {
                first = Some(node.part);
            }
            next = node.sibling;
        }
        first
    }

    pub(crate) fn unknown_partition(id: PartitionId) -> Error {
        Error::not_found(
            fanfold_protocol::Code::Partition,
            format!("partition {id} is not known in this job; pass futures and refs, not made-up ids"),
        )
    }
}
