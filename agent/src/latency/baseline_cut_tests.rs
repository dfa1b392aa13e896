//! What do baselines come back as, wherever a save was cut or failed, and whatever the disk made of it?

use rustix::io::Errno;

use super::*;
use crate::disk::model::{Cut, ModelDisk, Tree, Trouble};

const NOW: u64 = 1_767_225_600_000;

fn file() -> BaselineFile {
    let owner = BaselineOwner { host_id: "h1".into(), cpu_model: Some("Fast 9000".into()) };
    BaselineFile::new("state/baselines".into(), owner)
}

/// Those of the `number`-th save; of the 0th, none.
fn learned(number: u64) -> Baselines {
    let minimum =
        MinimumRecord { lowest_us: Some(100.0 * number as f64), samples: number, ..MinimumRecord::default() };
    let record = BaselineRecord { minimum, robust: RobustRecord::default() };
    (1..=number).map(|operation| (format!("operation_{operation}"), record.clone())).collect()
}

/// A folder after this many saves.
fn saved(saves: u64) -> Tree {
    let disk = ModelDisk::holding(&Tree::new());
    (1..=saves).for_each(|number| file().save_to(&disk, &learned(number), NOW).unwrap());
    disk.tree()
}

fn load(tree: &Tree) -> (LoadedBaselines, Tree) {
    let disk = ModelDisk::holding(tree);
    let loaded = file().load_from(&disk, NOW);
    (loaded, disk.tree())
}

/// The number of the save that comes back from a file in its place, with nothing to be warned of.
fn comes_back(tree: &Tree) -> u64 {
    let (loaded, after) = load(tree);
    assert_eq!(loaded.warning, None, "{tree:?}");
    assert_eq!(&after, tree, "nothing is moved aside");
    number_of(&loaded.baselines)
}

/// Panics at a mix.
fn number_of(baselines: &Baselines) -> u64 {
    let number = baselines.len() as u64;
    assert_eq!(baselines, &learned(number));
    number
}

/// Folders before the save of `next`, each with the newest save that is in it.
fn beginnings() -> Vec<(Tree, u64)> {
    let mut beginnings: Vec<(Tree, u64)> = [0, 1, 2].map(|saves| (saved(saves), saves)).to_vec();
    // What earlier cuts may have left beside.
    let mut littered = saved(2);
    for name in ["state/baselines.new", "state/baselines.bak.new"] {
        littered.insert(name.into(), littered[Path::new("state/baselines")].clone());
    }
    beginnings.push((littered.clone(), 2));
    littered.insert("state/baselines.new".into(), b"usher-baselines 2 12".to_vec());
    beginnings.push((littered, 2));
    beginnings
}

/// A way to make a disk that holds these files.
type MakeDisk = fn(&Tree) -> ModelDisk;
const DISKS: [MakeDisk; 2] = [ModelDisk::holding, |tree| ModelDisk::holding(tree).without_links()];

#[test]
fn after_a_cut_at_any_step_the_old_or_the_new_baselines_are_there_and_in_place() {
    let mut survivals = 0;
    for (make, (before, newest)) in
        DISKS.into_iter().flat_map(|make| beginnings().into_iter().map(move |b| (make, b)))
    {
        let whole = make(&before);
        file().save_to(&whole, &learned(newest + 1), NOW).unwrap();
        for (at, cut) in (0..=whole.steps()).flat_map(|at| [(at, Cut::Process), (at, Cut::Power)]) {
            let disk = make(&before).with_trouble(Trouble::Cut(at));
            let is_saved = file().save_to(&disk, &learned(newest + 1), NOW).is_ok();
            assert_eq!(is_saved, at == whole.steps());
            for survival in disk.survivals(cut) {
                let came_back = comes_back(&survival);
                assert!(
                    came_back == newest + 1 || (!is_saved && came_back == newest),
                    "step {at}: {came_back}"
                );
                // What is left is no obstacle to the next save.
                let next = make(&survival);
                file().save_to(&next, &learned(newest + 2), NOW).unwrap();
                assert_eq!(comes_back(&next.tree()), newest + 2);
                survivals += 1;
            }
        }
    }
    println!("{survivals} survivals");
    assert!(survivals > 500, "{survivals}");
}

