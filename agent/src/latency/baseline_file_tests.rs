use std::fs;

use super::*;

const NOW: u64 = 1_767_225_600_000;

struct Disk {
    _folder: tempfile::TempDir,
    file: BaselineFile,
}

fn owner(host_id: &str, cpu_model: Option<&str>) -> BaselineOwner {
    BaselineOwner { host_id: host_id.into(), cpu_model: cpu_model.map(str::to_owned) }
}

fn disk() -> Disk {
    let folder = tempfile::tempdir().expect("a folder");
    let file = BaselineFile::new(folder.path().join("baselines"), owner("h1", Some("Fast 9000")));
    Disk { _folder: folder, file }
}

fn baselines(baseline_us: f64) -> Baselines {
    let minimum = MinimumRecord { lowest_us: Some(baseline_us), samples: 7, ..MinimumRecord::default() };
    let robust = RobustRecord { qualified_us: vec![baseline_us], ..RobustRecord::default() };
    Baselines::from([("open_db".to_owned(), BaselineRecord { minimum, robust })])
}

fn files(disk: &Disk) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(disk.file.path.parent().expect("a folder"))
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_saved_is_loaded() {
    let disk = disk();
    let first = disk.file.load(NOW);
    assert_eq!((first.origin, first.warning), (BaselineOrigin::FirstStart, None));
    disk.file.save(&baselines(1234.5), NOW).expect("saved");
    let loaded = disk.file.load(NOW);
    assert_eq!(
        (loaded.baselines, loaded.origin, loaded.warning),
        (baselines(1234.5), BaselineOrigin::File, None)
    );
}

#[test]
fn the_copy_before_the_last_save_is_kept_and_nothing_else_is_left() {
    let disk = disk();
    for baseline_us in [1.0, 2.0, 3.0] {
        disk.file.save(&baselines(baseline_us), NOW).expect("saved");
    }
    assert_eq!(files(&disk), ["baselines", "baselines.bak"]);
    fs::remove_file(&disk.file.path).expect("removed");
    let loaded = disk.file.load(NOW);
    assert_eq!((loaded.baselines, loaded.origin), (baselines(2.0), BaselineOrigin::Backup));
    assert!(loaded.warning.expect("a warning").contains("is missing"));
}

#[test]
fn case_140_a_spoilt_file_is_moved_aside_and_its_backup_used() {
    let whole = {
        let disk = disk();
        disk.file.save(&baselines(1.0), NOW).expect("saved");
        fs::read(&disk.file.path).expect("read")
    };
    let mut flipped = whole.clone();
    flipped[120] ^= 1;
    let spoilt: [(&str, Vec<u8>); 5] = [
        ("is empty", vec![]),
        ("does not begin with", vec![0; 1879]),
        ("does not match", whole[..whole.len() / 2].to_vec()),
        ("does not match", flipped),
        ("does not begin with", b"usher-baselines 3 00\n{}".to_vec()),
    ];
    for (problem, content) in spoilt {
        let disk = disk();
        disk.file.save(&baselines(1.0), NOW).expect("saved");
        disk.file.save(&baselines(2.0), NOW).expect("saved");
        fs::write(&disk.file.path, &content).expect("written");

        let loaded = disk.file.load(NOW);
        assert_eq!((loaded.baselines, loaded.origin), (baselines(1.0), BaselineOrigin::Backup), "{problem}");
        let warning = loaded.warning.expect("a warning");
        assert!(warning.contains(problem), "{warning}");
        let aside = format!("baselines.bad-{NOW}");
        assert_eq!(files(&disk), [aside.as_str(), "baselines.bak"]);

        // The next save makes a whole file again, and the start after it is an ordinary one.
        disk.file.save(&baselines(3.0), NOW).expect("saved");
        assert_eq!(disk.file.load(NOW).origin, BaselineOrigin::File);
    }
}

#[test]
fn case_140_without_a_backup_the_baselines_begin_anew_and_say_so() {
    let disk = disk();
    fs::write(&disk.file.path, [0; 1879]).expect("written");
    fs::write(disk.file.backup(), "").expect("written");
    let loaded = disk.file.load(NOW);
    assert_eq!(loaded.baselines, Baselines::new());
    assert!(matches!(loaded.origin, BaselineOrigin::Reset { .. }));
    let warning = loaded.warning.expect("a warning");
    assert!(warning.contains("does not begin with") && warning.contains("is empty"), "{warning}");
    assert_eq!(disk.file.load(NOW).origin, BaselineOrigin::FirstStart);
}

