//! Without a fuzzer: every target takes its corpus, and the seeds in it are those that correct peers make today.

use std::path::{Path, PathBuf};
use std::{fs, io};

use flownet_fuzz::TARGETS;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

#[test]
fn every_target_takes_its_corpus() -> io::Result<()> {
    for target in TARGETS {
        let mut taken = 0;
        for entry in fs::read_dir(folder(target.name))? {
            (target.run)(&fs::read(entry?.path())?);
            taken += 1;
        }
        assert!(taken > 0, "{} has no corpus", target.name);
    }
    Ok(())
}

#[test]
fn the_seeds_are_what_correct_peers_send() {
    for target in TARGETS {
        for (name, bytes) in (target.seeds)() {
            let path = folder(target.name).join(name);
            let kept = fs::read(&path).unwrap_or_default();
            assert_eq!(kept, bytes, "{} is stale or missing: make fuzz-seeds", path.display());
        }
    }
}

#[test]
fn every_target_takes_its_seeds_cut_and_changed_anywhere() {
    for target in TARGETS {
        for (_, bytes) in (target.seeds)() {
            for at in 0..bytes.len() {
                (target.run)(&bytes[..at]);
                for change in [0x01, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] ^= change;
                    (target.run)(&changed);
                }
            }
        }
    }
}
