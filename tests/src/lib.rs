//! What the whole-system tests share.

pub mod certificates;
pub mod cluster;
pub mod history;
pub mod jobs;
pub mod moto;
pub mod picture;
pub mod platform;
pub mod proxy;
pub mod redis;
pub mod rpc;
pub mod s3;
pub mod signal;
pub mod sim;
pub mod triggers;
pub mod wordcount;
