use rustix::io::Errno;

use super::model::{Cut, ModelDisk, Tree, Trouble};
use super::*;

const OLD: &[u8] = b"the old content, which is longer";
const NEW: &[u8] = b"the new content";

fn path() -> PathBuf {
    PathBuf::from("state/file")
}

fn tree(files: &[(&str, &[u8])]) -> Tree {
    files.iter().map(|(suffix, content)| (beside(&path(), suffix), content.to_vec())).collect()
}

fn content(tree: &Tree) -> Option<&[u8]> {
    tree.get(&path()).map(Vec::as_slice)
}

/// Folders as earlier cuts may have left them.
fn beginnings() -> [Tree; 4] {
    [
        tree(&[]),
        tree(&[("", OLD)]),
        tree(&[("", OLD), (".new", b"half of somet")]),
        tree(&[("", OLD), (".new", OLD), (".bak", b"older"), (".bak.new", OLD)]),
    ]
}

/// Each way to work on the file is cut before each of its steps, and once after the last.
fn cut_everywhere(
    before: &Tree,
    cut: Cut,
    work: impl Fn(&ModelDisk) -> Result<(), FailedStep>,
    mut check: impl FnMut(bool, &Tree),
) {
    let whole = ModelDisk::holding(before);
    work(&whole).unwrap();
    for at in 0..=whole.steps() {
        let disk = ModelDisk::holding(before).with_trouble(Trouble::Cut(at));
        let is_done = work(&disk).is_ok();
        assert_eq!(is_done, at == whole.steps());
        disk.survivals(cut).iter().for_each(|survival| check(is_done, survival));
    }
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one_whenever_what_it_must_outlive_happens() {
    for (cut, outlives) in
        [(Cut::Process, Outlives::Process), (Cut::Process, Outlives::Power), (Cut::Power, Outlives::Power)]
    {
        for before in beginnings() {
            let work = |disk: &ModelDisk| replace_on(disk, &path(), NEW, outlives);
            let mut seen = 0;
            cut_everywhere(&before, cut, work, |is_done, survival| {
                let is_whole = content(survival) == Some(NEW) || content(survival) == content(&before);
                assert!(is_whole, "{survival:?}");
                assert!(
                    !is_done || content(survival) == Some(NEW),
                    "what was confirmed is there: {survival:?}"
                );
                // And it is no obstacle to the next.
                let disk = ModelDisk::holding(survival);
                replace_on(&disk, &path(), b"next", outlives).unwrap();
                assert_eq!(content(&disk.tree()), Some(&b"next"[..]));
                seen += 1;
            });
            assert!(seen > 3, "{seen} cuts");
        }
    }
}

#[test]
fn the_model_shows_what_is_lost_without_a_flush() {
    let mut torn = 0;
    let work = |disk: &ModelDisk| replace_on(disk, &path(), NEW, Outlives::Process);
    cut_everywhere(&tree(&[("", OLD)]), Cut::Power, work, |_, survival| {
        torn += usize::from(content(survival) != Some(NEW) && content(survival) != Some(OLD));
    });
    assert!(torn > 0);
}

#[test]
fn a_removal_that_was_confirmed_is_there_after_a_loss_of_power() {
    for before in beginnings() {
        cut_everywhere(
            &before,
            Cut::Power,
            |disk| remove_on(disk, &path()),
            |is_done, survival| {
                let is_whole = content(survival).is_none() || content(survival) == content(&before);
                assert!(is_whole && (!is_done || content(survival).is_none()), "{survival:?}");
            },
        );
    }
}

#[test]
fn a_step_that_fails_leaves_the_old_or_the_new_file_and_is_named() {
    let work = |disk: &ModelDisk| replace_on(disk, &path(), NEW, Outlives::Power);
    let before = tree(&[("", OLD)]);
    let whole = ModelDisk::holding(&before);
    work(&whole).unwrap();
    for at in 0..whole.steps() {
        for errno in [Errno::NOSPC, Errno::IO, Errno::ROFS, Errno::ACCESS] {
            let disk = ModelDisk::holding(&before).with_trouble(Trouble::ForGood(at, errno));
            let FailedStep { step, source } = work(&disk).unwrap_err();
            assert!(["write", "replace", "flush the folder of"].contains(&step), "{step}");
            assert_eq!(source.raw_os_error(), Some(errno.raw_os_error()));
            for survival in disk.survivals(Cut::Power) {
                assert!([Some(OLD), Some(NEW)].contains(&content(&survival)), "{at} {errno} {survival:?}");
            }
        }
    }
}

#[test]
fn a_full_disk_is_not_filled_further_by_what_failed() {
    // The step in which the second half is written.
    let disk = ModelDisk::holding(&tree(&[("", OLD)])).with_trouble(Trouble::Once(3, Errno::NOSPC));
    replace_on(&disk, &path(), NEW, Outlives::Power).unwrap_err();
    assert_eq!(disk.tree(), tree(&[("", OLD)]));
}

#[test]
fn this_machine_replaces_a_file_whole_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for (content, outlives) in [("first, longer", Outlives::Process), ("second", Outlives::Power)] {
        replace(&path, content.as_bytes(), outlives).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    remove(&path).unwrap();
    remove(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_a_cut_left_beside_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, OLD).unwrap();
    std::fs::hard_link(&path, folder.path().join("a.new")).unwrap();
    let kept = folder.path().join("other name");
    std::fs::hard_link(&path, &kept).unwrap();
    replace(&path, NEW, Outlives::Power).unwrap();
    assert_eq!((std::fs::read(&path).unwrap(), std::fs::read(kept).unwrap()), (NEW.to_vec(), OLD.to_vec()));
}

#[test]
fn a_failure_names_the_file_and_the_step() {
    let error = replace(Path::new("/proc/none/a"), b"x", Outlives::Process).unwrap_err().to_string();
    assert!(error.starts_with("cannot write /proc/none/a: "), "{error}");
}

#[test]
fn a_folder_is_made_with_those_above_it() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("a/b/c");
    make_folder(&deep).unwrap();
    make_folder(&deep).unwrap();
    assert!(deep.is_dir());
    let error = make_folder(Path::new("/proc/none/a")).unwrap_err().to_string();
    assert!(error.starts_with("cannot make the folder /proc/none/a: "), "{error}");
}
