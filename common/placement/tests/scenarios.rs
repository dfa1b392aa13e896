//! Every scenario in `tests/scenarios` holds, and prints what its golden file says.
//!
//! `USHER_BLESS=1 cargo test -p usher-placement --test scenarios` writes the golden files anew; read the difference
//! before it is kept.

use std::{fs, path::PathBuf};

use usher_placement::scenario;

/// The scenarios, by name.
fn scenarios() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut texts: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    texts.sort();
    assert!(!texts.is_empty(), "there is no scenario");
    texts
}

#[test]
fn every_scenario_holds_and_prints_what_its_golden_file_says() {
    let bless = std::env::var_os("USHER_BLESS").is_some();
    let mut wrong = Vec::new();
    for path in scenarios() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let run = match scenario::run(&fs::read_to_string(&path).unwrap()) {
            Ok(run) => run,
            Err(errors) => {
                wrong.extend(errors.iter().map(|error| format!("{name}:{error}")));
                continue;
            }
        };
        if !run.holds() {
            let failures = run.failures().map(ToString::to_string);
            let stopped = run.stopped.iter().map(ToString::to_string);
            wrong.extend(failures.chain(stopped).map(|what| format!("{name}: {what}")));
        }
        if run.checked == 0 {
            wrong.push(format!("{name}: it expects nothing"));
        }
        let golden = path.with_extension("golden");
        let printed = run.to_string();
        if bless {
            fs::write(&golden, &printed).unwrap();
        } else if fs::read_to_string(&golden).ok().as_deref() != Some(printed.as_str()) {
            wrong.push(format!("{name} prints, and {} says otherwise:\n{printed}", golden.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_same_text_gives_the_same_events_and_each_is_one_json_object() {
    for path in scenarios() {
        let text = fs::read_to_string(&path).unwrap();
        let run = || scenario::run(&text).unwrap();
        let first = run();
        assert_eq!(first, run(), "{}", path.display());
        for event in &first.events {
            let json = serde_json::to_value(event).unwrap();
            assert!(json["line"].is_u64() && json["at_s"].is_number(), "{json}");
            assert!(json["event"].is_string(), "{json}");
            assert!(!event.to_string().is_empty());
        }
    }
}
