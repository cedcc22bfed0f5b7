//! Attempts against a scripted owner.