#[test]
fn where_the_file_was_spoilt_in_its_place_the_copy_before_or_the_new_one_comes_back() {
    for make in DISKS {
        let mut before = saved(2);
        before.get_mut(Path::new("state/baselines")).unwrap()[100] ^= 1;
        let whole = make(&before);
        file().save_to(&whole, &learned(3), NOW).unwrap();
        for at in 0..=whole.steps() {
            let disk = make(&before).with_trouble(Trouble::Cut(at));
            let is_saved = file().save_to(&disk, &learned(3), NOW).is_ok();
            for survival in disk.survivals(Cut::Power) {
                let (loaded, _) = load(&survival);
                let number = number_of(&loaded.baselines);
                match loaded.origin {
                    BaselineOrigin::File => assert_eq!((number, loaded.warning), (3, None)),
                    BaselineOrigin::Backup => {
                        assert!(!is_saved && number == 1);
                        let warning = loaded.warning.unwrap();
                        assert!(warning.contains("does not match its checksum"), "{warning}");
                    }
                    other => panic!("step {at}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_disk_that_refuses_a_step_is_named_and_leaves_the_old_or_the_new_baselines() {
    for (before, newest) in beginnings() {
        let whole = ModelDisk::holding(&before);
        file().save_to(&whole, &learned(newest + 1), NOW).unwrap();
        for at in 0..whole.steps() {
            for errno in [Errno::NOSPC, Errno::IO, Errno::ROFS, Errno::DQUOT] {
                for trouble in [Trouble::Once(at, errno), Trouble::ForGood(at, errno)] {
                    refused(&before, newest, trouble, errno);
                }
            }
        }
    }
}

fn refused(before: &Tree, newest: u64, trouble: Trouble, errno: Errno) {
    let disk = ModelDisk::holding(before).with_trouble(trouble);
    let error = file().save_to(&disk, &learned(newest + 1), NOW).unwrap_err();
    let told = crate::sample::describe(&error);
    assert!(told.starts_with("cannot save baselines: cannot "), "{told}");
    assert!(
        told.contains("state/baselines: ") && told.ends_with(&io::Error::from(errno).to_string()),
        "{told}"
    );
    for survival in disk.survivals(Cut::Power) {
        assert!([newest, newest + 1].contains(&comes_back(&survival)), "{trouble:?} {survival:?}");
    }
    // The disk comes back to its senses while the agent goes on.
    let again = ModelDisk::holding(&disk.tree());
    file().save_to(&again, &learned(newest + 1), NOW).unwrap();
    assert_eq!(comes_back(&again.tree()), newest + 1);
}

#[test]
fn a_permission_that_is_lost_for_good_is_named_and_loses_nothing() {
    let before = saved(2);
    let whole = ModelDisk::holding(&before);
    file().save_to(&whole, &learned(3), NOW).unwrap();
    for at in 0..whole.steps() {
        let disk = ModelDisk::holding(&before).with_trouble(Trouble::ForGood(at, Errno::ACCESS));
        file().save_to(&disk, &learned(3), NOW).unwrap_err();
        for survival in disk.survivals(Cut::Power) {
            assert!([2, 3].contains(&comes_back(&survival)), "{at}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_copy_before_is_taken() {
    for errno in [Errno::IO, Errno::ACCESS] {
        let disk = ModelDisk::holding(&saved(2)).with_trouble(Trouble::Once(0, errno));
        let loaded = file().load_from(&disk, NOW);
        assert_eq!((number_of(&loaded.baselines), loaded.origin), (1, BaselineOrigin::Backup));
        let warning = loaded.warning.unwrap();
        assert!(
            warning.contains("state/baselines cannot be read") && warning.contains("moved to"),
            "{warning}"
        );

        // Nothing can be read: they begin anew and say so, and both files are still there for whoever can.
        let disk = ModelDisk::holding(&saved(2)).with_trouble(Trouble::ForGood(0, errno));
        let loaded = file().load_from(&disk, NOW);
        assert!(loaded.baselines.is_empty() && matches!(loaded.origin, BaselineOrigin::Reset { .. }));
        assert!(loaded.warning.unwrap().contains("cannot be moved aside"));
        assert_eq!(disk.tree(), saved(2));
    }
}

#[test]
fn three_hundred_cuts_in_a_row_never_lose_more_than_the_save_that_was_cut() {
    // Numbers that repeat: a linear congruence decides where each save is cut and what survives.
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let (mut tree, mut newest, mut losses) = (saved(1), 1, 0);
    for _ in 0..300 {
        // Few enough names that a save stays small.
        let next = newest % 40 + 1;
        let disk = DISKS[random(2)](&tree).with_trouble(Trouble::Cut(random(16)));
        let is_saved = file().save_to(&disk, &learned(next), NOW).is_ok();
        let mut survivals = disk.survivals(Cut::Power);
        tree = survivals.swap_remove(random(survivals.len()));
        let came_back = comes_back(&tree);
        assert!(came_back == next || (!is_saved && came_back == newest), "{newest}, {next}: {came_back}");
        losses += u64::from(came_back == newest);
        newest = came_back;
    }
    assert!((20..280).contains(&losses), "{losses} saves lost");
}
