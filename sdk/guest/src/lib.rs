//! sdk/guest
