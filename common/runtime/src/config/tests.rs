//! What an operator meets: files with mistakes, and settings from four places.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    listen: ListenAddr,
    report_interval: HumanDuration,
    coordinators: Vec<String>,
    farm: Option<String>,
    availability: Availability,
    weights: Weights,
    mounts: Vec<Mount>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Availability {
    threshold: u8,
    range: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Weights {
    cpu: f64,
    mem: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mount {
    path: String,
    percent: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7443".parse().unwrap(),
            report_interval: HumanDuration::from_secs(5),
            coordinators: Vec::new(),
            farm: None,
            availability: Availability::default(),
            weights: Weights::default(),
            mounts: Vec::new(),
        }
    }
}

impl Default for Availability {
    fn default() -> Self {
        Self { threshold: 0, range: 6.0 }
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self { cpu: 50.0, mem: 50.0 }
    }
}

impl Validate for Settings {
    fn validate(&self, faults: &mut Faults) {
        let hour = HumanDuration::from_secs(3_600);
        faults.range("report_interval", &self.report_interval, HumanDuration::from_millis(100)..=hour);
        faults.nested("availability", &self.availability);
        let sum = self.weights.cpu + self.weights.mem;
        if (sum - 100.0).abs() > 0.01 {
            faults.refuse("weights", format!("add up to {sum}, must be 100"));
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            faults.range(&format!("mounts[{index}].percent"), &mount.percent, 1..=100);
        }
    }
}

impl Validate for Availability {
    fn validate(&self, faults: &mut Faults) {
        faults.range("threshold", &self.threshold, 0..=100);
        faults.range("range", &self.range, 1.0..=30.0);
    }
}

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, text).unwrap();
    File { _folder: folder, path }
}

/// The messages without the folder's name.
fn errors(text: &str) -> Vec<String> {
    let file = file(text);
    let errors = Loader::new(&file.path).load::<Settings>().unwrap_err();
    let folder = format!("{}/", file.path.parent().unwrap().display());
    errors.0.iter().map(|error| error.to_string().replace(&folder, "")).collect()
}

#[test]
fn a_missing_default_file_means_defaults_and_a_missing_named_one_is_an_error() {
    let missing = PathBuf::from("/nonesuch/agent.toml");
    let loaded = Loader::new(&missing).load::<Settings>().unwrap();
    assert_eq!(loaded.value, Settings::default());
    let named = Loader::new("/etc/other").file(Some(missing), Origin::Flag("--config".into()));
    let error = named.load::<Settings>().unwrap_err().to_string();
    let expected = "/nonesuch/agent.toml: cannot read the configuration file named by flag --config";
    assert!(error.starts_with(expected), "{error}");
    let only = Loader::only("/nonesuch/agent.toml").load::<Settings>().unwrap_err().to_string();
    assert!(only.starts_with("/nonesuch/agent.toml: cannot read the configuration file: "), "{only}");
}

#[test]
fn case_149_a_misspelt_key_is_refused_with_a_suggestion() {
    assert_eq!(
        errors("[availability]\ntreshold = 40\n"),
        ["agent.toml:2:1: unknown key availability.treshold (line 2), did you mean threshold?"]
    );
    assert_eq!(
        errors("farm = \"a\"\navailability = { range = 8.0, thresholdd = 1 }"),
        ["agent.toml:2:31: unknown key availability.thresholdd (line 2), did you mean threshold?"]
    );
}

#[test]
fn case_149_a_key_that_resembles_none_lists_the_known_ones() {
    assert_eq!(
        errors("[weights]\nhost = \"x\"\n"),
        ["agent.toml:2:1: unknown key weights.host (line 2), known here: cpu, mem"]
    );
    let table = errors("[sever]\nport = 1\n");
    assert!(
        table[0].starts_with("agent.toml:1:2: unknown key sever (line 1), known here: listen,"),
        "{table:?}"
    );
}

#[test]
fn a_wrong_type_names_line_key_value_and_what_was_expected() {
    assert_eq!(
        errors("\n[availability]\nthreshold = \"high\"\n"),
        ["agent.toml:3:13: availability.threshold = \"high\": invalid type: string \"high\", expected u8"]
    );
    assert_eq!(
        errors("report_interval = 5"),
        ["agent.toml:1:19: report_interval = 5: a duration needs a unit, write \"5s\" or \"5ms\""]
    );
}

#[test]
fn a_list_is_no_table_even_if_its_values_would_fit() {
    let expected = ["agent.toml:1:16: availability: must be a table, not a list"];
    assert_eq!(errors("availability = [40, 8.0]"), expected);
}

#[test]
fn case_152_an_ambiguous_address_is_refused_with_its_place() {
    assert_eq!(
        errors("listen = \"fe80::1:7443\""),
        ["agent.toml:1:10: listen = \"fe80::1:7443\": \"fe80::1:7443\" is ambiguous, write an IPv6 address \
          in brackets as in \"[::1]:7443\""]
    );
}

