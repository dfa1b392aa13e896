//! What programs, administrators, commands and doors say.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

use super::{Machine, Seen, Target, check_refusal, joined, parts, text};
use crate::hooks::{HookKind, Said, understand};
use crate::inventory::understood;
use crate::local::{Answer, MAX_REQUEST_BYTES, Request};
use crate::printable::told;
use crate::probe::tries::{Get, Place, ssh_banner, x224_confirm};
use crate::program::Finished;
use crate::sample::nologin;

const MOST_BYTES: usize = 64 * 1024;

const HOOKS: [HookKind; 5] =
    [HookKind::Readiness, HookKind::WarmUp, HookKind::Busy, HookKind::Availability, HookKind::ReplicaLag];

pub(super) fn hooks() -> Target {
    let corpus: [&[u8]; 9] = [
        b"up\n",
        b"\n\nDOWN # the database is gone\nmore",
        b"maint until noon\r\n",
        b"drain\n",
        b"failed caches are cold",
        b"busy",
        b"83.5 domino",
        b"12.5",
        b"none\n",
    ];
    Target {
        name: "hooks",
        corpus: corpus.map(<[u8]>::to_vec).to_vec(),
        words: &[
            b"up", b"ready", b"down", b"maint", b"drain", b"busy", b" ", b"#", b"\n", b"s", b"ms", b"%",
            b"none",
        ],
        most_bytes: MOST_BYTES,
        feed: Box::new(|bytes| {
            let mut said = Vec::new();
            let mut refused = None;
            for (kind, code) in HOOKS.into_iter().flat_map(|kind| [(kind, 0), (kind, 2)]) {
                let finished = Finished { status: ExitStatus::from_raw(code << 8), output: bytes.to_vec() };
                match understand(kind, &finished) {
                    Ok(understood) => {
                        check_said(kind, understood.as_ref(), code == 0);
                        said.push((kind.as_str(), code, understood.as_ref().map(std::mem::discriminant)));
                    }
                    Err(why) => check_refusal(refused.insert(why)),
                }
            }
            match refused {
                Some(why) if said.is_empty() => Seen::refused(&why),
                _ => Seen::taken(said),
            }
        }),
    }
}

fn check_said(kind: HookKind, said: Option<&Said>, succeeded: bool) {
    let is_for = match said {
        None | Some(Said::Ready) => {
            assert!(succeeded, "a program that failed opens nothing: {kind:?} {said:?}");
            true
        }
        Some(Said::NotReady(why)) => {
            check_reason(why);
            matches!(kind, HookKind::Readiness | HookKind::WarmUp)
        }
        Some(Said::Drain(why)) => {
            check_reason(why);
            kind == HookKind::Readiness
        }
        Some(Said::Busy) => kind == HookKind::Busy,
        Some(Said::Index { index, source }) => {
            check_reason(source);
            assert!((0.0..=100.0).contains(&index.get()));
            kind == HookKind::Availability
        }
        Some(Said::Lag(_)) => kind == HookKind::ReplicaLag,
        Some(Said::NoValue) => matches!(kind, HookKind::Availability | HookKind::ReplicaLag),
    };
    assert!(is_for, "{kind:?} {said:?}");
}

fn check_reason(reason: &str) {
    assert!(reason.chars().count() <= 200 && !reason.chars().any(char::is_control), "{reason:?}");
}

pub(super) fn nologin() -> Target {
    let machine = Machine::new();
    Target {
        name: "nologin",
        corpus: vec![
            b"\n\n  Maintenance until noon.\nmore\n".to_vec(),
            b"".to_vec(),
            b"\xff\xfe\x1b[31m".to_vec(),
        ],
        words: &[b"\n", b" ", b"System is going down."],
        most_bytes: MOST_BYTES,
        feed: Box::new(move |bytes| {
            machine.set("run/nologin", Some(bytes));
            let reason =
                nologin::read(machine.root()).unwrap().expect("the file is there, so nobody may log in");
            assert!(
                !reason.is_empty() && reason.len() <= 1024 && !reason.chars().any(char::is_control),
                "{reason:?}"
            );
            Seen::taken((reason == "/run/nologin exists", reason.len().checked_ilog10()))
        }),
    }
}

pub(super) fn listing() -> Target {
    let corpus: [&[u8]; 4] = [
        br#"{"resource":"mail/crm.nsf","path":"/data/crm.nsf","title":"CRM","lag_s":12.5}

{"resource":"wiki","lag_s":900}
{"resource":"atlas"}"#,
        b"{\"resource\":\"a\"}\n{}\n",
        b"",
        b"\n \n",
    ];
    Target {
        name: "listing_program",
        corpus: corpus.map(<[u8]>::to_vec).to_vec(),
        words: &[
            b"\"resource\":",
            b"\"path\":",
            b"\"title\":",
            b"\"lag_s\":",
            b"{",
            b"}",
            b",",
            b"\"\"",
            b"null",
            b"\\u0000",
            b"\n",
        ],
        most_bytes: 16 * MOST_BYTES,
        feed: Box::new(|bytes| {
            let (replicas, lag, others) = match understood(bytes) {
                Ok(listed) => listed,
                Err(why) => return Seen::refused(&told(Some(why)).unwrap()),
            };
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
            assert_eq!(replicas.len() + others, lines.count());
            let is_sound = |text: &str| text.len() <= 1024 && !text.chars().any(char::is_control);
            for replica in &replicas {
                let id = replica.resource_id.as_str();
                assert!(!id.is_empty() && is_sound(id), "{id:?}");
                assert!(replica.path.iter().chain(&replica.title).all(|text| is_sound(text)), "{replica:?}");
            }
            Seen::taken((replicas.len().min(4), others.min(4), lag.map(|lag| lag.as_secs().checked_ilog10())))
        }),
    }
}

