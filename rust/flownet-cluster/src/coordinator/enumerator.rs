//! Lists the inputs of a job's sources once, and distributes the splits to their subtasks.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::PathBuf,
};

use flownet_runtime::{
    source::{DEFAULT_SPLIT_BYTES, SourceError, TextSplits},
    spec::{FilePath, OperatorKind},
};

use crate::plan::Plan;

/// Gives every operator that reads text the splits of its subtask. Workers on this machine read the same files that are
/// listed here. Other workers may have copies.
pub(super) fn enumerate(plan: &mut Plan, is_one_machine: bool) -> Result<(), SourceError> {
    let list = |paths: &[FilePath]| {
        let paths: Vec<PathBuf> = paths.iter().map(FilePath::to_path).collect();
        let splits = TextSplits::plan(&paths, DEFAULT_SPLIT_BYTES)?;
        Ok::<_, SourceError>(if is_one_machine { splits } else { splits.as_copies() })
    };
    let mut listed: BTreeMap<u32, TextSplits> = BTreeMap::new();
    for task in &mut plan.tasks {
        let (subtask, parallelism) = (task.spec.subtask, task.spec.parallelism);
        for operator in &mut task.spec.operators {
            let OperatorKind::ReadText { paths, splits, .. } = &mut operator.kind else { continue };
            let all = match listed.entry(operator.id) {
                Entry::Occupied(all) => all.into_mut(),
                Entry::Vacant(place) => place.insert(list(paths)?),
            };
            *splits = all.of_subtask(subtask, parallelism);
        }
    }
    Ok(())
}
