//! Tests the store over one that tears objects, loses answers and fails at every step, and over real folders.

mod signing;
mod tearing;

use std::collections::BTreeMap;
use std::sync::Arc;

use flownet_runtime::snapshot::{Share, StatePart};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

use self::tearing::TearingStore;
use super::*;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

fn part(uid: &str, bytes: Vec<u8>) -> StatePart {
    StatePart { uid: uid.into(), name: "state".into(), share: Share::All { subtask: 0 }, bytes }
}

/// Returns the state of a task in checkpoint `number` of `generation`.
fn content(generation: u64, number: u64, task: u32) -> Vec<StatePart> {
    let text = format!("{generation}/{number}/{task}");
    let pieces = (0..PIECES).map(|piece| part(&format!("#{task}"), format!("{text}/{piece}").into_bytes()));
    let parts = [part(&format!("#{task}"), text.repeat(3).into_bytes()), part("empty", Vec::new())];
    pieces.chain(parts).collect()
}

/// Number of leading parts of each task that are written as pieces.
const PIECES: u8 = 2;

const TASKS: u32 = 2;
/// Worlds per test; `SEEDS=10000 cargo test -p flownet-store` simulates more.
const SEEDS: u64 = 1_000;

fn manifest(generation: u64, checkpoint: u64, tasks: Vec<TaskEntry>) -> Manifest {
    Manifest {
        generation,
        checkpoint,
        job: "job".into(),
        origin: None,
        triggered_ms: 0,
        duration_ms: 1,
        max_parallelism: 128,
        operators: vec![],
        tasks,
    }
}

async fn write(claim: &FencingToken, checkpoint: u64) -> Result<Manifest, StoreError> {
    let generation = claim.generation();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let name = SnapshotName { generation, checkpoint, vertex: task, subtask: 0, overtaken: false };
        let mut parts = content(generation, checkpoint, task);
        let mut writer = claim.store().begin_snapshot(name);
        for piece in parts.drain(..usize::from(PIECES)) {
            writer.write_piece(piece).await?;
        }
        let snapshot = writer.finish(parts).await?;
        let uids = vec![format!("#{task}")];
        tasks.push(TaskEntry { uids, subtask: 0, has_finished: false, parts: snapshot.parts });
    }
    Ok(manifest(generation, checkpoint, tasks))
}

async fn check_content(store: &CheckpointStore, manifest: &Manifest) {
    for (number, task) in (0..).zip(&manifest.tasks) {
        let parts = store.read_parts(&task.parts).await.expect("what was published can be read");
        assert_eq!(parts, content(manifest.generation, manifest.checkpoint, number));
    }
}

/// Simulated world. Its attempts crash at a random step; some of them are not dead but still running in the background.
struct World {
    tearing: Arc<TearingStore>,
    store: CheckpointStore,
    /// Last confirmed checkpoint, and later ones with unknown outcome.
    confirmed: Option<(u64, u64)>,
    unknown: Vec<(u64, u64)>,
    zombies: Vec<FencingToken>,
    rng: fastrand::Rng,
    published: u64,
}

impl World {
    fn new(tearing: TearingStore, seed: u64) -> Self {
        let tearing = Arc::new(tearing);
        let store = CheckpointStore::over(Arc::<TearingStore>::clone(&tearing), "memory", None);
        let (unknown, zombies, rng) = (Vec::new(), Vec::new(), fastrand::Rng::with_seed(seed));
        Self { tearing, store, confirmed: None, unknown, zombies, rng, published: 0 }
    }

