//! What must hold in every state, and what must be reached for the search to mean something.

use stateright::Property;

use super::{
    protocol::Journal,
    state::{Owner, State, Task, Token},
};

pub const ONE_COMMIT: &str = "a task has one commit in the log";
pub const NOTHING_MISSING: &str = "the newest owner knows all that was acknowledged";
pub const IN_THE_LOG: &str = "what is acknowledged is in the log, and what is folded is the log";
pub const FENCED: &str = "no segment of a former owner comes after its successor's";
pub const OWN_TOKENS: &str = "an owner commits its own attempts only";

/// All properties.
pub fn all() -> Vec<Property<Journal>> {
    vec![
        Property::always(ONE_COMMIT, |_, state: &State| {
            state
                .tasks
                .iter()
                .all(|task| commits(task).all(|(_, token)| Some(token) == task.commit_before(state.tail())))
        }),
        Property::always(NOTHING_MISSING, |_, state: &State| {
            state.owners.iter().all(|owner| match owner {
                Owner::Live { epoch, next, .. } if *epoch == state.epochs => knows_all(*next, &state.tasks),
                _ => knows_all(state.tail(), &state.tasks),
            })
        }),
        Property::always(IN_THE_LOG, |_, state: &State| state.wrong.is_none()),
        Property::always(FENCED, |_, state: &State| state.log[..usize::from(state.length)].is_sorted()),
        Property::always(OWN_TOKENS, |_, state: &State| {
            let own = |(index, token): (usize, Token)| state.log[index] == token.epoch;
            state.tasks.iter().all(|task| commits(task).all(own))
        }),
        Property::sometimes("all tasks are committed, and clients know", |_, state: &State| {
            state.tasks.iter().all(|task| task.absent || task.told.is_some())
        }),
        Property::sometimes(
            "a stale owner creates a segment again that was collected",
            |_, state: &State| state.recreated.iter().any(|epoch| *epoch > 0),
        ),
        Property::sometimes(
            "a result of a former epoch is there for a task of a later one",
            |_, state: &State| {
                let late = |task: &Task| task.sent & 0b11 != 0 && commits(task).any(|(_, t)| t.epoch > 1);
                state.tasks.iter().any(late)
            },
        ),
        Property::sometimes("a segment of a stale owner gets in before the fence", |_, state: &State| {
            let opening = |owner: &Owner| matches!(owner, Owner::Opening { epoch, next, .. } if *epoch == state.epochs && *next < state.tail());
            state.owners.iter().any(opening)
        }),
        Property::sometimes("what is in the log was not acknowledged", |_, state: &State| {
            state
                .tasks
                .iter()
                .any(|task| commits(task).next().is_some() && task.told.is_none() && state.epochs > 1)
        }),
    ]
}

/// The commits of a task in the log, with the places of their segments.
fn commits(task: &Task) -> impl Iterator<Item = (usize, Token)> {
    task.log.iter().enumerate().filter_map(|(index, note)| Some((index, note.committed?)))
}

fn knows_all(next: u8, tasks: &[Task]) -> bool {
    tasks.iter().all(|task| {
        (!task.acknowledged || task.is_accepted_before(next))
            && (task.told.is_none() || task.commit_before(next) == task.told)
    })
}
