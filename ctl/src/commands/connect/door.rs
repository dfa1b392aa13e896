//! Does this host let us in?
//!
//! A door that accepts is not yet a server: the kernel accepts for a process that hangs. Where the server speaks first,
//! as in ssh, only its first byte is an answer. That byte stays where it is, for the relay.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use usher_proto::v1::FailoverCause;

use crate::output::text::{clean, duration};

/// Where to knock, and how long to wait.
#[derive(Debug)]
pub(super) struct Door {
    /// Name or address.
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) accepts_within: Duration,
    /// Absent: the client speaks first, and a door that accepts is open.
    pub(super) speaks_within: Option<Duration>,
}

/// Why not.
#[derive(Debug)]
pub(super) struct Fault {
    /// What the farm is told.
    pub(super) cause: FailoverCause,
    /// For people, with the address.
    pub(super) text: String,
}

impl Fault {
    /// The host advertises nothing that could be connected to.
    pub(super) fn no_endpoint(kind: Option<&str>) -> Self {
        let kind = kind.map_or_else(String::new, |kind| format!(" of kind {}", clean(kind)));
        Self { cause: FailoverCause::Other, text: format!("it has no endpoint{kind}") }
    }
}

impl Door {
    /// The connection, with nothing read of it.
    pub(super) async fn open(&self) -> Result<TcpStream, Fault> {
        let connecting = TcpStream::connect((self.address.as_str(), self.port));
        let stream = match timeout(self.accepts_within, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.fault(cause_of(&error), &error.to_string())),
            Err(_) => return Err(self.silent("does not accept", self.accepts_within)),
        };
        let Some(speaks_within) = self.speaks_within else { return Ok(stream) };
        match timeout(speaks_within, stream.peek(&mut [0])).await {
            Ok(Ok(0)) => Err(self.fault(FailoverCause::Refused, "closes without a word")),
            Ok(Ok(_)) => Ok(stream),
            Ok(Err(error)) => Err(self.fault(cause_of(&error), &error.to_string())),
            Err(_) => Err(self.silent("accepts and says nothing", speaks_within)),
        }
    }

    fn silent(&self, what: &str, within: Duration) -> Fault {
        self.fault(FailoverCause::Unreachable, &format!("{what} within {}", duration(within)))
    }

    fn fault(&self, cause: FailoverCause, why: &str) -> Fault {
        // An IPv6 address reads as one only in brackets.
        let address = clean(&self.address);
        let address = if address.contains(':') { format!("[{address}]") } else { address };
        Fault { cause, text: format!("{address}:{}: {}", self.port, clean(why)) }
    }
}

/// Whoever answers with a reset is there and does not want us.
fn cause_of(error: &io::Error) -> FailoverCause {
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted => FailoverCause::Refused,
        _ => FailoverCause::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn listening() -> (TcpListener, Door) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door = Door {
            address: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            accepts_within: Duration::from_secs(5),
            speaks_within: Some(Duration::from_millis(100)),
        };
        (listener, door)
    }

    #[tokio::test]
    async fn the_first_byte_is_seen_and_left_for_the_relay() {
        let (listener, door) = listening().await;
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"SSH-2.0-x").await.unwrap();
        });
        let mut stream = Door { speaks_within: Some(Duration::from_secs(5)), ..door }.open().await.unwrap();
        serving.await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "SSH-2.0-x");
    }

    #[tokio::test]
    async fn a_door_that_is_closed_hangs_or_hangs_up_is_a_fault_of_its_own_kind() {
        let (listener, door) = listening().await;
        let hung = door.open().await.unwrap_err();
        assert_eq!(hung.cause, FailoverCause::Unreachable);
        assert!(hung.text.contains(": accepts and says nothing within "), "{}", hung.text);
        Door { speaks_within: None, ..door }.open().await.unwrap();

        let (other, door) = listening().await;
        let closing = tokio::spawn(async move { drop(other.accept().await.unwrap()) });
        let closed = Door { speaks_within: Some(Duration::from_secs(5)), ..door }.open().await.unwrap_err();
        closing.await.unwrap();
        assert_eq!(closed.cause, FailoverCause::Refused);

        let (gone, door) = listening().await;
        drop((gone, listener));
        let refused = door.open().await.unwrap_err();
        assert_eq!(refused.cause, FailoverCause::Refused);
        assert!(refused.text.contains("refused"), "{}", refused.text);
    }

    #[test]
    fn an_address_of_six_is_shown_in_brackets() {
        let door = Door {
            address: "2001:db8::1".to_owned(),
            port: 22,
            accepts_within: Duration::ZERO,
            speaks_within: None,
        };
        assert_eq!(door.fault(FailoverCause::Other, "x").text, "[2001:db8::1]:22: x");
    }
}