    async fn attempt(&mut self) -> Result<(), StoreError> {
        self.tearing.crash_after(self.rng.u64(0..60));
        let (mut claim, resumed) = self.store.claim().await?;
        let found = resumed.as_ref().map(|manifest| (manifest.generation, manifest.checkpoint));
        assert!(
            found == self.confirmed || found.is_some_and(|found| self.unknown.contains(&found)),
            "went on from {found:?}, confirmed {:?}, perhaps {:?}",
            self.confirmed,
            self.unknown
        );
        if let Some(manifest) = &resumed {
            self.tearing.calmly(check_content(&self.store, manifest)).await;
            assert!(claim.next_checkpoint() > manifest.checkpoint);
        }
        (self.confirmed, self.unknown) = (found, Vec::new());
        for checkpoint in (claim.next_checkpoint()..).take(self.rng.usize(0..4)) {
            self.zombies_try(&claim).await;
            if self.rng.u8(0..8) == 0 {
                // An aborted checkpoint has left some of its files.
                let name = SnapshotName {
                    generation: claim.generation(),
                    checkpoint,
                    vertex: 0,
                    subtask: 0,
                    overtaken: false,
                };
                self.store.write_snapshot(name, content(0, 0, 0)).await?;
                continue;
            }
            let written = write(&claim, checkpoint).await?;
            let this = (claim.generation(), checkpoint);
            match claim.publish(&written).await {
                Ok(()) => {
                    self.confirmed = Some(this);
                    self.published += 1;
                }
                Err(PublishError::Unknown(error)) => {
                    self.unknown.push(this);
                    return Err(error);
                }
                Err(PublishError::NotPublished(error)) => return Err(error),
            }
            claim.sweep(self.rng.usize(0..3)).await?;
        }
        if self.rng.bool() {
            self.zombies.push(claim);
        }
        Ok(())
    }

    /// Attempts of earlier generations try to publish at any time, and must fail.
    async fn zombies_try(&mut self, now: &FencingToken) {
        let Some(zombie) = self.zombies.last_mut() else { return };
        let tearing = Arc::clone(&self.tearing);
        let tried = tearing.calmly(async {
            let checkpoint = 1000 + now.next_checkpoint() + u64::from(self.rng.u32(0..1_000_000));
            let written = write(zombie, checkpoint).await.expect("room");
            let tried = zombie.publish(&written).await;
            let _ = zombie.sweep(1).await;
            tried
        });
        match tried.await {
            Err(PublishError::NotPublished(StoreError::Fenced { generation, by, .. })) => {
                assert!(generation < by, "{generation} fenced by {by}");
            }
            other => panic!("a generation that was left behind published: {other:?}"),
        }
        if self.rng.bool() {
            self.zombies.pop();
        }
    }
}

#[test]
fn whatever_step_it_crashes_at_a_job_goes_on_from_the_last_checkpoint_that_counted() {
    crash_everywhere(TearingStore::new);
}

#[test]
fn the_same_holds_in_an_object_store_that_loses_answers_and_is_busy_at_times() {
    crash_everywhere(TearingStore::remote);
}

#[test]
fn of_two_that_begin_at_the_same_place_one_has_the_right_though_answers_are_lost() {
    block_on(async {
        for seed in 0..SEEDS {
            let store = || {
                let tearing = TearingStore::remote(InMemory::new(), seed);
                CheckpointStore::over(Arc::new(tearing), "memory", None)
            };
            let store = store();
            let (one, other) = futures::future::join(store.claim(), store.claim()).await;
            if let (Ok((one, _)), Ok((other, _))) = (one, other) {
                assert_ne!(one.generation(), other.generation(), "seed {seed}");
            }
        }
    });
}

fn crash_everywhere(tearing: fn(InMemory, u64) -> TearingStore) {
    let (mut published, mut crashes) = (0, 0);
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    block_on(async {
        for seed in 0..seeds {
            let mut world = World::new(tearing(InMemory::new(), seed), seed);
            for _ in 0..8 {
                crashes += u64::from(world.attempt().await.is_err());
            }
            published += world.published;
        }
    });
    // The world must have enough published checkpoints and enough crashes to be a useful test.
    assert!(published > 2 * seeds && crashes > 2 * seeds, "{published} published, {crashes} crashes");
}

