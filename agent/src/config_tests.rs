use usher_runtime::config::Loader;

use super::*;

fn load(text: &str) -> Result<AgentConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, text).unwrap();
    Loader::new(path).load().map(|loaded| loaded.value).map_err(|errors| errors.to_string())
}

fn refused(text: &str, parts: &[&str]) {
    let error = load(text).unwrap_err();
    for part in parts {
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn nothing_set_is_the_default_and_valid() {
    let config = load("").unwrap();
    assert_eq!(config, AgentConfig::default());
    assert_eq!(config.statsd_socket(), Some("/run/usher/statsd.sock".into()));
    assert_eq!(config.statsd.udp(), Ok(Some(DEFAULT_UDP)));
    assert_eq!(config.host_overrides(), HostOverrides::default());
}

#[test]
fn everything_can_be_set() {
    let config = load(
        r#"
        coordinators = ["127.0.0.1:7443", "localhost"]
        pool = "desk"
        name = "app1.example"
        zone = "a"
        labels = { rack = "7" }
        report_interval = "100ms"
        state_dir = "/s"
        runtime_dir = "/r"
        user_names_key_file = "/etc/usher/names.key"
        mounts = ["/", "/home"]
        root = "/host"
        endpoints = [
            { kind = "ssh", address = "192.0.2.1", port = 22 },
            { kind = "rdp", address = "2001:db8::1", port = 3389 },
        ]
        [latency]
        period = "5m"
        periods = 20
        max_names = 10
        [statsd]
        listen = "none"
        socket = "none"
        [sessions]
        source = "utmp"
        ignore_users = ["probe"]
        [inventory]
        replicas = [{ resource = "crm", path = "/data/crm.db" }]
        [overrides]
        capacity = 2.5
        max_users = 50
        threshold_percent = 30
        range = 8
        [log]
        format = "json"
        filter = "debug"
        "#,
    )
    .unwrap();
    assert_eq!((config.statsd_socket(), config.statsd.udp()), (None, Ok(None)));
    assert_eq!(config.user_names_key_file, Some("/etc/usher/names.key".into()));
    assert_eq!(config.host_overrides().max_users, Some(UserLimit::Users(50)));
    assert_eq!(config.host_overrides().threshold, Percent::new(30.0).ok());
}

#[test]
fn values_outside_their_range_are_refused_with_the_range() {
    refused("report_interval = \"99ms\"", &["report_interval", "100ms", "3600s"]);
    refused("report_interval = \"2h\"", &["report_interval"]);
    refused("[latency]\nperiod = \"6m\"", &["latency.period"]);
    refused("[latency]\nperiods = 0", &["latency.periods", "1..=20"]);
    refused("[overrides]\nmax_users = 0", &["max_users", "unlimited"]);
    refused("[overrides]\ncapacity = 0", &["overrides.capacity"]);
    refused("[overrides]\ncapacity = nan", &["overrides.capacity"]);
    refused("[overrides]\nrange = 31", &["overrides.range", "1..=30"]);
    // case_058: other pages say that it is a window of seconds.
    refused("[overrides]\nrange = 120", &["range = 120", "exponent", "latency.period and latency.periods"]);
    refused("pool = \"a b\"", &["pool"]);
    refused("name = \"<b>\"", &["name"]);
    refused("[statsd]\nlisten = \"8125\"", &["statsd.listen", "127.0.0.1:8125"]);
    refused("[tls]\ncert = \"/c\"", &["tls.key", "tls.ca"]);
    refused(
        "[inventory]\nglobs = [{ pattern = \"relative/*\" }]",
        &["inventory.globs[0].pattern", "absolute"],
    );
    refused("coordinators = [\"c1.example:7443\"]", &["coordinators", "without TLS"]);
}

#[test]
fn a_coordinator_is_named_once_and_its_address_is_judged_with_certificates_too() {
    refused("coordinators = [\"srv:example.org\"]", &["coordinators[0]", "_usher._tcp"]);
    let twice = "coordinators = [\"srv:_usher._tcp.example.org\", \"srv:_Usher._tcp.example.org.\"]";
    refused(twice, &["coordinators[1]", "a second time"]);
    refused("nameservers = [\"dns.example\"]", &["nameservers[0]", "192.0.2.53:53"]);
    refused("nameservers = [\"::1\", \"::2\", \"::3\", \"::4\"]", &["nameservers", "more than 3"]);
    refused("coordinators = [\"127.0.0.1\", \"127.0.0.1:7443\"]", &["coordinators[1]", "a second time"]);
    let with_tls = |target: &str| {
        format!("coordinators = [{target:?}]\n[tls]\ncert = \"/c\"\nkey = \"/k\"\nca = \"/a\"")
    };
    refused(&with_tls("c1.example:port"), &["coordinators[0]", "1..=65535"]);
    refused(&with_tls("http://c1.example"), &["coordinators[0]", "without TLS"]);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    refused("coordinator = []", &["coordinator", "coordinators"]);
    refused("[latency]\nperoid = \"1s\"", &["peroid", "period"]);
}

#[test]
fn case_152_a_link_local_address_is_not_advertised() {
    for address in ["fe80::1%eth0", "[fe80::1%3]", "fe80::1", "169.254.1.2"] {
        refused(
            &format!("endpoints = [{{ kind = \"ssh\", address = \"{address}\", port = 22 }}]"),
            &["endpoints[0].address", "link-local"],
        );
    }
    for address in ["fe80::1:7443:x:y", "[2001:db8::1]", "a b", "", "app1:22", "http://app1"] {
        refused(
            &format!("endpoints = [{{ kind = \"ssh\", address = \"{address}\", port = 22 }}]"),
            &["endpoints[0].address"],
        );
    }
    refused("endpoints = [{ kind = \"ssh\", address = \"a\", port = 0 }]", &["endpoints[0].port"]);
}

#[test]
fn a_limit_is_written_as_a_number_or_a_word() {
    assert_eq!(UserLimitSetting::parse("unlimited").unwrap().to_string(), "unlimited");
    assert_eq!(UserLimitSetting::parse("7").unwrap().0, UserLimit::Users(7));
    for bad in ["0", "-1", "many", "", "1.5"] {
        assert!(UserLimitSetting::parse(bad).is_err(), "{bad}");
    }
    let shown = toml::to_string(&AgentConfig {
        overrides: OverridesConfig {
            max_users: UserLimitSetting::parse("unlimited").ok(),
            ..Default::default()
        },
        ..Default::default()
    });
    assert!(shown.unwrap().contains("max_users = \"unlimited\""));
}

/// Each with the place in the file, the key and what is allowed.
#[test]
fn every_fault_of_hooks_inventory_and_door_is_named_with_line_and_column() {
    let text = r#"coordinators = ["127.0.0.1"]
[door]
kind = "rdp"
tls = true
[hooks]
availability = { command = [], interval = "15s" }
replica_lag = { command = ["/x"], deadline = "2m" }
[inventory]
replicas = [{ resource = "" }]
globs = [
    { pattern = "/data/*", id = "{stam}" },
    { pattern = "data/*" },
]
program = { command = ["/x"], interval = "1ms" }
"#;
    let error = load(text).unwrap_err();
    for (place, key, allowed) in [
        ("agent.toml:4:", "door.tls", "only for the kind"),
        ("agent.toml:6:", "hooks.availability.command", "names no program"),
        ("agent.toml:7:", "hooks.replica_lag.deadline", "10ms..=60s"),
        ("agent.toml:9:", "inventory.replicas[0].resource", "is empty"),
        ("agent.toml:11:", "inventory.globs[0].id", "{path}, {name}, {stem}, {parent}, {1} to {9}"),
        ("agent.toml:12:", "inventory.globs[1].pattern", "absolute path"),
        ("agent.toml:14:", "inventory.program.interval", "1s..=3600s"),
    ] {
        let line =
            error.lines().find(|line| line.contains(key)).unwrap_or_else(|| panic!("{key} in {error}"));
        assert!(line.contains(place) && line.contains(allowed), "{line}");
        let column = line.split(place).nth(1).and_then(|rest| rest.split(':').next());
        assert!(column.is_some_and(|column| column.parse::<u32>().is_ok_and(|column| column > 0)), "{line}");
    }
    refused("[hooks]\navailabilty = { command = [\"/x\"] }", &["availabilty", "availability"]);
    refused("[inventory]\nprogramm = { command = [\"/x\"] }", &["programm", "program"]);
    refused("[inventory]\nglobs = [{ pattern = \"/a/*\", di = \"x\" }]", &["di", "agent.toml:2:"]);
}

#[test]
fn mounts_are_absolute_and_named_once() {
    refused(
        r#"mounts = ["/", "home", "/"]"#,
        &["mounts[1] = home", "absolute path", "mounts[2]", "a second time"],
    );
}
