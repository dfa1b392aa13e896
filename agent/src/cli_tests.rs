use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Arguments, String> {
    let words = std::iter::once("usher-agent").chain(line.split_whitespace());
    Arguments::try_parse_from(words).map_err(|error| error.to_string())
}

fn modelled(line: &str) -> Result<VirtualOptions, String> {
    parse(line)?.modelled.options().map(|options| options.expect("modelled hosts"))
}

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn flags_win_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "pool = \"desk\"\nzone = \"a\"\n").unwrap();
    let line = format!(
        "--config {} --pool web --coordinators 127.0.0.1:1,127.0.0.1:2 --max-users 7 --report-interval 200ms",
        path.display()
    );
    let loaded = parse(&line).unwrap().settings.load(|_| None).unwrap();
    assert_eq!((loaded.value.pool.as_str(), loaded.value.zone.as_deref()), ("web", Some("a")));
    assert_eq!(loaded.value.coordinators, ["127.0.0.1:1", "127.0.0.1:2"]);
    assert_eq!(loaded.value.host_overrides().max_users.and_then(|limit| limit.finite()), Some(7));
    assert_eq!(loaded.origin("pool").to_string(), "flag --pool");
    assert!(loaded.dump().unwrap().contains("report_interval = \"200ms\"  # flag --report-interval"));
}

#[test]
fn modelled_hosts_are_described_by_flags() {
    let options = modelled(
        "--virtual 3 --virtual-first 4 --virtual-model fixed --virtual-values cpu=35,mem=55,users=10,procs=70 \
         --virtual-values ai-xf=4 --virtual-name s1 --virtual-replica 2:mail/crm:1 --virtual-seed 9",
    )
    .unwrap();
    assert_eq!((options.count, options.first, options.kind, options.seed), (3, 4, ModelKind::Fixed, 9));
    assert_eq!((options.name(0), options.name(1)), ("s1".into(), "virtual-5".into()));
    assert_eq!(options.replicas(1).collect::<Vec<_>>(), ["mail/crm:1"]);
    assert_eq!(options.values(2).expansion_factor, Some(4.0));
    assert!(parse("").unwrap().modelled.options().unwrap().is_none());
}

#[test]
fn wrong_use_is_refused_with_what_is_allowed() {
    for (line, part) in [
        ("--virtual 0", "1..=20000"),
        ("--virtual 2 --virtual-values cpu=1", "fixed"),
        ("--virtual 2 --virtual-model fixed --virtual-values cpu=101", "0..=100"),
        ("--virtual 2 --virtual-replica 3:crm", "there are 2"),
        ("--virtual 2 --virtual-replica crm", "K:RESOURCE"),
        ("--virtual-name a", "--virtual"),
        ("--max-users 0", "unlimited"),
    ] {
        let error = modelled(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn the_file_of_the_environment_is_taken_without_a_flag_and_blamed_by_name() {
    let load = |line: &str, path: &str| {
        let path = path.to_owned();
        parse(line).unwrap().settings.load(|name| (name == "USHER_CONFIG").then(|| path.clone()))
    };
    let missing = load("", "/nonexistent/x").unwrap_err();
    assert!(missing.contains("environment USHER_CONFIG"), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "pool = \"desk\"\n").unwrap();
    let path = path.display().to_string();
    assert_eq!(load("", &path).unwrap().value.pool, "desk");
    assert_eq!(load(&format!("--config {path}"), "/nonexistent/x").unwrap().value.pool, "desk");
    // An empty variable names no file.
    let mut flags = parse("").unwrap().settings;
    flags.config = Some(path.into());
    assert!(flags.load(|name| (name == "USHER_CONFIG").then(String::new)).is_ok());
}