#[test]
fn baselines_of_another_host_are_not_taken() {
    let disk = disk();
    disk.file.save(&baselines(1.0), NOW).expect("saved");
    let clone = BaselineFile::new(disk.file.path.clone(), owner("h2", Some("Fast 9000")));
    let BaselineOrigin::Reset { reason } = clone.load(NOW).origin else { panic!("no reset") };
    assert!(reason.contains("is of host h1"), "{reason}");
}

// rule: baseline-keeps
#[test]
fn another_cpu_resets_and_an_unknown_one_does_not() {
    let disk = disk();
    disk.file.save(&baselines(1.0), NOW).expect("saved");
    let with_cpu = |cpu_model| BaselineFile::new(disk.file.path.clone(), owner("h1", cpu_model)).load(NOW);
    assert_eq!(with_cpu(None).origin, BaselineOrigin::File);
    let changed = with_cpu(Some("Slow 100"));
    let reason = "the CPU was `Fast 9000` and is `Slow 100`".to_owned();
    assert_eq!((changed.baselines, changed.origin), (Baselines::new(), BaselineOrigin::Reset { reason }));
}

#[test]
fn ages_grow_while_the_agent_is_down() {
    let disk = disk();
    disk.file.save(&baselines(1.0), NOW).expect("saved");
    let loaded = disk.file.load(NOW + 5_000).baselines;
    assert_eq!(loaded["open_db"].minimum.moved_ms_ago, 5_000);
    assert_eq!(disk.file.load(NOW - 5_000).baselines, baselines(1.0), "a wall clock that went back");
}

/// A file as 0.1 wrote it.
fn write_old(disk: &Disk, entries: &str) {
    let json = format!(
        r#"{{"format":1,"host_id":"h1","cpu_model":"Fast 9000","entries":{{{entries}}}}}
"#
    );
    let content = format!("usher-baselines 1 {}\n{json}", checksum(json.as_bytes()));
    fs::write(&disk.file.path, content).expect("written");
}

#[test]
fn a_file_of_0_1_gives_the_lowest_mean_and_a_provisional_estimate() {
    let disk = disk();
    let old = |updated: u64| format!(r#"{{"baseline_us":900.0,"samples":7,"updated_unix_ms":{updated}}}"#);
    write_old(&disk, &format!(r#""a":{},"b":{}"#, old(NOW), old(NOW - 4_000)));
    let loaded = disk.file.load(NOW + 1_000);
    assert_eq!((loaded.origin, loaded.warning), (BaselineOrigin::File, None));
    let (a, b) = (&loaded.baselines["a"], &loaded.baselines["b"]);
    assert_eq!((a.minimum.lowest_us, a.robust.lowest_us), (Some(900.0), Some(900.0)));
    assert_eq!((a.minimum.moved_ms_ago, b.robust.moved_ms_ago, b.minimum.samples), (1_000, 5_000, 7));
    // The next save has today's form.
    disk.file.save(&loaded.baselines, NOW + 1_000).expect("saved");
    assert_eq!(disk.file.load(NOW + 1_000).baselines, loaded.baselines);
}

#[test]
fn an_unsound_number_of_0_1_is_not_taken_even_with_a_right_checksum() {
    let disk = disk();
    for baseline in ["0.0", "-1.0", "null"] {
        write_old(&disk, &format!(r#""a":{{"baseline_us":{baseline},"samples":7,"updated_unix_ms":0}}"#));
        assert!(matches!(disk.file.load(NOW).origin, BaselineOrigin::Reset { .. }), "{baseline}");
    }
}

#[test]
fn a_name_that_cannot_be_one_spoils_the_file() {
    let disk = disk();
    let mut spoilt = baselines(1.0);
    spoilt.insert("open db".into(), BaselineRecord::default());
    disk.file.save(&spoilt, NOW).expect("saved");
    assert!(matches!(disk.file.load(NOW).origin, BaselineOrigin::Reset { .. }));
}

#[test]
fn a_folder_that_is_not_there_is_a_named_error() {
    let file = BaselineFile::new("/nonexistent/baselines".into(), owner("h1", None));
    assert_eq!(file.load(NOW).origin, BaselineOrigin::FirstStart);
    let error = file.save(&baselines(1.0), NOW).expect_err("refused");
    assert_eq!(error.to_string(), "cannot save baselines: cannot write /nonexistent/baselines");
}