#[test]
fn checkpoints_are_kept_in_a_folder_and_what_is_not_retained_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}/job", folder.path().display());
    block_on(async {
        let store = CheckpointStore::open(&url).expect("a place");
        let (mut claim, resumed) = store.claim().await.expect("nobody else");
        assert_eq!((resumed, claim.generation(), claim.next_checkpoint()), (None, 1, 1));
        for checkpoint in 1..=4 {
            let written = write(&claim, checkpoint).await.expect("room");
            claim.publish(&written).await.expect("room");
            claim.sweep(2).await.expect("nothing in the way");
        }
        let numbers = |listed: &[ListedCheckpoint]| -> Vec<_> {
            listed.iter().map(|listed| (listed.manifest.checkpoint, listed.is_last)).collect()
        };
        let listed =
            CheckpointStore::existing(&url).expect("it is there").checkpoints().await.expect("whole").checkpoints;
        assert_eq!(numbers(&listed), [(3, false), (4, true)]);
        assert!(!folder.path().join("job/gen-1/chk-2").exists(), "folders go with what was in them");

        // The next attempt resumes, and the previous one is fenced.
        let (mut next, resumed) = store.claim().await.expect("always");
        check_content(&store, &resumed.expect("a checkpoint")).await;
        assert_eq!((next.generation(), next.next_checkpoint()), (2, 5));
        let late = write(&claim, 5).await.expect("room");
        let error = claim.publish(&late).await.expect_err("left behind");
        assert!(
            matches!(&error, PublishError::NotPublished(StoreError::Fenced { generation: 1, by: 2, .. })),
            "{error:?}"
        );
        let written = write(&next, 5).await.expect("room");
        next.publish(&written).await.expect("the right");
        next.sweep(1).await.expect("nothing in the way");
        let listed = store.checkpoints().await.expect("whole").checkpoints;
        assert_eq!(numbers(&listed), [(5, true)]);
        assert!(!folder.path().join("job/gen-1").exists());
    });
}

#[test]
fn what_is_kept_in_a_folder_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a folder");
    let mode = |path: &std::path::Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
    let given = folder.path().join("given");
    std::fs::create_dir(&given).expect("room");
    std::fs::set_permissions(&given, std::fs::Permissions::from_mode(0o755)).expect("its owner's");
    for top in [&given, &folder.path().join("made/for/it")] {
        block_on(async {
            let store = CheckpointStore::open(&top.display().to_string()).expect("a place");
            let (mut claim, _) = store.claim().await.expect("nobody else");
            let written = write(&claim, 1).await.expect("room");
            claim.publish(&written).await.expect("room");
        });
        let mut files = 0;
        let mut folders = vec![top.clone()];
        while let Some(one) = folders.pop() {
            for entry in std::fs::read_dir(&one).expect("a folder") {
                let path = entry.expect("an entry").path();
                let (is_folder, found) = (path.is_dir(), mode(&path));
                assert_eq!(found, if is_folder { 0o700 } else { 0o600 }, "{}", path.display());
                files += u32::from(!is_folder);
                folders.extend(is_folder.then_some(path));
            }
        }
        assert!(files > 3, "{files}");
    }
    assert_eq!(
        (mode(&given), mode(&folder.path().join("made"))),
        (0o755, 0o700),
        "a folder that was there is left as it is"
    );
}

#[test]
fn files_that_a_retained_checkpoint_refers_to_stay_whoever_wrote_them() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        let store = CheckpointStore::open(&folder.path().display().to_string()).expect("a place");
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let first = write(&claim, 1).await.expect("room");
        claim.publish(&first).await.expect("room");
        // The first task has finished, so the next checkpoint carries over its state.
        let (mut claim, resumed) = store.claim().await.expect("always");
        let mut second = write(&claim, 2).await.expect("room");
        second.tasks[0] = resumed.expect("the first").tasks[0].clone();
        claim.publish(&second).await.expect("room");
        claim.sweep(1).await.expect("nothing in the way");
        let (_, resumed) = store.claim().await.expect("always");
        let parts = store.read_parts(&resumed.expect("the second").tasks[0].parts).await.expect("still there");
        assert_eq!(parts, content(1, 1, 0));
        assert!(folder.path().join("gen-1/chk-1/0000-0.snap").exists());
        assert!(!folder.path().join("gen-1/chk-1/0001-0.snap").exists());
    });
}

