//! Finding a version by what a caller wrote, and saying what was meant where there is none.

use std::sync::Arc;

use fanfold_protocol::{Code, Digest, Error, FunctionName, function::FunctionVersion};

use super::catalog::{Callable, Catalog, Function, LATEST};

/// Leading digits of a version that may stand for it.
pub(super) const DIGITS_MIN: usize = 6;
/// Functions searched for a similar name, and names offered.
const SEARCHED_MAX: usize = 10_000;
const OFFERED_MAX: usize = 3;

impl Catalog {
    /// See [`super::Registry::callable`].
    ///
    /// # Errors
    /// `not-found` / `function` or `version`, `invalid` / `name`.
    pub fn callable(&self, name: &str, selector: Option<&str>) -> Result<Arc<Callable>, Error> {
        let Some(function) = self.functions.get(name) else { return Err(self.no_function(name)) };
        function.callable(selector)
    }

    /// A function by name.
    ///
    /// # Errors
    /// `not-found` / `function`, `invalid` / `name`.
    pub fn function(&self, name: &str) -> Result<Arc<Function>, Error> {
        self.functions.get(name).cloned().ok_or_else(|| self.no_function(name))
    }

    /// Functions in the order of their names.
    pub fn functions(&self) -> Vec<Arc<Function>> {
        let mut functions: Vec<_> = self.functions.values().cloned().collect();
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        functions
    }

    /// A version by digest, of a removed function too.
    pub fn version(&self, version: &Digest) -> Option<Arc<FunctionVersion>> {
        self.versions.get(version).cloned()
    }

    fn no_function(&self, name: &str) -> Error {
        let name: FunctionName = match name.parse() {
            Ok(name) => name,
            Err(error) => return error,
        };
        let close = self.close_names(name.as_str());
        let hint = match close.as_slice() {
            [] => String::from("deploy it with PUT /v1/functions/{name}"),
            names => format!("did you mean {}", names.join(", ")),
        };
        Error::not_found(Code::Function, format!("there is no function `{name}`: {hint}"))
    }

    fn close_names(&self, wanted: &str) -> Vec<String> {
        let mut close: Vec<_> = self
            .functions
            .keys()
            .take(SEARCHED_MAX)
            .filter_map(|name| {
                let edits = distance(wanted, name.as_str());
                (edits <= 2 || name.as_str().starts_with(wanted)).then_some((edits, name))
            })
            .collect();
        close.sort();
        close.into_iter().take(OFFERED_MAX).map(|(_, name)| format!("`{name}`")).collect()
    }
}

impl Function {
    /// The version that `selector` means: an alias, or leading digits of a version.
    ///
    /// # Errors
    /// `not-found` / `version`.
    pub fn callable(&self, selector: Option<&str>) -> Result<Arc<Callable>, Error> {
        let selector = selector.unwrap_or(LATEST);
        if let Some(callable) = self.aliases.get(selector).and_then(super::Alias::pick) {
            return Ok(Arc::clone(callable));
        }
        self.by_digits(selector)
    }

    /// The version that starts with `digits`.
    ///
    /// # Errors
    /// `not-found` / `version` where none does, or several do.
    pub fn by_digits(&self, digits: &str) -> Result<Arc<Callable>, Error> {
        let mut found =
            self.versions.iter().filter(|c| digits.len() >= DIGITS_MIN && starts(&c.version, digits));
        let none =
            |why: String| Error::not_found(Code::Version, format!("function `{}` has {why}", self.name));
        match (found.next(), found.next()) {
            (Some(callable), None) => Ok(Arc::clone(callable)),
            (Some(_), Some(_)) => {
                Err(none(format!("several versions that start with `{digits}`: give more digits")))
            }
            (None, _) => Err(none(format!(
                "no alias or version `{}`: give one of its aliases ({}) or at least {DIGITS_MIN} digits of a version",
                digits.chars().take(80).collect::<String>().escape_debug(),
                self.aliases.keys().map(FunctionName::as_str).collect::<Vec<_>>().join(", "),
            ))),
        }
    }
}

fn starts(version: &FunctionVersion, digits: &str) -> bool {
    version.version.to_string().starts_with(digits)
}

/// Edits (insert, delete, replace) between two names; names are at most 63 bytes of ASCII.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
