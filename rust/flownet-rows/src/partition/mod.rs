//! Distributes rows to folders that are named by their values. Rows of each folder are gathered until all folders
//! together reach a memory limit, so that each write is as large as memory allows.

mod folder;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use hashbrown::HashMap;

use self::folder::Folders;
use crate::layout::{Layout, UnsupportedType};
use crate::row_block::{Gather, MalformedRun};
use crate::scatter::Scatter;

/// Limit of gathered bytes, exceeded by at most one batch. It equals the buffer of one row group of a file.
const MOST_BYTES: usize = 64 << 20;
/// Memory of an empty column per folder, in bytes.
const COLUMN_BYTES: usize = 1 << 10;
/// Limit of a row block in bytes. Larger ones have no benefit within one process.
const RUN_BYTES: usize = 4 << 20;

/// Gathers rows by folder.
pub struct Partitions {
    /// Columns that name folders.
    columns: Vec<usize>,
    folders: Folders,
    /// All other columns.
    others: Vec<usize>,
    layout: Arc<Layout>,
    /// Encodes the partition columns, so that rows of one partition have equal bytes.
    converter: RowConverter,
    scatter: Scatter,
    gathered: BTreeMap<String, FolderRows>,
    bytes: usize,
    most_bytes: usize,
}

/// Rows that wait for one folder.
struct FolderRows {
    rows: Gather,
    bytes: usize,
}