/// Returns an incremental or complete part with the markers that the store checks.
fn part_of(checkpoint: u64, is_of_changes: bool) -> StatePart {
    part("count", vec![1, if is_of_changes { 3 } else { 1 }, checkpoint as u8])
}

/// Job of one task whose snapshots build on each other.
struct BuildsOn {
    claim: FencingToken,
    lineage: Lineage,
}

impl BuildsOn {
    async fn publish(&mut self, checkpoint: u64, base: Option<u64>) -> Result<(), PublishError> {
        let name =
            SnapshotName { generation: self.claim.generation(), checkpoint, vertex: 0, subtask: 0, overtaken: false };
        let store = self.claim.store().clone();
        let written = store.write_snapshot(name, vec![part_of(checkpoint, base.is_some())]).await.expect("room");
        let parts = self.lineage.extend(name, base, written, &store).map_err(PublishError::NotPublished)?.parts;
        let task = TaskEntry { uids: vec!["count".into()], subtask: 0, has_finished: false, parts };
        let manifest = manifest(self.claim.generation(), checkpoint, vec![task]);
        let published = self.claim.publish(&manifest).await;
        self.claim.sweep(1).await.expect("nothing in the way");
        published
    }

    /// Returns the numbers of the checkpoints that contribute to the last one.
    async fn last(&self) -> Vec<u8> {
        let last = self.claim.store().last_checkpoint().await.expect("whole").expect("one");
        let parts = self.claim.store().read_parts(&last.tasks[0].parts).await.expect("still there");
        parts.iter().map(|part| part.bytes[2]).collect()
    }
}

#[test]
fn what_comes_in_pieces_stands_upon_pieces_in_their_order() {
    block_on(async {
        let store = CheckpointStore::over(Arc::new(InMemory::new()), "memory", None);
        let mut lineage = Lineage::default();
        let mut taken = async |checkpoint: u64, base: Option<u64>, pieces: &[u8]| {
            let name = SnapshotName { generation: 1, checkpoint, vertex: 0, subtask: 0, overtaken: false };
            let mut writer = store.begin_snapshot(name);
            for piece in pieces {
                writer.write_piece(part_of(u64::from(*piece), base.is_some())).await?;
            }
            // The part in memory builds on the pieces on disk, even if no older parts precede those.
            let written = writer.finish(vec![part_of(10 * checkpoint, !pieces.is_empty() || base.is_some())]).await?;
            let extended = lineage.extend(name, base, written, &store)?;
            let read = store.read_parts(&extended.parts).await?;
            let is_piece: Vec<_> = extended.parts.iter().map(|part| part.is_piece).collect();
            Ok::<_, StoreError>((read.iter().map(|part| part.bytes[2]).collect::<Vec<_>>(), is_piece))
        };
        let first = taken(1, None, &[1, 2]).await.expect("room");
        assert_eq!(first, (vec![1, 2, 10], vec![true, true, false]));
        assert_eq!(taken(2, Some(1), &[3, 4]).await.expect("room").0, [1, 2, 10, 3, 4, 20]);
        assert_eq!(taken(3, Some(2), &[]).await.expect("room").0, [1, 2, 10, 3, 4, 20, 30]);
        assert_eq!(taken(4, None, &[5]).await.expect("room").0, [5, 40]);
        let error = taken(5, Some(9), &[6]).await.expect_err("nobody knows it");
        assert!(matches!(error, StoreError::Baseless { .. }), "{error:?}");
    });
}

