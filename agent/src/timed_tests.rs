use super::*;

fn arguments(folder: &std::path::Path, udp: SocketAddr, command: &[&str]) -> TimeArguments {
    TimeArguments {
        name: "nightly".into(),
        socket: folder.join("statsd.sock"),
        udp,
        command: command.iter().map(OsString::from).collect(),
    }
}

fn received(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 200];
    socket.set_nonblocking(true).unwrap();
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[test]
fn the_exit_code_is_the_commands_and_a_failure_is_told_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(folder.path().join("statsd.sock")).unwrap();
    for (script, code, failed) in [("exit 0", 0, false), ("exit 3", 3, true), ("kill -TERM $$", 143, true)] {
        let run = run(&arguments(folder.path(), DEFAULT_UDP, &["/bin/sh", "-c", script]));
        assert_eq!(format!("{run:?}"), format!("{:?}", ExitCode::from(code)), "{script}");
        let line = received(&socket);
        assert!(line.starts_with("nightly:"), "{line}");
        assert_eq!(line.ends_with("|ms|#outcome:failed"), failed, "{line}");
        assert_eq!(line.ends_with("|ms"), !failed, "{line}");
    }
}

#[test]
fn a_command_that_is_not_there_or_cannot_run_has_a_shells_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let _socket = UnixDatagram::bind(folder.path().join("statsd.sock")).unwrap();
    for (command, code) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        let run = run(&arguments(folder.path(), DEFAULT_UDP, &[command]));
        assert_eq!(format!("{run:?}"), format!("{:?}", ExitCode::from(code)), "{command}");
    }
}

#[test]
fn without_the_socket_the_timing_goes_over_udp_and_without_both_nothing_fails() {
    let folder = tempfile::tempdir().unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let told = arguments(folder.path(), address, &["/bin/true"]);
    tell(&told, "q:1|ms").unwrap();
    let mut buffer = [0; 100];
    assert_eq!(server.recv(&mut buffer).unwrap(), 6);
    drop(server);
    assert!(tell(&told, "q:1|ms").is_err(), "nobody listens");
    assert_eq!(format!("{:?}", run(&told)), format!("{:?}", ExitCode::SUCCESS));
}

#[test]
fn a_time_is_told_in_milliseconds_to_the_microsecond() {
    assert_eq!(line("q", Duration::from_micros(1500), true), "q:1.500|ms");
    assert_eq!(line("q", Duration::from_secs(90), false), "q:90000.000|ms|#outcome:failed");
    assert_eq!(line("q", Duration::ZERO, true), "q:0.001|ms", "never a zero, which would be refused");
    assert!(operation("a b").is_err() && operation("a.b-c_9").is_ok());
}
