//! The port to serve on.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
};

use super::Check;

pub fn checks(listen: SocketAddr) -> Vec<Check> {
    vec![match TcpListener::bind(listen) {
        Ok(_) => Check::ok("port", format!("{listen} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Check::warn(
            "port",
            format!("{listen} is in use"),
            "a platform may be running already (`fanfold ls`); else start with --listen 127.0.0.1:0",
        ),
        Err(error) => Check::fail("port", format!("{listen}: {error}"), "choose another --listen address"),
    }]
}
