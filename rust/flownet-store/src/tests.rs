//! The store over one that tears, loses, and answers wrongly, at every step; and over real folders.

mod tearing;

use std::collections::BTreeMap;
use std::sync::Arc;

use flownet_runtime::snapshot::{Share, StatePart};
use object_store::memory::InMemory;

use self::tearing::Tearing;
use super::*;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
}

fn part(uid: &str, bytes: Vec<u8>) -> StatePart {
    StatePart { uid: uid.into(), name: "state".into(), share: Share::All { subtask: 0 }, bytes }
}

/// What checkpoint `number` of `generation` keeps of a task.
fn content(generation: u64, number: u64, task: u32) -> Vec<StatePart> {
    let text = format!("{generation}/{number}/{task}");
    vec![part(&format!("#{task}"), text.repeat(3).into_bytes()), part("empty", Vec::new())]
}

const TASKS: u32 = 2;
/// Worlds of a run; `SEEDS=10000 cargo test -p flownet-store` simulates more.
const SEEDS: u64 = 1_000;

fn manifest(generation: u64, checkpoint: u64, tasks: Vec<TaskEntry>) -> Manifest {
    Manifest {
        generation,
        checkpoint,
        job: "job".into(),
        triggered_ms: 0,
        duration_ms: 1,
        max_parallelism: 128,
        operators: vec![],
        tasks,
    }
}

async fn write(claim: &Claim, checkpoint: u64) -> Result<Manifest, StoreError> {
    let generation = claim.generation();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let name = SnapshotName { generation, checkpoint, vertex: task, subtask: 0 };
        let snapshot = claim.store().write_snapshot(name, content(generation, checkpoint, task)).await?;
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

/// One world: attempts that crash at a random step, some of them not dead but only left behind.
struct World {
    tearing: Arc<Tearing>,
    store: CheckpointStore,
    /// The last one that was confirmed, and those behind it of which nobody knows.
    confirmed: Option<(u64, u64)>,
    unknown: Vec<(u64, u64)>,
    zombies: Vec<Claim>,
    rng: fastrand::Rng,
    published: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let tearing = Arc::new(Tearing::new(InMemory::new(), seed));
        let store = CheckpointStore { store: Arc::<Tearing>::clone(&tearing), url: "memory".into() };
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
                // One that was aborted half way: its files are there.
                let name = SnapshotName { generation: claim.generation(), checkpoint, vertex: 0, subtask: 0 };
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

    /// Those who were left behind publish nothing, whenever they try.
    async fn zombies_try(&mut self, now: &Claim) {
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
    let (mut published, mut crashes) = (0, 0);
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    block_on(async {
        for seed in 0..seeds {
            let mut world = World::new(seed);
            for _ in 0..8 {
                crashes += u64::from(world.attempt().await.is_err());
            }
            published += world.published;
        }
    });
    // The world is not so rough that nothing happens in it, nor so calm.
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
        let numbers = |listed: &[Listed]| -> Vec<_> {
            listed.iter().map(|listed| (listed.manifest.checkpoint, listed.is_last)).collect()
        };
        let listed = CheckpointStore::existing(&url).expect("it is there").checkpoints().await.expect("whole");
        assert_eq!(numbers(&listed), [(3, false), (4, true)]);
        assert!(!folder.path().join("job/gen-1/chk-2").exists(), "folders go with what was in them");

        // The next attempt goes on, and the one before is told.
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
        let listed = store.checkpoints().await.expect("whole");
        assert_eq!(numbers(&listed), [(5, true)]);
        assert!(!folder.path().join("job/gen-1").exists());
    });
}

#[test]
fn files_that_a_retained_checkpoint_refers_to_stay_whoever_wrote_them() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        let store = CheckpointStore::open(&folder.path().display().to_string()).expect("a place");
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let first = write(&claim, 1).await.expect("room");
        claim.publish(&first).await.expect("room");
        // Its first task has ended since, and what it kept is carried along.
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
                assert!(matches!(error, StoreError::Damaged { .. } | StoreError::Io { .. }), "{error}");
                assert!(error.to_string().contains(path), "{error}");
            }
            let mut newer = bytes.clone();
            newer[8] = 2;
            if path.ends_with("manifest") {
                std::fs::write(at(path), &newer).expect("a file");
                let error = read().await.expect_err("of another version").to_string();
                assert!(error.contains("is of format 2, this flownet reads format 1"), "{error}");
            }
            std::fs::write(at(path), bytes).expect("a file");
            assert_eq!(read().await.expect("whole again"), content(1, 1, 0));
        }
        // Entries that say nothing take a place, no more.
        let (_, before) = store.claim().await.expect("always");
        std::fs::write(at("epochs/0000000099"), "torn").expect("a file");
        std::fs::write(at("epochs/notes.txt"), "of somebody").expect("a file");
        let (mut claim, resumed) = store.claim().await.expect("always");
        assert_eq!(resumed, before);
        let written = write(&claim, 2).await.expect("room");
        claim.publish(&written).await.expect("behind the torn one");
    });
}

#[test]
fn a_place_that_cannot_be_used_is_refused_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    for (url, culprit) in [
        (format!("{}/sub", file.display()), "cannot make the folder"),
        ("s3://bucket".to_owned(), "s3: is not supported yet"),
    ] {
        let error = CheckpointStore::open(&url).expect_err("no place").to_string();
        assert!(error.contains(&url) && error.contains(culprit), "{error}");
    }
    let missing = format!("{}/none", folder.path().display());
    assert!(CheckpointStore::existing(&missing).is_err() && !folder.path().join("none").exists());
}
