//! sdk/client
