use super::*;
use std::fs;
use std::os::unix::fs::symlink;

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
    let entry = |pattern: &&str| GlobEntry { pattern: (*pattern).to_owned(), title: None };
    InventoryConfig { globs: patterns.iter().map(entry).collect(), ..InventoryConfig::default() }
}

fn ids(scan: &Scan) -> Vec<&str> {
    scan.replicas.iter().map(|replica| replica.resource_id.as_str()).collect()
}

fn found_by(root: &Path, pattern: &str) -> Vec<String> {
    let scan = scan(&globs(&[pattern]), root).expect("a sound pattern");
    assert_eq!(scan.errors, Vec::<String>::new(), "{pattern}");
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
    assert_eq!((scan.warnings, scan.errors), (vec![twice.to_owned()], vec![]));
}

#[test]
fn a_named_resource_whose_file_is_missing_is_not_listed_and_reported() {
    let root = tree(&[]);
    let entry = ReplicaEntry { resource: "crm".into(), path: Some("/data/crm.db".into()), title: None };
    let config = InventoryConfig { replicas: vec![entry], ..InventoryConfig::default() };
    let scan = scan(&config, root.path()).expect("sound");
    assert_eq!(scan.replicas, []);
    assert!(scan.errors[0].contains("replica `crm`: cannot see /data/crm.db"), "{:?}", scan.errors);
}

#[test]
fn a_folder_that_cannot_be_looked_into_is_named_and_the_others_go_on() {
    let root = tree(&["data/a.db"]);
    let scan = scan(&globs(&["/gone/*.db", "/data/*.db"]), root.path()).expect("sound");
    assert_eq!(ids(&scan), ["a.db"]);
    assert_eq!(scan.errors.len(), 1);
    assert!(scan.errors[0].starts_with("cannot look into /gone"), "{:?}", scan.errors);
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
    assert!(scan.errors[0].ends_with("its name is not UTF-8"), "{:?}", scan.errors);
}

#[test]
fn a_configuration_that_cannot_mean_anything_is_refused() {
    for pattern in ["data/*.db", "", "/data/../*.db", "/data/[a.db"] {
        let config = globs(&[pattern]);
        assert!(check(&config).is_err(), "{pattern:?}");
        assert!(scan(&config, Path::new("/")).is_err(), "{pattern:?}");
    }
    for resource in [String::new(), "x".repeat(1025)] {
        let replicas = vec![ReplicaEntry { resource, path: None, title: None }];
        assert!(check(&InventoryConfig { replicas, globs: vec![] }).is_err());
    }
    assert!(toml::from_str::<InventoryConfig>("globs = [{ pattern = \"/a/*\", titel = \"x\" }]").is_err());
    assert_eq!(scan(&InventoryConfig::default(), Path::new("/")).expect("sound"), Scan::default());
}
