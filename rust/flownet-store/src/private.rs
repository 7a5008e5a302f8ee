//! Protects local checkpoints from other users: they contain the job's data, and restoring them runs code.
//!
//! Folders are created with mode 0700 before any file is written to them. Other users therefore cannot open a file
//! while it is written. Files get mode 0600. A folder that already existed keeps its mode.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Creates a folder and its missing parents, durably.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|above| !above.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    // A new entry is durable only once its parent folder is synced.
    missing.iter().filter_map(|made| made.parent()).try_for_each(|above| File::open(above)?.sync_all())
}

/// Allows only its owner to read and write a file.
pub(crate) fn protect(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, Permissions::from_mode(FILE_MODE))
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
