//! Which requests go wrong, and how. Each is something that S3 or the way to it has been seen to do.
//!
//! A fault is written `KIND:PROBABILITY[:METHOD[:PART OF THE PATH]]`, `*` for any method:
//!
//! | kind | what happens |
//! |---|---|
//! | `503` | nothing is done, and the answer says `SlowDown` |
//! | `late-503` | it is done, and the answer says `SlowDown` |
//! | `409` | nothing is done, and the answer says `ConditionalRequestConflict` |
//! | `lost-answer` | it is done, and the connection ends without an answer |
//! | `cut` | the connection ends in the middle of the answer's body |
//! | `slow` | the answer's body takes a second |
//! | `hang` | nothing is done, and no answer comes |
//! | `down` | the connection ends before anything is done |
//!
//! Faults are drawn from one seeded generator. `PUT /-/faults` with one fault a line replaces them all; `GET /-/faults`
//! tells how often each kind happened since the start.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use http::Method;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    SlowDown,
    LateSlowDown,
    Conflict,
    LostAnswer,
    Cut,
    Slow,
    Hang,
    Down,
}

const KINDS: [(&str, Kind); 8] = [
    ("503", Kind::SlowDown),
    ("late-503", Kind::LateSlowDown),
    ("409", Kind::Conflict),
    ("lost-answer", Kind::LostAnswer),
    ("cut", Kind::Cut),
    ("slow", Kind::Slow),
    ("hang", Kind::Hang),
    ("down", Kind::Down),
];

#[derive(Clone, Debug)]
struct Fault {
    kind: Kind,
    probability: f64,
    method: Option<Method>,
    path: String,
}

/// The faults of one server.
#[derive(Debug)]
pub struct Faults(Mutex<State>);

#[derive(Debug)]
struct State {
    faults: Vec<Fault>,
    rng: StdRng,
    happened: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// None yet.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(State {
            faults: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            happened: BTreeMap::new(),
        }))
    }

    /// Replaces them all by those of a text with one on each line.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let faults = lines.map(parse).collect::<Result<Vec<_>, _>>()?;
        self.state().faults = faults;
        Ok(())
    }

    /// What shall happen to a request.
    pub fn draw(&self, method: &Method, path: &str) -> Option<Kind> {
        let state = &mut *self.state();
        let applies = |fault: &&Fault| {
            fault.method.as_ref().is_none_or(|wanted| wanted == method) && path.contains(&fault.path)
        };
        let rng = &mut state.rng;
        let drawn = state.faults.iter().filter(applies).find(|fault| rng.random_bool(fault.probability))?;
        let name = KINDS.iter().find(|(_, kind)| *kind == drawn.kind).map_or("", |(name, _)| name);
        *state.happened.entry(name).or_default() += 1;
        Some(drawn.kind)
    }

    /// How often each kind happened.
    pub fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.state().happened.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(text: &str) -> Result<Fault, String> {
    let mut fields = text.splitn(4, ':');
    let name = fields.next().unwrap_or_default();
    let kind = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| format!("`{name}` in `{text}` is no kind of fault"))?;
    let probability = fields.next().and_then(|p| p.parse().ok()).filter(|p| (0.0..=1.0).contains(p));
    let probability = probability.ok_or_else(|| format!("`{text}` has no probability from 0 to 1"))?;
    let method = match fields.next() {
        None | Some("" | "*") => None,
        Some(method) => Some(method.parse().map_err(|_| format!("`{method}` in `{text}` is no method"))?),
    };
    Ok(Fault { kind, probability, method, path: fields.next().unwrap_or_default().to_owned() })
}
