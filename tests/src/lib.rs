//! What the whole-system tests share.

pub mod platform;
pub mod sim;
