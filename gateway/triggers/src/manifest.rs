//! The objects of a batch as a table: what a function gets with `input = "manifest"`.
//!
//! One row for each event, in their order, as a stream of Arrow's IPC format with one record batch, so that the SDK reads it like any
//! partition of record batches. Source: the Arrow columnar format, "IPC Streaming Format".

use std::{io::Cursor, ops::Range, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use bytes::Bytes;
use fanfold_protocol::{Error, trigger::Change};

use crate::{CloudEvent, ObjectChange};

/// Its media type.
pub const MEDIA_TYPE: &str = "application/vnd.apache.arrow.stream";

/// The table of these events, all of which tell of objects.
///
/// | column | type | |
/// |---|---|---|
/// | `key` | text | |
/// | `bytes` | 64-bit number or null | null for a removed object |
/// | `etag`, `version` | text or null | |
/// | `change` | text | `created` or `removed` |
/// | `at_ms` | 64-bit number | when it was seen: Unix milliseconds |
/// | `bucket` | text or null | null for the platform's own objects |
/// | `metadata` | text | the attributes of its event, as a JSON object |
///
/// # Errors
/// `invalid` / `event` for one that is no object's; `platform` for a table that cannot be made.
pub fn write(events: &[CloudEvent]) -> Result<Bytes, Error> {
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        let change = ObjectChange::of(event)?;
        rows.push(change.ok_or_else(|| crate::event::refuse("a manifest is made of objects' events"))?);
    }
    let texts = |of: fn(&ObjectChange) -> Option<&str>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let metadata = events.iter().map(|event| serde_json::to_string(event.attributes()).ok());
    let columns: [(&str, bool, ArrayRef); 8] = [
        ("key", false, texts(|row| Some(&row.key))),
        ("bytes", true, Arc::new(rows.iter().map(|row| row.bytes).collect::<UInt64Array>())),
        ("etag", true, texts(|row| row.etag.as_deref())),
        ("version", true, texts(|row| row.version.as_deref())),
        (
            "change",
            false,
            texts(|row| Some(if row.change == Change::Created { "created" } else { "removed" })),
        ),
        ("at_ms", false, Arc::new(rows.iter().map(|row| Some(row.at_ms)).collect::<UInt64Array>())),
        ("bucket", true, texts(|row| row.bucket.as_deref())),
        ("metadata", true, Arc::new(metadata.collect::<StringArray>())),
    ];
    let field = |(name, nullable, column): &(&str, bool, ArrayRef)| {
        let kind: DataType = column.data_type().clone();
        Field::new(*name, kind, *nullable)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, _, column)| column).collect();
    let table = RecordBatch::try_new(Arc::new(schema), columns).map_err(|e| broken(&e))?;
    encode(&table)
}

/// A table that [`write()`] made, to be cut.
#[derive(Clone, Debug)]
pub struct Table(RecordBatch);

impl Table {
    /// Reads one.
    ///
    /// # Errors
    /// `platform` where it is none.
    pub fn read(bytes: &Bytes) -> Result<Self, Error> {
        let mut reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(|e| broken(&e))?;
        let batch = reader.next().transpose().map_err(|e| broken(&e))?;
        batch.map(Self).ok_or_else(|| Error::internal("the manifest of a batch is empty"))
    }

    /// Some of its rows as a table of their own.
    ///
    /// # Errors
    /// `platform` where it has fewer.
    pub fn slice(&self, rows: Range<usize>) -> Result<Bytes, Error> {
        if rows.end > self.0.num_rows() || rows.start > rows.end {
            return Err(Error::internal("the manifest of a batch has fewer rows than the batch has events"));
        }
        encode(&self.0.slice(rows.start, rows.len()))
    }
}

fn encode(table: &RecordBatch) -> Result<Bytes, Error> {
    let mut stream = StreamWriter::try_new(Vec::new(), &table.schema()).map_err(|e| broken(&e))?;
    stream.write(table).and_then(|()| stream.finish()).map_err(|e| broken(&e))?;
    stream.into_inner().map(Bytes::from).map_err(|e| broken(&e))
}

fn broken(error: &ArrowError) -> Error {
    Error::internal(format!("the manifest of a batch: {error}"))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array as _, cast::AsArray as _, types::UInt64Type};

    use super::*;

    fn read(table: &Bytes) -> RecordBatch {
        let batches: Result<Vec<_>, _> = StreamReader::try_new(Cursor::new(table), None).unwrap().collect();
        let [batch] = batches.unwrap().try_into().unwrap();
        batch
    }

    #[test]
    fn a_table_has_a_row_for_each_object_and_can_be_cut() {
        let event = |n: u64| {
            let change = ObjectChange {
                bucket: None,
                key: format!("in/{n}"),
                change: if n == 2 { Change::Removed } else { Change::Created },
                bytes: (n != 2).then_some(n),
                etag: Some("e".into()),
                version: None,
                sequencer: None,
                at_ms: 100 + n,
            };
            change.event().unwrap()
        };
        let table = write(&[event(0), event(1), event(2)]).unwrap();
        let whole = read(&table);
        let keys = |batch: &RecordBatch| -> Vec<String> {
            batch["key"].as_string::<i32>().iter().map(|key| key.unwrap().to_owned()).collect()
        };
        assert_eq!(keys(&whole), ["in/0", "in/1", "in/2"]);
        assert!(whole["bytes"].is_null(2) && whole["version"].is_null(0));
        assert_eq!(whole["at_ms"].as_primitive::<UInt64Type>().value(1), 101);
        assert!(whole["metadata"].as_string::<i32>().value(0).contains("\"source\":\"/v1/objects\""));
        let rest = read(&Table::read(&table).unwrap().slice(1..3).unwrap());
        assert_eq!((keys(&rest), rest.schema()), (vec!["in/1".into(), "in/2".into()], whole.schema()));
        assert!(Table::read(&table).unwrap().slice(2..4).is_err());
        assert!(Table::read(&Bytes::from_static(b"[]")).is_err());
    }
}
