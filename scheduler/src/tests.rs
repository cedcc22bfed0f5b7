//! What the scheduler does, as scripts for [`crate::harness::check`].

mod backup;
mod failure;
mod members;
mod memo;
mod placement;
mod recovery;
mod references;
