//! How do bytes come in and go out, and who is on the other end?
//!
//! One way in for every server (`incoming`): an accept loop of our own, plain or mutual TLS, that hands
//! over connections which have already proved who they are. One way out for every client (`dial`):
//! the rules for where a connection without TLS may go are the same on both sides, so they stand here.
//! Listener and connector are arguments, so the same programs run over TCP or a simulated network.

mod accept;
mod calm;
mod conn;
mod dial;
mod incoming;
mod open;

use std::net::{IpAddr, SocketAddr};

#[cfg(test)]
mod tests_incoming;
#[cfg(test)]
mod tests_manners;

pub use accept::{Accept, bind};
pub use conn::{Conn, PeerInfo};
pub use dial::{
    CONNECTION_WINDOW_BYTES, ConnectError, DEFAULT_PORT, Dial, Dialing, NetworkDial, PLAIN_HINT,
    STREAM_WINDOW_BYTES, TargetError, Timeouts, check_target, connect,
};
pub use incoming::{Incoming, Limits};
pub use open::OpenError;

/// A listen address that needs TLS and has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot listen on {addr} without TLS: only loopback may be plain; \
     set tls.cert, tls.key and tls.ca, or listen on 127.0.0.1 or [::1]"
)]
pub struct ListenRefused {
    addr: SocketAddr,
}

/// Whether a server may listen there: loopback may be plain, any other address needs TLS.
///
/// # Errors
/// When it may not.
pub fn check_listen(addr: &SocketAddr, tls: bool) -> Result<(), ListenRefused> {
    if tls || is_loopback(addr.ip()) { Ok(()) } else { Err(ListenRefused { addr: *addr }) }
}

/// Whether an address is this machine itself, IPv4 written as IPv6 (`::ffff:127.0.0.1`) included.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_may_be_plain() {
        for (addr, plain) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            let addr = addr.parse().unwrap();
            assert_eq!(check_listen(&addr, false).is_ok(), plain, "{addr}");
            assert_eq!(check_listen(&addr, true), Ok(()));
        }
        let error = check_listen(&"0.0.0.0:7443".parse().unwrap(), false).unwrap_err().to_string();
        assert!(error.contains("0.0.0.0:7443 without TLS"), "{error}");
    }
}
