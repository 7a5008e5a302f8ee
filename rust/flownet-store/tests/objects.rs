//! Checkpoints in a server that speaks S3: `make test-objects` starts one and runs these.
#![cfg(feature = "cloud")]

use flownet_runtime::snapshot::{Share, StatePart};
use flownet_store::{CheckpointStore, FencingToken, Manifest, PublishError, SnapshotName, StoreError, TaskEntry};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn content(checkpoint: u64) -> Vec<StatePart> {
    let bytes = checkpoint.to_le_bytes().repeat(1000);
    let part = StatePart { uid: "counts".into(), name: "fold".into(), share: Share::All { subtask: 0 }, bytes };
    vec![part.clone(), part]
}

async fn write(claim: &FencingToken, checkpoint: u64) -> Manifest {
    let generation = claim.generation();
    let name = SnapshotName { generation, checkpoint, vertex: 0, subtask: 0, overtaken: false };
    let mut writer = claim.store().begin_snapshot(name);
    let mut parts = content(checkpoint);
    writer.write_piece(parts.remove(0)).await.expect("room");
    let snapshot = writer.finish(parts).await.expect("room");
    let task = TaskEntry { uids: vec!["counts".into()], subtask: 0, has_finished: false, parts: snapshot.parts };
    Manifest {
        generation,
        checkpoint,
        job: "job".into(),
        origin: None,
        triggered_ms: 0,
        duration_ms: 1,
        max_parallelism: 128,
        operators: vec![],
        tasks: vec![task],
    }
}

/// A folder of the bucket that nobody else has.
fn place(name: &str) -> String {
    format!("s3://flownet/{}-{:x}/{name}", std::process::id(), fastrand::u64(..))
}

#[test]
#[ignore = "needs a server: make test-objects"]
fn a_job_goes_on_in_a_bucket_and_who_was_left_behind_is_fenced() {
    let url = place("job");
    block_on(async {
        let store = CheckpointStore::open(&url).expect("the environment says where");
        let (mut claim, resumed) = store.claim().await.expect("nobody else");
        assert!(resumed.is_none());
        for checkpoint in 1..=3 {
            let written = write(&claim, checkpoint).await;
            claim.publish(&written).await.expect("the right");
            claim.sweep(2).await.expect("nothing in the way");
        }
        let listed = CheckpointStore::existing(&url).expect("a bucket").checkpoints().await.expect("whole").checkpoints;
        assert_eq!(listed.iter().map(|one| one.manifest.checkpoint).collect::<Vec<_>>(), [2, 3]);
        let (mut next, resumed) = store.claim().await.expect("always");
        let resumed = resumed.expect("the third");
        assert_eq!((resumed.checkpoint, next.generation(), next.next_checkpoint()), (3, 2, 4));
        assert_eq!(store.read_parts(&resumed.tasks[0].parts).await.expect("whole"), content(3));
        let late = write(&claim, 4).await;
        let error = claim.publish(&late).await.expect_err("left behind");
        assert!(matches!(&error, PublishError::NotPublished(StoreError::Fenced { .. })), "{error:?}");
        let written = write(&next, 4).await;
        next.publish(&written).await.expect("the right");
    });
}

#[test]
#[ignore = "needs a server: make test-objects"]
fn a_savepoint_goes_from_a_bucket_to_a_folder_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    block_on(async {
        let store = CheckpointStore::open(&place("job")).expect("the environment says where");
        let (mut claim, _) = store.claim().await.expect("nobody else");
        let written = write(&claim, 7).await;
        claim.publish(&written).await.expect("the right");
        let local = CheckpointStore::open(&folder.path().display().to_string()).expect("a folder");
        let saved = store.save(&written, &local).await.expect("room");
        let url = place("saved");
        let there = CheckpointStore::open(&url).expect("the environment says where");
        local.save(&saved, &there).await.expect("room");
        let error = there.claim().await.expect_err("it stays as it is");
        assert!(matches!(error, StoreError::Savepoint { .. }), "{error}");
        let again = CheckpointStore::existing(&url).expect("a bucket").last_checkpoint().await.expect("whole");
        let parts = there.read_parts(&again.expect("one").tasks[0].parts).await.expect("whole");
        assert_eq!(parts, content(7));
    });
}

#[test]
#[ignore = "needs a server: make test-objects"]
fn of_many_that_begin_at_once_each_gets_a_generation_of_its_own() {
    let store = CheckpointStore::open(&place("job")).expect("the environment says where");
    let claims = block_on(async { futures::future::join_all((0..8).map(|_| store.claim())).await });
    let mut generations: Vec<u64> = claims.into_iter().map(|claim| claim.expect("always").0.generation()).collect();
    generations.sort_unstable();
    assert_eq!(generations, (1..=8).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs a server: make test-objects"]
fn a_bucket_that_is_not_there_is_told_with_its_name() {
    let store = CheckpointStore::open("s3://no-such-bucket/job").expect("known when it is read");
    let error = block_on(store.claim()).expect_err("no bucket").to_string();
    assert!(error.contains("s3://no-such-bucket/job"), "{error}");
}
