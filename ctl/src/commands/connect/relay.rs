//! How do bytes go both ways, and when is it over?
//!
//! A thread for each direction, with plain reads and writes: no line is waited for, a slow side holds up only the other
//! end of its own direction, and neither standard stream is put into another mode, which whoever shares it would feel.
//!
//! An end goes through as an end and stops that direction only: what the other side still says is carried to its end. So
//! it is over when both directions are; or when the client is gone, then as soon as what it said last is delivered; or
//! when the connection breaks. At a terminal the server's end is enough: a person has nothing to say to nobody.

use std::io::{self, IsTerminal, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_keepalive;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::{Client, Gone};

/// Bytes that are carried at once: four times what a pipe holds by default.
const CARRIED: usize = 256 * 1024;
/// For how long the last words of a client that is gone may take to get through.
const DELIVERY: Duration = Duration::from_secs(1);

/// How it ended.
#[derive(Debug)]
pub(super) enum End {
    /// Both sides said that they are done.
    Clean,
    /// Nobody is left who would read.
    ClientGone,
    /// The connection broke: bytes may be lost.
    Broken(io::Error),
}

#[derive(Debug)]
enum Event {
    /// Standard input has ended and was delivered, or the server takes nothing any more.
    UpEnded,
    /// The server has ended, and all it said is written.
    DownEnded,
    /// Nobody reads standard output.
    Unread,
    /// Reading from the server, or from or to a standard stream, failed.
    Broken(io::Error),
}

/// Relays until it is over. Standard output is closed then.
pub(super) async fn run(stream: tokio::net::TcpStream, client: &mut Client) -> End {
    let (tell, mut events) = mpsc::unbounded_channel();
    if let Err(error) = start(stream, &tell) {
        return End::Broken(error);
    }
    let (mut up_ended, mut down_ended) = (false, false);
    while !(up_ended && down_ended) {
        let event = tokio::select! {
            // This function holds a sender, so there is always a next one.
            Some(event) = events.recv() => event,
            // Whoever reads no more may still have said something.
            Gone = client.gone() => Event::Unread,
            else => return End::Clean,
        };
        match event {
            Event::UpEnded => up_ended = true,
            Event::DownEnded => {
                client.close_stdout();
                down_ended = true;
                if io::stdin().is_terminal() {
                    return End::Clean;
                }
            }
            Event::Unread => {
                if !up_ended {
                    deliver(&mut events).await;
                }
                return End::ClientGone;
            }
            Event::Broken(error) => {
                client.close_stdout();
                return End::Broken(error);
            }
        }
    }
    End::Clean
}

/// Waits for the end of what the client said last.
async fn deliver(events: &mut mpsc::UnboundedReceiver<Event>) {
    let delivered = async {
        while let Some(event) = events.recv().await {
            if matches!(event, Event::UpEnded) {
                return;
            }
        }
    };
    // A server that takes it no more has lost its client anyway.
    let _ = timeout(DELIVERY, delivered).await;
}

fn start(stream: tokio::net::TcpStream, tell: &mpsc::UnboundedSender<Event>) -> io::Result<()> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    // ssh sees a pipe and cannot ask for it: a host that lost its power would never be noticed.
    set_socket_keepalive(&stream, true)?;
    let (from_client, from_server) = (stream.try_clone()?, stream);
    let (up, down) = (tell.clone(), tell.clone());
    // Nobody listens any more when the program ends.
    std::thread::Builder::new().name("up".to_owned()).spawn(move || drop(up.send(carry_up(from_client))))?;
    std::thread::Builder::new()
        .name("down".to_owned())
        .spawn(move || drop(down.send(carry_down(from_server))))?;
    Ok(())
}

fn carry_up(mut server: TcpStream) -> Event {
    let stdin = io::stdin();
    let read = |buffer: &mut [u8]| rustix::io::read(stdin.as_fd(), buffer).map_err(io::Error::from);
    match carry(read, &mut server) {
        // A server that has closed takes nothing more, and what it said last is still on its way down.
        Ok(()) | Err(Broke::Write(_)) => {
            let _ = server.shutdown(Shutdown::Write);
            Event::UpEnded
        }
        Err(Broke::Read(error)) => Event::Broken(error),
    }
}

fn carry_down(mut server: TcpStream) -> Event {
    match carry(|buffer| server.read(buffer), &mut Stdout(io::stdout())) {
        Ok(()) => Event::DownEnded,
        Err(Broke::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Event::Unread,
        Err(Broke::Read(error) | Broke::Write(error)) => Event::Broken(error),
    }
}

/// Standard output without the library's buffer, which waits for the ends of lines.
struct Stdout(io::Stdout);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0.as_fd(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Broke {
    Read(io::Error),
    Write(io::Error),
}

/// Carries bytes until the end of what is read.
fn carry(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>, to: &mut impl Write) -> Result<(), Broke> {
    let mut buffer = vec![0; CARRIED];
    loop {
        match read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count]).map_err(Broke::Write)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Broke::Read(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn bytes_come_through_as_they_are_and_an_interruption_is_no_end() {
        let mut parts = VecDeque::from([
            Ok(b"a\0\xff\n".to_vec()),
            Err(io::ErrorKind::Interrupted),
            Ok(b"no line end".to_vec()),
            Ok(Vec::new()),
        ]);
        let read = |buffer: &mut [u8]| {
            let part = parts.pop_front().unwrap()?;
            buffer[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        };
        let mut carried = Vec::new();
        assert!(carry(read, &mut carried).is_ok());
        assert_eq!(carried, b"a\0\xff\nno line end");
    }

    #[test]
    fn a_side_that_breaks_is_named() {
        let broken = |_: &mut [u8]| Err(io::ErrorKind::ConnectionReset.into());
        assert!(matches!(carry(broken, &mut Vec::new()), Err(Broke::Read(_))));
        let full: &mut [u8] = &mut [0; 2];
        let mut full = full;
        assert!(matches!(carry(|_| Ok(3), &mut full), Err(Broke::Write(_))));
    }
}
