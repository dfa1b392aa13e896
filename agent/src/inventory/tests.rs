use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn scan(config: &InventoryConfig, root: &Path) -> Result<Scan, InventoryError> {
    super::scan(config, root, &mut Watches::new())
}

fn tree(files: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, "").expect("written");
    }
    root
}

fn globs(patterns: &[&str]) -> InventoryConfig {
    let entry =
        |pattern: &&str| GlobEntry { pattern: (*pattern).to_owned(), id: "{path}".into(), title: None };
    InventoryConfig { globs: patterns.iter().map(entry).collect(), ..InventoryConfig::default() }
}

fn ids(scan: &Scan) -> Vec<&str> {
    scan.replicas.iter().map(|replica| replica.resource_id.as_str()).collect()
}

fn found_by(root: &Path, pattern: &str) -> Vec<String> {
    let scan = scan(&globs(&[pattern]), root).expect("a sound pattern");
    assert_eq!(scan.errors, Notes::default(), "{pattern}");
    ids(&scan).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_pattern_names_resources_by_their_path_below_its_root() {
    let root = tree(&["data/b.db", "data/a.db", "data/a.txt", "data/deep/c.db", "data/deep/er/d.db"]);
    assert_eq!(found_by(root.path(), "/data/*.db"), ["a.db", "b.db"]);
    assert_eq!(found_by(root.path(), "/data/*/*.db"), ["deep/c.db"]);
    assert_eq!(found_by(root.path(), "/data/**/*.db"), ["a.db", "b.db", "deep/c.db", "deep/er/d.db"]);
    assert_eq!(found_by(root.path(), "/data/{a,deep/c}.db"), ["a.db", "deep/c.db"]);
    assert_eq!(found_by(root.path(), "/data/a.db"), ["a.db"]);
    assert_eq!(found_by(root.path(), "/data/*/"), ["deep"]);
    let scan = scan(&globs(&["/data/a*.db"]), root.path()).expect("sound");
    assert_eq!(scan.replicas[0].path.as_deref(), Some("/data/a.db"));
}

#[test]
fn named_resources_and_found_ones_make_one_sorted_list_and_doubles_are_named() {
    let root = tree(&["data/crm.db", "data/a.db"]);
    let text = r#"
        replicas = [{ resource = "wiki", title = "The wiki" }, { resource = "crm.db", path = "/data/crm.db" }]
        globs = [{ pattern = "/data/*.db", title = "Database" }]
    "#;
    let scan = scan(&toml::from_str(text).expect("sound"), root.path()).expect("sound");
    assert_eq!(ids(&scan), ["a.db", "crm.db", "wiki"]);
    let titles: Vec<_> = scan.replicas.iter().map(|replica| replica.title.as_deref()).collect();
    assert_eq!(titles, [Some("Database"), None, Some("The wiki")]);
    let twice = "resource `crm.db` is there twice: /data/crm.db is listed, /data/crm.db is not";
    assert_eq!((scan.warnings.first, scan.errors.count), (vec![twice.to_owned()], 0));
}

#[test]
fn a_named_resource_whose_file_is_missing_is_not_listed_and_reported() {
    let root = tree(&[]);
    let entry = ReplicaEntry { resource: "crm".into(), path: Some("/data/crm.db".into()), title: None };
    let config = InventoryConfig { replicas: vec![entry], ..InventoryConfig::default() };
    let scan = scan(&config, root.path()).expect("sound");
    assert_eq!(scan.replicas, []);
    assert!(scan.errors.first[0].contains("replica `crm`: cannot see /data/crm.db"), "{:?}", scan.errors);
}

#[test]
fn a_folder_that_cannot_be_looked_into_is_named_and_the_others_go_on() {
    let root = tree(&["data/a.db"]);
    let scan = scan(&globs(&["/gone/*.db", "/data/*.db"]), root.path()).expect("sound");
    assert_eq!(ids(&scan), ["a.db"]);
    assert_eq!(scan.errors.count, 1);
    assert!(scan.errors.first[0].starts_with("cannot look into /gone"), "{:?}", scan.errors);
}

#[test]
fn links_are_followed_but_never_in_a_circle() {
    let root = tree(&["data/a.db", "disk2/b.db"]);
    let data = root.path().join("data");
    symlink(root.path().join("disk2"), data.join("more")).expect("linked");
    symlink(&data, data.join("again")).expect("linked");
    symlink("itself.db", data.join("itself.db")).expect("linked");
    symlink("nothing", data.join("nothing.db")).expect("linked");
    assert_eq!(found_by(root.path(), "/data/**/*.db"), ["a.db", "more/b.db"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_utf8_is_reported_not_guessed() {
    use std::os::unix::ffi::OsStrExt;
    let root = tree(&["data/a.db"]);
    fs::write(root.path().join("data").join(std::ffi::OsStr::from_bytes(b"\xff.db")), "").expect("written");
    let scan = scan(&globs(&["/data/*.db"]), root.path()).expect("sound");
    assert_eq!(ids(&scan), ["a.db"]);
    assert!(scan.errors.first[0].ends_with("its name is not UTF-8"), "{:?}", scan.errors);
}

fn with_rule(pattern: &str, id: &str) -> InventoryConfig {
    let globs = vec![GlobEntry { pattern: pattern.into(), id: id.into(), title: None }];
    InventoryConfig { globs, ..InventoryConfig::default() }
}

#[test]
fn a_rule_makes_ids_that_are_the_same_wherever_the_disks_are_mounted() {
    let root = tree(&["disk1/mail/crm.nsf", "disk2/mail/hr.nsf", "disk2/top.nsf"]);
    let scan = scan(&with_rule("/*/**/*.nsf", "{parent}/{stem}"), root.path()).expect("sound");
    assert_eq!(ids(&scan), ["disk2/top", "mail/crm", "mail/hr"]);
    let paths: Vec<_> = scan.replicas.iter().map(|replica| replica.path.as_deref()).collect();
    assert_eq!(paths[1], Some("/disk1/mail/crm.nsf"));
}

#[test]
fn a_match_without_an_id_by_the_rule_is_reported_and_the_others_are_listed() {
    let root = tree(&["data/a/crm.db", "data/hr.db", "data/line\nfeed/x.db"]);
    let scan = scan(&with_rule("/data/**/*.db", "{1}+{2}"), root.path()).expect("sound");
    assert_eq!((ids(&scan), scan.errors.count), (vec!["a+crm.db"], 2));
    assert!(scan.errors.first[0].contains("/data/hr.db: its path lacks a part"), "{:?}", scan.errors);
    assert!(scan.errors.first[1].contains("resource"), "{:?}", scan.errors);
}

#[test]
fn files_that_a_rule_gives_one_id_are_listed_once_and_named() {
    let root = tree(&["data/crm.db", "data/crm.nsf"]);
    let scan = scan(&with_rule("/data/*", "{stem}"), root.path()).expect("sound");
    assert_eq!(scan.replicas[0].path.as_deref(), Some("/data/crm.db"));
    assert_eq!((scan.replicas.len(), scan.warnings.count), (1, 1));
}

fn faults(toml: &str) -> Vec<String> {
    let config: InventoryConfig = toml::from_str(toml).expect("readable");
    let mut faults = usher_runtime::config::Faults::default();
    usher_runtime::config::Validate::validate(&config, &mut faults);
    faults.iter().map(|fault| fault.key.clone()).collect()
}

#[test]
fn a_configuration_that_cannot_mean_anything_is_refused_by_the_key() {
    for pattern in ["data/*.db", "", "/data/../*.db", "/data/[a.db"] {
        assert_eq!(
            faults(&format!("globs = [{{ pattern = {pattern:?} }}]")),
            ["globs[0].pattern"],
            "{pattern:?}"
        );
        assert!(scan(&globs(&[pattern]), Path::new("/")).is_err(), "{pattern:?}");
    }
    let text = r#"
        replicas = [{ resource = "a" }, { resource = "" }, { resource = "a\nb" }]
        globs = [{ pattern = "/a/*", id = "{stem}" }, { pattern = "/a/*", id = "crm" }, { pattern = "/a/*", id = "{stam}" }]
        program = { command = [], interval = "100ms", deadline = "1h" }
    "#;
    let expected = [
        "replicas[1].resource",
        "replicas[2].resource",
        "globs[1].id",
        "globs[2].id",
        "program.command",
        "program.interval",
        "program.deadline",
    ];
    assert_eq!(faults(text), expected);
    let long = "x".repeat(1025);
    assert_eq!(faults(&format!("replicas = [{{ resource = {long:?} }}]")), ["replicas[0].resource"]);
    assert!(toml::from_str::<InventoryConfig>("globs = [{ pattern = \"/a/*\", titel = \"x\" }]").is_err());
    assert_eq!(scan(&InventoryConfig::default(), Path::new("/")).expect("sound"), Scan::default());
}

#[test]
fn more_resources_than_anybody_could_look_through_are_counted_and_left_out() {
    let replica = |number: usize| found(&format!("r{number}"), None, None).expect("an id");
    let mut scan = Scan { replicas: (0..MAX_FOUND + 7).map(replica).collect(), ..Scan::default() };
    scan.put_in_order(3);
    assert_eq!(scan.replicas.len(), MAX_FOUND);
    assert_eq!(scan.errors.summary().as_deref(), Some("more than 100000 resources: 10 are left out"));
}
