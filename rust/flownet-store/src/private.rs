//! Keeps local checkpoints from other users: they hold the job's data, and restoring them runs code.
//!
//! Folders are made with mode 0700 before anything is written to them, so that no file can be opened by others while it is
//! written. Files get mode 0600. A folder that was there before keeps its mode.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes a folder and those above it that are missing, durably.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|above| !above.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    // An entry is durable when the folder that has it is.
    missing.iter().filter_map(|made| made.parent()).try_for_each(|above| File::open(above)?.sync_all())
}

/// Lets nobody but its owner read or write a file.
pub(crate) fn protect(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, Permissions::from_mode(FILE_MODE))
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
