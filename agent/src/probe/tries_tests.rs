use tokio::net::TcpListener;

use super::*;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);
const PLAIN: HttpDoor<'static> = HttpDoor { path: "/", tls: None };

/// A server that reads `asked` bytes of each connection, then writes `says` and hangs up, or holds the connection.
async fn server(asked: usize, says: &'static [u8], hangs_up: bool) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; asked];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(says).await.unwrap();
            if hangs_up {
                stream.shutdown().await.unwrap();
                // Closed with something unread it would reset what was said.
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
            } else {
                held.push(stream);
            }
        }
    });
    Place { host: "127.0.0.1".into(), port }
}

async fn tried(kind: DoorKind, asked: usize, says: &'static [u8]) -> Result<(), String> {
    let place = server(asked, says, true).await;
    door(kind, &place, PLAIN, LONG).await.map_err(|error| error.to_string().replace(&place.to_string(), "it"))
}

fn no(why: &str) -> Result<(), String> {
    Err(why.to_owned())
}

#[tokio::test]
async fn an_ssh_server_shows_its_banner_perhaps_after_some_lines() {
    assert_eq!(tried(DoorKind::Ssh, 0, b"SSH-2.0-OpenSSH_9.6\r\n").await, Ok(()));
    assert_eq!(tried(DoorKind::Ssh, 0, b"Welcome\r\nto us\r\nSSH-2.0-x\n").await, Ok(()));
    for says in [&b""[..], b"SSH-2.0-half", b"220 smtp\r\n", b"Exceeded MaxStartups\r\n"] {
        assert_eq!(tried(DoorKind::Ssh, 0, says).await, no("it sent no SSH banner"), "{says:?}");
    }
}

#[tokio::test]
async fn an_rdp_server_confirms_an_x224_connection() {
    let confirm = b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x12\x34\x00\x02\x00\x08\x00\x02\x00\x00\x00";
    assert_eq!(tried(DoorKind::Rdp, 19, confirm).await, Ok(()));
    let refused = no("it did not confirm an RDP connection");
    assert_eq!(tried(DoorKind::Rdp, 19, b"\x03\x00\x00\x0b\x06\x80\x00\x00\x00\x00\x00").await, refused);
    assert_eq!(tried(DoorKind::Rdp, 19, b"SSH-2.0-x\r\n").await, refused);
    assert_eq!(tried(DoorKind::Rdp, 19, b"").await, no("it hung up on an RDP connection"));
}

#[tokio::test]
async fn an_http_server_answers_with_a_status_below_500() {
    for says in [&b"HTTP/1.1 200 OK\r\n\r\n"[..], b"HTTP/1.0 401\r\n", b"HTTP/1.1 404 Not Found\r\n"] {
        assert_eq!(tried(DoorKind::Http, 60, says).await, Ok(()), "{says:?}");
    }
    assert_eq!(
        tried(DoorKind::Http, 60, b"HTTP/1.1 503 x\r\n").await,
        no("it answered with HTTP status 503")
    );
    for says in [&b""[..], b"HTTP/2 200\r\n", b"HTTP/1.1 2000 x\r\n", b"\xff\xfe\r\n"] {
        assert_eq!(tried(DoorKind::Http, 60, says).await, no("it did not answer in HTTP"), "{says:?}");
    }
}

#[tokio::test]
async fn a_page_with_a_status_of_400_is_a_failed_probe() {
    let place = server(60, b"HTTP/1.1 404 Not Found\r\n", true).await;
    let url = HttpUrl { is_secure: false, place, path: "/".into() };
    let error = page(&url, None, LONG).await.unwrap_err().to_string();
    assert!(error.ends_with("answered with HTTP status 404"), "{error}");
}

#[tokio::test]
async fn a_door_that_accepts_and_says_nothing_is_shut_unless_that_is_all_that_is_asked() {
    let silent = server(0, b"", false).await;
    assert!(door(DoorKind::Tcp, &silent, PLAIN, LONG).await.is_ok());
    for kind in [DoorKind::Ssh, DoorKind::Rdp, DoorKind::Http] {
        let error = door(kind, &silent, PLAIN, SHORT).await.unwrap_err().to_string();
        assert!(error.ends_with("did not answer within 200 ms"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_never_stops_talking_is_left_after_some_kilobytes() {
    let place = server(0, &[b'x'; 100_000], false).await;
    let error = door(DoorKind::Ssh, &place, PLAIN, LONG).await.unwrap_err().to_string();
    assert!(error.ends_with("sent no SSH banner"), "{error}");
}

#[tokio::test]
async fn nobody_behind_the_door_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = Place { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    drop(listener);
    let error = door(DoorKind::Tcp, &place, PLAIN, LONG).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot connect to {place}: ")), "{error}");
}

#[test]
fn places_and_pages_are_read_as_people_write_them() {
    let place = |host: &str, port| Ok(Place { host: host.into(), port });
    assert_eq!(Place::parse("nas.example:2049"), place("nas.example", 2049));
    assert_eq!(Place::parse("[2001:db8::1]:22"), place("2001:db8::1", 22));
    assert_eq!(Place::parse("[::1]:22").unwrap().to_string(), "[::1]:22");
    for wrong in ["", "nas", "nas:", "nas:0", "nas:65536", ":22", "::1:22", "[::1:22", "a b:1", "a/b:1"] {
        assert!(Place::parse(wrong).is_err(), "{wrong:?}");
    }
    let url = |is_secure, host: &str, port, path: &str| {
        Ok(HttpUrl { is_secure, place: Place { host: host.into(), port }, path: path.into() })
    };
    assert_eq!(HttpUrl::parse("http://a.example"), url(false, "a.example", 80, "/"));
    assert_eq!(HttpUrl::parse("https://[::1]/x?y=z"), url(true, "::1", 443, "/x?y=z"));
    assert_eq!(HttpUrl::parse("http://[::1]:8080/"), url(false, "::1", 8080, "/"));
    for wrong in ["a.example", "ftp://a/", "http://", "http:///x", "http://a/b c", "http://a/\r\nX: y"] {
        assert!(HttpUrl::parse(wrong).is_err(), "{wrong:?}");
    }
}