/// Reasons why rows have no folder.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The column does not exist, or a value cannot be formatted.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// A column has a type that rows cannot have.
    #[error(transparent)]
    Type(#[from] UnsupportedType),
    /// The rows exceed the limits of a batch.
    #[error(transparent)]
    TooLong(#[from] MalformedRun),
}

impl Partitions {
    /// Creates partitions of rows with this schema, by these columns, outermost first.
    pub fn new(schema: &Schema, columns: &[String]) -> Result<Self, PartitionError> {
        Self::with_room(schema, columns, MOST_BYTES)
    }

    fn with_room(schema: &Schema, columns: &[String], most_bytes: usize) -> Result<Self, PartitionError> {
        let places = columns.iter().map(|column| schema.index_of(column)).collect::<Result<Vec<_>, _>>()?;
        let others: Vec<usize> = (0..schema.fields().len()).filter(|place| !places.contains(place)).collect();
        let layout = Arc::new(Layout::new(Arc::new(schema.project(&others)?))?);
        let fields = places.iter().map(|place| SortField::new(schema.field(*place).data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(Self {
            columns: places,
            folders: Folders::new(columns),
            others,
            converter,
            scatter: Scatter::new(Arc::clone(&layout), RUN_BYTES),
            layout,
            gathered: BTreeMap::new(),
            bytes: 0,
            most_bytes,
        })
    }

    /// Returns the schema of the files, which lack the columns that name folders.
    pub fn schema(&self) -> &SchemaRef {
        self.layout.schema()
    }

    /// Returns the prefixes of folder names, outermost first.
    pub fn levels(&self) -> Vec<String> {
        self.folders.levels().to_vec()
    }

    /// Adds the rows of a batch to their folders.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), PartitionError> {
        let (of_row, folders) = self.folders_of(batch)?;
        let others = batch.project(&self.others)?;
        let Self { scatter, gathered, layout, bytes, .. } = self;
        scatter.by_target(&others, of_row.into_iter(), folders.len(), |target, run| {
            let of_folder = match gathered.entry(folders[target as usize].clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let empty_bytes = COLUMN_BYTES * layout.schema().flattened_fields().len();
                    *bytes += empty_bytes;
                    entry.insert(FolderRows { rows: Gather::new(Arc::clone(layout)), bytes: empty_bytes })
                }
            };
            of_folder.bytes += run.len();
            *bytes += run.len();
            of_folder.rows.push(run).map_err(PartitionError::from)
        })
    }

    /// Returns the folder index of each row, and the names of the folders.
    fn folders_of(&self, batch: &RecordBatch) -> Result<(Vec<u32>, Vec<String>), ArrowError> {
        let columns: Vec<_> = self.columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
        let rows = self.converter.convert_columns(&columns)?;
        let mut numbers = HashMap::new();
        // First row of each folder.
        let mut firsts = Vec::new();
        let of_row = rows.iter().enumerate().map(|(place, row)| {
            *numbers.entry(row).or_insert_with(|| {
                firsts.push(place);
                firsts.len() as u32 - 1
            })
        });
        let of_row = of_row.collect();
        Ok((of_row, self.folders.names(&columns, &firsts)?))
    }

    /// Takes the rows of the largest folder if the memory limit is exceeded. Call it until it returns none.
    pub fn take_surplus(&mut self) -> Result<Option<(String, RecordBatch)>, PartitionError> {
        if self.bytes <= self.most_bytes {
            return Ok(None);
        }
        let largest = self.gathered.iter().max_by_key(|(_, gathered)| gathered.bytes);
        let largest = largest.map(|(folder, _)| folder.clone());
        let taken = largest.and_then(|folder| self.gathered.remove_entry(&folder));
        self.taken(taken)
    }

    /// Takes the rows of the first folder.
    pub fn take_first(&mut self) -> Result<Option<(String, RecordBatch)>, PartitionError> {
        let taken = self.gathered.pop_first();
        self.taken(taken)
    }

    fn taken(&mut self, taken: Option<(String, FolderRows)>) -> Result<Option<(String, RecordBatch)>, PartitionError> {
        let Some((folder, mut gathered)) = taken else { return Ok(None) };
        self.bytes -= gathered.bytes;
        Ok(Some((folder, gathered.rows.take()?)))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field};
    use proptest::prelude::*;

    use super::*;

    fn batch(rows: &[(Option<i64>, String)], first: i64) -> RecordBatch {
        let fields = [("n", DataType::Int64, false), ("day", DataType::Int64, true), ("text", DataType::Utf8, false)];
        let fields = fields.map(|(name, data_type, nullable)| Field::new(name, data_type, nullable));
        let numbers = Int64Array::from_iter_values(first..first + rows.len() as i64);
        let days: Int64Array = rows.iter().map(|(day, _)| *day).collect();
        let texts = StringArray::from_iter_values(rows.iter().map(|(_, text)| text));
        let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(numbers), Arc::new(days), Arc::new(texts)];
        RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).unwrap()
    }

    /// Returns the expected folder name. The row itself encodes it.
    fn folder((day, text): &(Option<i64>, String)) -> String {
        day.map_or(format!("day={}/text={text}", folder::MISSING), |day| format!("day={day}/text={text}"))
    }

    proptest! {
        #[test]
        fn each_row_comes_to_its_folder_once_and_memory_is_bounded(
            batches in proptest::collection::vec(
                proptest::collection::vec((proptest::option::of(-2i64..3), "[ab]{0,2}"), 0..60), 0..6),
            most_bytes in 0usize..20_000,
        ) {
            let by = ["day".to_owned(), "text".to_owned()];
            let mut partitions = Partitions::with_room(&batch(&[], 0).schema(), &by, most_bytes).unwrap();
            let (mut found, mut expected, mut first) = (Vec::new(), Vec::new(), 0);
            let mut keep = |(folder, batch): (String, RecordBatch)| {
                let numbers = batch.column(0).as_primitive::<Int64Type>().values();
                found.extend(numbers.iter().map(|number| (*number, folder.clone())));
            };
            for rows in &batches {
                partitions.add(&batch(rows, first)).unwrap();
                while let Some(taken) = partitions.take_surplus().unwrap() {
                    keep(taken);
                }
                prop_assert!(partitions.bytes <= most_bytes);
                expected.extend((first..).zip(rows.iter().map(folder)));
                first += rows.len() as i64;
            }
            while let Some(taken) = partitions.take_first().unwrap() {
                keep(taken);
            }
            prop_assert_eq!(partitions.bytes, 0);
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