#[test]
fn case_151_a_syntax_error_names_line_and_column() {
    let found = errors("farm = \"a\"\nlisten = = 1\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("agent.toml:2:"), "{found:?}");
    let found = errors("farm = \"a\"\nfarm = \"b\"\n");
    assert!(found[0].starts_with("agent.toml:2:1: duplicate key"), "{found:?}");
}

#[test]
fn case_145_weights_that_do_not_add_up_name_their_table() {
    assert_eq!(
        errors("[weights]\ncpu = 30.0\nmem = 65.0\n"),
        ["agent.toml:1:2: weights add up to 95, must be 100"]
    );
}

#[test]
fn case_148_a_bad_value_is_refused_with_its_name_value_and_range() {
    assert_eq!(
        errors("[availability]\nrange = 0.0\n"),
        ["agent.toml:2:1: availability.range = 0 is not allowed, must be 1..=30"]
    );
    assert_eq!(
        errors("[[mounts]]\npath = \"/\"\npercent = 90\n[[mounts]]\npath = \"/var\"\npercent = 101"),
        ["agent.toml:6:1: mounts[1].percent = 101 is not allowed, must be 1..=100"]
    );
}

#[test]
fn case_132_durations_have_bounds() {
    let found = errors("report_interval = \"2h\"");
    assert_eq!(found, ["agent.toml:1:1: report_interval = 2h is not allowed, must be 100ms..=1h"]);
    let endless = format!("report_interval = \"{}s\"", u64::MAX);
    assert!(errors(&endless)[0].contains("is longer than 3650 days"));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let found = errors(
        "colour = 1\nreport_interval = \"1ms\"\n[availability]\ntreshold = 1\nrange = \"wide\"\n\
         [weights]\ncpu = 10.0\n[[mounts]]\npath = 5\npercent = 1\n",
    );
    let starts = [
        "agent.toml:1:1: unknown key colour",
        "agent.toml:4:1: unknown key availability.treshold",
        "agent.toml:5:9: availability.range = \"wide\"",
        "agent.toml:9:8: mounts[0].path = 5",
        "agent.toml:2:1: report_interval = 1ms",
        "agent.toml:6:2: weights add up to 60",
    ];
    for start in starts {
        assert!(found.iter().any(|line| line.starts_with(start)), "{start} not in {found:#?}");
    }
    assert_eq!(found.len(), starts.len(), "{found:#?}");
}

#[test]
fn a_missing_key_of_a_list_element_names_the_element() {
    let found = errors("[[mounts]]\npath = \"/\"\n");
    assert!(found[0].contains("mounts[0]") && found[0].contains("missing field `percent`"), "{found:?}");
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file =
        file("farm = \"file\"\ncoordinators = [\"file:1\"]\n[availability]\nthreshold = 1\nrange = 7.0\n");
    let variables = [
        ("USHER_COORDINATORS", "coordinators", EnvKind::List),
        ("USHER_FARM", "farm", EnvKind::Text),
        ("USHER_THRESHOLD", "availability.threshold", EnvKind::Integer),
    ];
    let environment = |name: &str| match name {
        "USHER_COORDINATORS" => Some("c1:1, c2:2,".to_owned()),
        "USHER_THRESHOLD" => Some("2".to_owned()),
        "USHER_FARM" => Some(String::new()),
        _ => None,
    };
    let loaded = Loader::new(&file.path)
        .override_with("availability.threshold", 3, Origin::Flag("--threshold".into()))
        .override_with("weights.cpu", 40.0, Origin::Flag("--cpu".into()))
        .override_with("weights.mem", 60.0, Origin::Flag("--mem".into()))
        .env_from(&variables, environment)
        .load::<Settings>()
        .unwrap();
    assert_eq!(loaded.value.coordinators, ["c1:1", "c2:2"]);
    assert_eq!(loaded.value.farm.as_deref(), Some("file"));
    assert_eq!(loaded.value.availability, Availability { threshold: 3, range: 7.0 });
    let path = file.path.display().to_string();
    let expected = format!(
        "coordinators = [\"c1:1\", \"c2:2\"]  # environment USHER_COORDINATORS\n\
         farm = \"file\"  # {path}:1\n\
         listen = \"127.0.0.1:7443\"  # default\n\
         mounts = []  # default\n\
         report_interval = \"5s\"  # default\n\n\
         [availability]\n\
         range = 7.0  # {path}:5\n\
         threshold = 3  # flag --threshold\n\n\
         [weights]\n\
         cpu = 40.0  # flag --cpu\n\
         mem = 60.0  # flag --mem\n"
    );
    assert_eq!(loaded.dump().unwrap(), expected);
}

#[test]
fn a_bad_value_from_outside_the_file_names_the_variable_or_the_flag() {
    let variables = [
        ("USHER_INTERVAL", "report_interval", EnvKind::Text),
        ("USHER_THRESHOLD", "availability.threshold", EnvKind::Integer),
    ];
    let error = Loader::new("/nonesuch")
        .env_from(&variables, |name| Some(if name == "USHER_INTERVAL" { "5" } else { "x" }.to_owned()))
        .override_with("availability.range", 31.0, Origin::Flag("--range".into()))
        .override_with("listen", "nowhere", Origin::Flag("--listen".into()))
        .load::<Settings>()
        .unwrap_err();
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    for start in [
        "environment USHER_THRESHOLD: availability.threshold = \"x\" is not a whole number",
        "environment USHER_INTERVAL: report_interval = \"5\": a duration needs a unit",
        "flag --range: availability.range = 31 is not allowed, must be 1..=30",
        "flag --listen: listen = \"nowhere\": \"nowhere\" is not an IP address and port",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start} not in {lines:#?}");
    }
    assert_eq!(lines.len(), 4, "{lines:#?}");
}

#[test]
fn odd_files_are_refused_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    let error = Loader::new(&path).load::<Settings>().unwrap_err().to_string();
    assert!(error.contains("is not UTF-8"), "{error}");
    let error = Loader::new(folder.path()).load::<Settings>().unwrap_err().to_string();
    assert!(error.contains("cannot read the configuration file"), "{error}");
    for text in ["\u{0}", "[", "=", "a.b.c = {", "\"\" = 1", "[[availability]]", "availability = []"] {
        assert!(!errors(text).is_empty(), "{text:?}");
    }
    assert!(Loader::new(&file("\r\n# nothing\r\n").path).load::<Settings>().is_ok());
}
