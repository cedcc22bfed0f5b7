//! What the scheduler does, as scripts for [`crate::harness::check`].

mod failure;
mod placement;
mod recovery;
mod references;
