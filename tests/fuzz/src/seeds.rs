//! Writes the seeds of every target to the folder given, as `TARGET/NAME`.

use std::path::PathBuf;
use std::{env, fs, io};

use flownet_fuzz::TARGETS;

fn main() -> io::Result<()> {
    let corpus = PathBuf::from(env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?);
    for target in TARGETS {
        let folder = corpus.join(target.name);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in (target.seeds)() {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
