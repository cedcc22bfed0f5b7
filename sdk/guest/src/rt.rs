//! What the macros' expansions use. Not for people: it may change at any time.

use crate::{Error, FromArg, Inputs, Result, raw::Value};
pub use crate::{
    bindings,
    call::Entry,
    error::Failure,
    output::{Forward, IntoOutputs},
};

/// The arguments of one call, taken one after the other.
pub struct Args {
    entry: &'static str,
    values: std::vec::IntoIter<Value>,
    taken: usize,
}

impl Args {
    /// For an entry that takes exactly `count`, or at least `count` if it is `variadic`.
    ///
    /// # Errors
    /// `invalid` if there are more or fewer. The main entry may leave its only argument, the request's body, alone.
    pub fn new(entry: &'static str, values: Vec<Value>, count: usize, variadic: bool) -> Result<Self> {
        let given = values.len();
        let ignored = entry.is_empty() && count == 0 && given == 1;
        if given < count || (given > count && !variadic && !ignored) {
            let least = if variadic { "at least " } else { "" };
            return Err(Error::invalid(format!(
                "{} takes {least}{count} arguments, not {given}",
                entry_name(entry)
            )));
        }
        Ok(Self { entry, values: values.into_iter(), taken: 0 })
    }

    /// The next one.
    ///
    /// # Errors
    /// `invalid` with the entry and the argument's name if it is no `T`.
    pub fn next<T: FromArg>(&mut self, name: &'static str) -> Result<T> {
        let number = self.taken;
        self.taken += 1;
        let value = self.values.next().ok_or_else(|| Error::invalid("too few arguments"))?;
        T::decode(value)
            .map_err(|e| e.context(format_args!("{}, argument {number} `{name}`", entry_name(self.entry))))
    }

    /// All that are left.
    ///
    /// # Errors
    /// As [`Args::next`].
    pub fn rest<T: FromArg>(&mut self, name: &'static str) -> Result<Inputs<T>> {
        let count = self.values.len();
        (0..count).map(|_| self.next(name)).collect::<Result<_>>().map(Inputs)
    }
}

fn entry_name(entry: &str) -> String {
    if entry.is_empty() { "the main entry".into() } else { format!("entry `{entry}`") }
}

/// An entry without the label that may follow it.
pub fn unlabelled(entry: &str) -> &str {
    entry.split_once('#').map_or(entry, |(entry, _)| entry)
}

/// The answer to an entry that the component does not have.
pub fn unknown_entry(entry: &str) -> Result<Vec<Value>> {
    Err(Error::new(crate::ErrorKind::NotFound, format!("this component has no entry `{entry}`")))
}

/// Exports a type as the component's handler.
pub use crate::bindings::__export_handler as export;