#[test]
fn what_a_next_checkpoint_may_build_on_stays_and_it_builds_on_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let is_there = |checkpoint: u64| folder.path().join(format!("gen-1/chk-{checkpoint}")).exists();
    block_on(async {
        let store = CheckpointStore::open(&folder.path().display().to_string()).expect("a place");
        let (claim, _) = store.claim().await.expect("nobody else");
        let mut job = BuildsOn { claim, lineage: Lineage::default() };
        job.publish(1, None).await.expect("room");
        job.publish(2, Some(1)).await.expect("room");
        // The task did not know yet that the second checkpoint was published.
        job.publish(3, Some(1)).await.expect("room");
        assert_eq!(job.last().await, [1, 3]);
        job.publish(4, Some(3)).await.expect("room");
        assert_eq!(job.last().await, [1, 3, 4]);
        job.publish(5, None).await.expect("room");
        assert!(is_there(1), "the next may build on the fourth");
        job.publish(6, Some(4)).await.expect("room");
        assert_eq!(job.last().await, [1, 3, 4, 6]);
        job.publish(7, None).await.expect("room");
        job.publish(8, None).await.expect("room");
        assert!(!is_there(1) && !is_there(6) && is_there(7));
        let error = job.publish(9, Some(6)).await.expect_err("it is gone");
        assert!(matches!(&error, PublishError::NotPublished(StoreError::Baseless { .. })), "{error:?}");
        let error = job.publish(10, Some(2)).await.expect_err("nobody knows it any more");
        assert!(matches!(&error, PublishError::NotPublished(StoreError::Baseless { .. })), "{error:?}");
        assert_eq!(job.last().await, [8]);
        job.claim.finish(1).await.expect("nothing in the way");
        assert!(!is_there(7) && is_there(8), "nothing is kept for a next one");
    });
}

#[test]
fn what_is_damaged_is_told_and_never_read_as_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    block_on(async {
        let store = CheckpointStore::open(&folder.path().display().to_string()).expect("a place");
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let written = write(&claim, 1).await.expect("room");
        claim.publish(&written).await.expect("room");
        let whole: BTreeMap<_, _> = ["gen-1/chk-1/manifest", "gen-1/chk-1/0000-0.snap"]
            .map(|path| (path, std::fs::read(at(path)).expect("a file")))
            .into();
        let read = async || {
            let (_, resumed) = store.claim().await?;
            store.read_parts(&resumed.expect("a checkpoint").tasks[0].parts).await
        };
        for (path, bytes) in &whole {
            for damaged in [&bytes[..bytes.len() / 2], b"", b"something else"] {
                std::fs::write(at(path), damaged).expect("a file");
                let error = read().await.expect_err("not what was written");
                assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
                assert!(error.to_string().contains(path), "{error}");
            }
            let mut newer = bytes.clone();
            newer[8] = 9;
            if path.ends_with("manifest") {
                std::fs::write(at(path), &newer).expect("a file");
                let error = read().await.expect_err("of another version").to_string();
                assert!(error.contains("is of format 9, this flownet reads format 1"), "{error}");
            }
            std::fs::write(at(path), bytes).expect("a file");
            assert_eq!(read().await.expect("whole again"), content(1, 1, 0));
        }
        // An unreadable entry of the log may be a checkpoint.
        let (_, before) = store.claim().await.expect("always");
        std::fs::write(at("epochs/notes.txt"), "of somebody").expect("a file");
        let (claim, resumed) = store.claim().await.expect("a foreign file says nothing");
        assert_eq!(resumed, before);
        let last = format!("epochs/{:010}", store.log().await.expect("whole").end);
        std::fs::write(at(&last), "torn").expect("a file");
        let error = store.claim().await.expect_err("it may be a newer checkpoint");
        assert!(error.is_damage() && error.to_string().contains(&last), "{error}");
        assert!(error.to_string().contains("restore_checkpoint=NUMBER"), "{error}");
        let listing = store.checkpoints().await.expect("to look at");
        assert_eq!((listing.damage.as_slice(), listing.checkpoints.len()), (&[error][..], 1));
        assert!(!listing.checkpoints[0].is_last);
        drop(claim);
    });
}

