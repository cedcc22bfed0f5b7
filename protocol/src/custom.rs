//! Resources that operators name: so many seats of a licence, so many of a device, the right to reach something.
//!
//! An executor offers amounts of them, a function or a call asks for some, and the scheduler counts. What they stand for
//! only people know.

use std::collections::BTreeMap;

use crate::limit;

/// Amounts by name.
pub type Custom = BTreeMap<String, u32>;

/// Names that mean something already.
const TAKEN: [&str; 4] = ["cpu", "memory", "memory-max", "gpu"];

/// Why these cannot be amounts of custom resources, if they cannot.
pub fn custom_fault(custom: &Custom) -> Option<String> {
    if custom.len() > limit::CUSTOM_RESOURCES_MAX {
        let max = limit::CUSTOM_RESOURCES_MAX;
        return Some(format!("{} custom resources: name at most {max}", custom.len()));
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let good =
        |name: &str| (1..=32).contains(&name.len()) && name.bytes().all(plain) && !TAKEN.contains(&name);
    let bad = custom.keys().find(|name| !good(name))?;
    let shown: String = bad.chars().take(80).flat_map(char::escape_debug).collect();
    Some(format!(
        "`{shown}` is no name of a custom resource: use 1 to 32 of a-z, 0-9 and -, and none of {}",
        TAKEN.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_few() {
        let of = |names: &[&str]| custom_fault(&names.iter().map(|name| ((*name).to_owned(), 1)).collect());
        assert_eq!(of(&["licence", "tape-drive", "a1"]), None);
        for bad in ["", "Licence", "a b", "gpu", &"x".repeat(33)] {
            assert!(of(&[bad]).is_some(), "{bad}");
        }
        let many: Vec<String> = (0..9).map(|n| format!("r{n}")).collect();
        assert!(of(&many.iter().map(String::as_str).collect::<Vec<_>>()).is_some());
    }
}
