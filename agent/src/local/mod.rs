//! What may somebody on this machine ask of its agent, without any coordinator?
//!
//! How it fares, and to drain the host or to take that back; over a unix socket, one line of JSON each way. Who may
//! connect is said by the socket's owner, group and mode (0660): the agent's own group, and root. Whoever connects is
//! not believed otherwise: a request is short, has a deadline, and only so many are heard at a time.

mod client;
pub mod commands;
mod protocol;
mod server;
mod status;
mod streams;

pub use client::{AskError, ask};
pub use protocol::{Answer, MAX_REQUEST_BYTES, Request};
pub(crate) use server::Subject;
pub use server::{LocalServer, ServeError};
pub(crate) use status::StatusSource;