/// What the local socket takes, and what a command takes of an agent's answer.
pub(super) fn requests() -> Target {
    let corpus: [&[u8]; 6] = [
        br#"{"command":"status"}"#,
        br#"{"command":"undrain"}"#,
        br#"{"command":"drain","mode":"persistent","reason":"disks","no_reconnect":true}"#,
        br#"{"status":{"load":{"users":3}}}"#,
        br#"{"drained":{"mode":"until_restart","reason":"x","author":"root","no_reconnect":false}}"#,
        br#"{"error":"the host does not answer"}"#,
    ];
    Target {
        name: "requests",
        corpus: corpus.map(<[u8]>::to_vec).to_vec(),
        words: &[
            b"\"command\":",
            b"\"drain\"",
            b"\"status\"",
            b"\"mode\":",
            b"\"reason\":",
            b"{",
            b"}",
            b"[",
            b",",
            b"null",
            b"true",
            b"\"drained\":",
            b"\"until_restart\"",
            b"\\u0000",
            b"\\ud800",
        ],
        most_bytes: MAX_REQUEST_BYTES,
        feed: Box::new(|bytes| match serde_json::from_slice::<Request>(bytes) {
            Ok(request) => {
                let again = serde_json::to_vec(&request).unwrap();
                assert_eq!(serde_json::from_slice::<Request>(&again).unwrap(), request);
                Seen::taken(std::mem::discriminant(&request))
            }
            Err(error) => match serde_json::from_slice::<Answer>(bytes) {
                Ok(answer) => {
                    let again = serde_json::to_vec(&answer).unwrap();
                    assert_eq!(serde_json::from_slice::<Answer>(&again).unwrap(), answer);
                    Seen::taken(std::mem::discriminant(&answer))
                }
                Err(_) => Seen::refused(&error.classify_as_word()),
            },
        }),
    }
}

/// Errors of the JSON reader hold parts of the input, which the local socket gives back only to who sent them.
trait Word {
    fn classify_as_word(&self) -> String;
}

impl Word for serde_json::Error {
    fn classify_as_word(&self) -> String {
        format!("{:?}", self.classify())
    }
}

/// Longest answer of a door that is read whole, whatever it is cut into on the way.
const DOOR_BYTES: usize = 8192;

pub(super) fn doors() -> Target {
    let corpus: [&[u8]; 6] = [
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"Welcome\r\nSSH-1.99-x\n",
        b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x12\x34\x00\x02\x00\x08\x00\x02\x00\x00\x00",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 404 Not Found\n",
        b"HTTP/1.1 401\n",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    Target {
        name: "doors",
        corpus: corpus.map(<[u8]>::to_vec).to_vec(),
        words: &[
            b"SSH-",
            b"HTTP/1.",
            b"HTTP/2 ",
            b" 200 ",
            b" 500 ",
            b"\r\n",
            b"\n",
            b"\x03\x00",
            b"\xd0",
            b"\xe0",
        ],
        most_bytes: DOOR_BYTES,
        feed: Box::new(move |bytes| {
            let place = Place { host: "door.example".into(), port: 22 };
            let first_line = text(bytes.split(|byte| *byte == b'\n').next().unwrap_or_default());
            let ssh = said(&runtime, bytes, async |stream| ssh_banner(&place, stream).await);
            let whole_lines =
                bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
            assert_eq!(ssh.is_ok(), whole_lines.into_iter().any(|line| line.starts_with(b"SSH-")));
            let rdp = said(&runtime, bytes, async |stream| x224_confirm(&place, stream).await);
            assert_eq!(rdp.is_ok(), bytes.len() >= 6 && bytes[0] == 3 && bytes[5] >> 4 == 0xd);
            let get = Get { place: &place, called: &place, path: "/", highest: 499 };
            let http = said(&runtime, bytes, async |stream| get.from(stream).await);
            let status = first_line.split_whitespace().nth(1).and_then(|word| word.parse::<u16>().ok());
            let is_http = first_line.starts_with("HTTP/1.") && status.is_some_and(|status| status < 500);
            assert!(http.is_err() || is_http, "{first_line:?}");
            let opened = [ssh, rdp, http].map(|said| said.inspect_err(|why| check_refusal(why)).is_ok());
            if opened == [false; 3] {
                Seen::refused(&"closed")
            } else {
                Seen::taken((opened, status.map(|n| n / 100)))
            }
        }),
    }
}

/// How a try ends when the door says this and no more.
fn said<E: std::error::Error>(
    runtime: &Runtime,
    bytes: &[u8],
    attempt: impl AsyncFnOnce(&mut tokio::io::DuplexStream) -> Result<(), E>,
) -> Result<(), String> {
    runtime.block_on(async {
        let (mut ours, mut theirs) = tokio::io::duplex(2 * DOOR_BYTES);
        theirs.write_all(bytes).await.unwrap();
        theirs.shutdown().await.unwrap();
        attempt(&mut ours).await.map_err(|error| error.to_string())
    })
}

/// Two inputs in one are no more than the first and the second.
#[test]
fn an_input_falls_into_its_parts() {
    let input = joined(&[b"a", b"", b"c"]);
    assert_eq!(parts::<3>(&input), [&b"a"[..], b"", b"c"]);
    assert_eq!(parts::<2>(b"a"), [&b"a"[..], b""]);
}