/// Returns a storage of three attempts with checkpoints, and the checkpoint to resume from. Two checkpoints are
/// retained.
async fn several_attempts() -> (InMemory, Manifest) {
    let memory = InMemory::new();
    let store = CheckpointStore::over(Arc::new(memory.fork()), "memory", None);
    let mut last = None;
    for _ in 0..3 {
        let (mut claim, _) = store.claim().await.expect("nobody else");
        for checkpoint in (claim.next_checkpoint()..).take(2) {
            let written = write(&claim, checkpoint).await.expect("room");
            claim.publish(&written).await.expect("room");
            claim.sweep(2).await.expect("nothing in the way");
            last = Some(written);
        }
    }
    let kept = memory.fork();
    for path in store.list(None).await.expect("room") {
        let bytes = store.store.get(&path).await.expect("there").bytes().await.expect("there");
        kept.put(&path, bytes.into()).await.expect("room");
    }
    (kept, last.expect("published"))
}

/// Begins a job in a storage. Returns the restored state, or the error that ends it at once.
async fn begin(memory: InMemory) -> Result<Vec<Vec<StatePart>>, StoreError> {
    let store = CheckpointStore::over(Arc::new(memory), "memory", None);
    let (_, resumed) = store.claim().await?;
    let mut state = Vec::new();
    for task in resumed.map(|manifest| manifest.tasks).unwrap_or_default() {
        state.push(store.read_parts(&task.parts).await?);
    }
    Ok(state)
}

