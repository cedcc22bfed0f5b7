//! What the whole-system tests share.

pub mod platform;
pub mod s3;
pub mod sim;
