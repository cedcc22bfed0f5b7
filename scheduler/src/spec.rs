//! What a task was called with, for as long as it may have to run again.
//!
//! A driver calls the same function with the same wishes again and again: the tasks of a job share what is equal, and each
//! keeps its arguments only.

use std::{collections::VecDeque, sync::Arc};

use fanfold_protocol::{Digest, call::Terms, value::Value};

/// What a task was called with.
#[derive(Debug)]
pub(crate) struct Spec {
    pub args: Box<[Value]>,
    pub terms: Arc<Terms>,
}

impl Spec {
    /// Whether it is a call like `args` with `terms`, as far as a replay has to repeat it.
    pub fn is_like(&self, args: &[Value], terms: &Terms) -> bool {
        let known = &*self.terms;
        (known.version, &known.entry, &*self.args, known.outputs, known.generator)
            == (terms.version, &terms.entry, args, terms.outputs, terms.generator)
    }

    /// See [`Terms::fingerprint`].
    pub fn fingerprint(&self) -> Digest {
        self.terms.fingerprint(&self.args)
    }
}

/// Terms that a job used last, the latest in front.
#[derive(Debug, Default)]
pub(crate) struct Shared(VecDeque<Arc<Terms>>);

impl Shared {
    /// So many are looked through: a driver goes round among a few entries, or has as many terms as calls (each with a
    /// deadline of its own), and then looking is in vain.
    const KEPT_MAX: usize = 8;

    /// `terms`, as other tasks have them, if any has.
    pub fn share(&mut self, terms: Terms) -> Arc<Terms> {
        if let Some(known) = self.0.iter().find(|known| ***known == terms) {
            return Arc::clone(known);
        }
        self.0.truncate(Self::KEPT_MAX - 1);
        let terms = Arc::new(terms);
        self.0.push_front(Arc::clone(&terms));
        terms
    }
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::call::{Durability, Placement};

    use super::*;

    fn terms(entry: usize) -> Terms {
        Terms {
            version: Digest([7; 32]),
            entry: entry.to_string(),
            outputs: 1,
            generator: false,
            cpu_millis: 1000,
            memory: 1,
            memory_max: 1,
            gpu: 0,
            custom: Default::default(),
            placement: Placement::Local,
            attempts: 3,
            backoff_ms: 1000,
            timeout_ms: 30_000,
            deadline_at_ms: None,
            deterministic: true,
            durability: Durability::Lazy,
            memo: false,
        }
    }

    #[test]
    fn equal_terms_are_kept_once_and_many_different_ones_are_not_kept() {
        let mut shared = Shared::default();
        let first = shared.share(terms(0));
        shared.share(terms(1));
        assert!(Arc::ptr_eq(&first, &shared.share(terms(0))));
        (2..100).for_each(|n| drop(shared.share(terms(n))));
        assert_eq!(shared.0.len(), Shared::KEPT_MAX);
        assert!(!Arc::ptr_eq(&first, &shared.share(terms(0))), "it is forgotten, and equal all the same");
    }
}
