//! Tests signed state: data that was changed, moved, cut, or signed with another key is never read.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::keys::{KEY_VARIABLE, StateKeys};

const ONE: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

fn keys(text: &str) -> StateKeys {
    StateKeys::parse(text, KEY_VARIABLE).expect("long enough")
}

fn open(folder: &Path) -> CheckpointStore {
    CheckpointStore::open(&folder.display().to_string()).expect("a place")
}

/// Writes a storage with two checkpoints.
async fn written(folder: &Path, keys: StateKeys) -> Manifest {
    let store = open(folder).with_keys(keys);
    let (mut claim, _) = store.claim().await.expect("nobody else");
    for number in [1, 2] {
        let written = write(&claim, number).await.expect("room");
        claim.publish(&written).await.expect("room");
    }
    store.last_checkpoint().await.expect("whole").expect("the second")
}

/// Reads everything from which a job resumes.
async fn read(store: &CheckpointStore) -> Result<Manifest, StoreError> {
    let manifest = store.last_checkpoint().await?.expect("a checkpoint");
    for (number, task) in (0..).zip(&manifest.tasks) {
        let parts = store.read_parts(&task.parts).await?;
        let (generation, checkpoint) = (manifest.generation, manifest.checkpoint);
        assert_eq!(parts, content(generation, checkpoint, number), "nothing but what was written is decoded");
    }
    Ok(manifest)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Checks that a read returned the original state or an error. Returns true for an error.
fn refused_or_as_before(read: &Result<Manifest, StoreError>, before: &Manifest, how: &str) -> bool {
    match read {
        Ok(manifest) => assert_eq!(manifest, before, "{how}"),
        Err(StoreError::Signature { .. } | StoreError::Damaged { .. }) => return true,
        Err(error) => panic!("{how}: {error}"),
    }
    false
}

#[test]
fn signed_state_is_read_with_its_key_and_by_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        let before = written(folder.path(), keys(ONE)).await;
        let store = open(folder.path());
        assert_eq!(read(&store.clone().with_keys(keys(ONE))).await.expect("its key"), before);
        let changed = keys(&format!("{OTHER} {ONE}"));
        assert_eq!(read(&store.clone().with_keys(changed)).await.expect("one of the keys"), before);
        let error = read(&store.clone().with_keys(keys(OTHER))).await.expect_err("another key");
        assert!(matches!(&error, StoreError::Signature { why, .. } if why.contains("does not fit")), "{error}");
        let error = read(&store).await.expect_err("no key").to_string();
        assert!(error.contains("is signed, and is read without a key: set FLOWNET_STATE_KEY"), "{error}");
        assert!(store.claim().await.is_err(), "nobody goes on from it");
        // Processes without the key check parts by the digests of a manifest that another process has verified.
        store.read_parts(&before.tasks[0].parts).await.expect("whole");
    });
}

#[test]
fn unsigned_state_is_refused_where_there_is_a_key_and_can_be_signed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (job, signed) = (folder.path().join("job"), folder.path().join("signed"));
    block_on(async {
        let before = written(&job, StateKeys::default()).await;
        let error = read(&open(&job).with_keys(keys(ONE))).await.expect_err("no signature").to_string();
        assert!(error.contains("is not signed") && error.contains("--sign"), "{error}");
        let to = open(&signed).with_keys(keys(ONE));
        open(&job).save(&before, &to).await.expect("room");
        let copied = to.last_checkpoint().await.expect("whole").expect("one");
        let parts = to.read_parts(&copied.tasks[1].parts).await.expect("whole");
        assert_eq!(parts, content(1, 2, 1));
        assert!(open(&signed).last_checkpoint().await.is_err(), "it is signed");
    });
}

#[test]
fn a_part_without_a_digest_is_not_published_with_a_signature() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        let store = open(folder.path()).with_keys(keys(ONE));
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let mut written = write(&claim, 1).await.expect("room");
        written.tasks[0].parts[0].digest = None;
        let error = claim.publish(&written).await.expect_err("a part that nothing vouches for");
        assert!(matches!(&error, PublishError::NotPublished(StoreError::Signature { .. })), "{error:?}");
    });
}

#[test]
fn no_object_that_was_changed_cut_moved_or_exchanged_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (job, other) = (folder.path().join("job"), folder.path().join("other"));
    block_on(async {
        let before = written(&job, keys(ONE)).await;
        // A forgery: the same generation and checkpoints, signed with another key.
        written(&other, keys(OTHER)).await;
        let store = open(&job).with_keys(keys(ONE));
        let all = files(&job);
        let mut refused = 0;
        for file in &all {
            let bytes = fs::read(file).expect("a file");
            let mut try_with = async |changed: Option<&[u8]>, how: &str| {
                match changed {
                    Some(changed) => fs::write(file, changed).expect("a file"),
                    None => fs::remove_file(file).expect("a file"),
                }
                let how = format!("{how} {}", file.display());
                refused += usize::from(refused_or_as_before(&read(&store).await, &before, &how));
                fs::write(file, &bytes).expect("a file");
            };
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                try_with(Some(&changed), "changed").await;
            }
            for end in [0, 1, bytes.len() / 2, bytes.len() - 1, bytes.len().saturating_sub(32)] {
                try_with(Some(&bytes[..end]), "cut").await;
            }
            let forged = fs::read(other.join(file.strip_prefix(&job).expect("below it"))).expect("the same file");
            if forged != bytes {
                try_with(Some(&forged), "forged").await;
            }
            for exchanged in all.iter().filter(|one| *one != file) {
                try_with(Some(&fs::read(exchanged).expect("a file")), "exchanged").await;
            }
        }
        assert!(refused > 1_000, "{refused}");
        assert_eq!(read(&store).await.expect("as it was"), before);
    });
}

#[test]
fn state_with_a_checksum_that_fits_and_another_digest_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        let mut manifest = written(folder.path(), keys(ONE)).await;
        let part = &mut manifest.tasks[0].parts[0];
        let path = folder.path().join(&part.file);
        let mut bytes = fs::read(&path).expect("a file");
        let at = usize::try_from(part.offset).expect("small");
        bytes[at] ^= 1;
        fs::write(&path, &bytes).expect("a file");
        // CRC32C is not cryptographic: an attacker can find other bytes with the same checksum.
        part.crc = crc32c::crc32c(&bytes[at..at + usize::try_from(part.bytes).expect("small")]);
        let parts = std::slice::from_ref(&*part);
        let error = open(folder.path()).read_parts(parts).await.expect_err("another digest");
        assert!(matches!(&error, StoreError::Signature { .. }), "{error}");
    });
}

#[test]
fn a_checkpoint_that_is_put_at_another_number_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        written(folder.path(), keys(ONE)).await;
        let at = |number: u32| folder.path().join(format!("gen-1/chk-{number}/manifest"));
        fs::copy(at(1), at(2)).expect("a file");
        let error = read(&open(folder.path()).with_keys(keys(ONE))).await.expect_err("moved");
        assert!(matches!(&error, StoreError::Signature { path, .. } if path == "gen-1/chk-2/manifest"), "{error}");
    });
}
