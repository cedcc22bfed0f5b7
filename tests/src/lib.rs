//! What the whole-system tests share.

pub mod certificates;
pub mod cluster;
pub mod platform;
pub mod redis;
pub mod s3;
pub mod sim;
pub mod wordcount;
