//! libFuzzer over the target that `FUZZ_TARGET` names.
#![no_main]

use std::sync::OnceLock;

use flownet_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<&Target> = OnceLock::new();

fuzz_target!(|data: &[u8]| (TARGET.get_or_init(chosen).run)(data));

fn chosen() -> &'static Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("FUZZ_TARGET is '{name}', it must be one of: {}", names.join(", "));
        std::process::exit(2);
    })
}