#[test]
fn whatever_byte_or_length_is_damaged_a_job_begins_from_the_last_checkpoint_or_ends_at_once() {
    block_on(async {
        let (memory, last) = several_attempts().await;
        let right = begin(memory.fork()).await.expect("whole");
        assert_eq!(right.first(), Some(&content(last.generation, last.checkpoint, 0)));
        let objects: Vec<_> = memory.list(None).try_collect().await.expect("there");
        let (mut right_ones, mut refused) = (0, 0);
        for object in objects {
            let path = object.location;
            let bytes = memory.get(&path).await.expect("there").bytes().await.expect("there");
            let flipped = (0..bytes.len()).map(|at| {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 1 << (at % 8);
                flipped
            });
            let cut = (0..bytes.len()).map(|end| bytes[..end].to_vec());
            for damaged in flipped.chain(cut) {
                let copy = memory.fork();
                copy.put(&path, damaged.into()).await.expect("room");
                match begin(copy).await {
                    Ok(state) => {
                        assert_eq!(state, right, "{path} damaged");
                        right_ones += 1;
                    }
                    Err(error) => {
                        assert!(error.is_damage(), "{path} damaged: {error}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(right_ones > 100 && refused > 1_000, "{right_ones} right, {refused} refused");
    });
}

#[test]
fn a_job_never_begins_anew_because_the_log_or_entries_of_it_are_gone() {
    block_on(async {
        let (memory, _) = several_attempts().await;
        let right = begin(memory.fork()).await.expect("whole");
        let objects: Vec<_> = memory.list(None).try_collect().await.expect("there");
        let log: Vec<_> =
            objects.iter().map(|object| &object.location).filter(|path| log::place(path).is_some()).collect();
        let (first, last) = (log.iter().min().expect("an entry"), log.iter().max().expect("an entry"));
        for path in log.iter().filter(|path| path != &first && path != &last) {
            let copy = memory.fork();
            copy.delete(path).await.expect("there");
            assert!(begin(copy).await.map_or_else(|error| error.is_damage(), |state| state == right), "{path} gone");
        }
        let none = memory.fork();
        for path in &log {
            none.delete(path).await.expect("there");
        }
        let error = begin(none).await.expect_err("there are checkpoints");
        assert!(error.is_damage(), "{error}");
    });
}

#[test]
fn a_place_that_cannot_be_used_is_refused_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    for (url, culprit) in [
        (format!("{}/sub", file.display()), "cannot make the folder"),
        ("hdfs://host/c".to_owned(), "hdfs: is not supported"),
    ] {
        let error = CheckpointStore::open(&url).expect_err("no place").to_string();
        assert!(error.contains(&url) && error.contains(culprit), "{error}");
    }
    let missing = format!("{}/none", folder.path().display());
    assert!(CheckpointStore::existing(&missing).is_err() && !folder.path().join("none").exists());
}

#[test]
fn a_savepoint_is_whole_alone_and_nobody_goes_on_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    block_on(async {
        let store = CheckpointStore::open(&at("job")).expect("a place");
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let mut written = write(&claim, 1).await.expect("room");
        claim.publish(&written).await.expect("room");
        // A task's state is carried over: its file belongs to the earlier checkpoint.
        let carried = written.tasks.remove(0);
        let mut second = write(&claim, 2).await.expect("room");
        second.tasks[0] = carried;
        claim.publish(&second).await.expect("room");
        let to = CheckpointStore::open(&at("saved")).expect("a place");
        let saved = store.save(&second, &to).await.expect("room");
        assert_eq!((saved.checkpoint, saved.origin.as_deref()), (2, Some(&*second.identity())));
        let taken = store.save(&second, &to).await.expect_err("there is one");
        assert!(matches!(taken, StoreError::Taken { .. }), "{taken}");
        let taken = to.save(&saved, &store).await.expect_err("a job's own");
        assert!(matches!(taken, StoreError::Taken { .. }), "{taken}");
        std::fs::remove_dir_all(folder.path().join("job")).expect("the job's own folder");

        let error = to.claim().await.expect_err("it stays as it is");
        assert!(matches!(error, StoreError::Savepoint { .. }), "{error}");
        let listed = CheckpointStore::existing(&at("saved"))
            .expect("it is there")
            .checkpoints()
            .await
            .expect("whole")
            .checkpoints;
        assert_eq!(listed.len(), 1);
        // A job begins from the savepoint and continues its numbers.
        let other = CheckpointStore::open(&at("other")).expect("a place");
        let (mut claim, _) = other.claim().await.expect("nobody else");
        let from = to.last_checkpoint().await.expect("whole").expect("one");
        let copied = claim.adopt(&to, &from).await.expect("room");
        assert_eq!((copied.checkpoint, claim.next_checkpoint()), (2, 3));
        let (_, resumed) = other.claim().await.expect("always");
        let resumed = resumed.expect("the copy");
        assert_eq!(resumed, copied);
        assert_eq!(other.read_parts(&resumed.tasks[0].parts).await.expect("whole"), content(1, 1, 0));
        assert_eq!(other.read_parts(&resumed.tasks[1].parts).await.expect("whole"), content(1, 2, 1));
    });
}

#[test]
fn a_savepoint_that_was_given_up_at_any_step_is_none_and_is_taken_again() {
    block_on(async {
        let memory = || CheckpointStore::over(Arc::new(InMemory::new()), "memory", None);
        let store = memory();
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let written = write(&claim, 7).await.expect("room");
        claim.publish(&written).await.expect("room");
        let mut steps = 0;
        for seed in 0..4 {
            for step in 1.. {
                let tearing = Arc::new(TearingStore::new(InMemory::new(), seed));
                let to = CheckpointStore::over(Arc::<TearingStore>::clone(&tearing), "torn", None);
                tearing.crash_after(step);
                if store.save(&written, &to).await.is_ok() {
                    break;
                }
                steps += 1;
                tearing.crash_after(u64::MAX);
                if to.last_checkpoint().await.expect("told well or not at all").is_none() {
                    store.save(&written, &to).await.expect("nothing in the way");
                }
                let saved = to.last_checkpoint().await.expect("whole").expect("one");
                assert_eq!(to.read_parts(&saved.tasks[1].parts).await.expect("whole"), content(1, 7, 1));
            }
        }
        assert!(steps > 20, "{steps}");
    });
}
