//! A job's tasks and how its partitions were made.
//!
//! A [`GraphView`] is also what is kept of a recorded job after its end: as MessagePack with field names, in one object
//! beside its logs. Fields can be added with a default.

use serde::{Deserialize, Serialize};

use crate::{Code, Digest, Error, ExecutorId, Kind, PartitionId, TaskId};

/// `GET /v1/jobs/{id}/graph`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphView {
    /// Tasks in the order they were called; the root first. At most 10,000 with 200,000 inputs and outputs in all, then
    /// `truncated`.
    pub tasks: Vec<GraphTask>,
    /// Whether there is more.
    pub truncated: bool,
}

/// One task of a job's graph.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphTask {
    /// The task.
    pub id: TaskId,
    /// Who called it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<TaskId>,
    /// Which entry.
    pub entry: String,
    /// The version of the function that it runs. Unknown of a task that only the log of an earlier epoch tells of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<Digest>,
    /// `waiting`, `runnable`, `running`, `blocked`, `committed` or `failed`.
    pub state: String,
    /// Partitions that are its arguments, or that its arguments name, as `<task>.<output>`.
    #[serde(default, with = "partitions")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub inputs: Vec<PartitionId>,
    /// What it made so far.
    #[serde(default)]
    pub outputs: Vec<OutputView>,
    /// Attempts so far.
    pub attempts: u32,
    /// Where its last attempt ran or runs. Unknown of a task that committed before its owner's last restart, as are
    /// the times.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub executor: Option<ExecutorId>,
    /// When its first attempt began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at_ms: Option<u64>,
    /// When it committed or failed for good.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at_ms: Option<u64>,
    /// Bytes of its outputs.
    pub output_bytes: u64,
    /// Its attempts that have ended or run, in the order they began, as far as this epoch of its owner knows: the first and the last
    /// 31. Two may overlap: a slow one may have a backup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunView>,
}

/// One attempt of a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunView {
    /// Its number.
    pub attempt: u32,
    /// Where. Unknown of one whose executor was gone before it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub executor: Option<ExecutorId>,
    /// When it began.
    pub started_at_ms: u64,
    /// When it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at_ms: Option<u64>,
    /// Whether its outputs were taken: it neither failed nor was lost or stopped.
    #[serde(default)]
    pub committed: bool,
}

/// One output that a task made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputView {
    /// Which; `put` ones count from 2147483648.
    pub output: u32,
    /// Its size; 0 for an alias.
    pub bytes: u64,
    /// crc32c of its bytes; none of an alias, or of one that is not known any more.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub crc32c: Option<u32>,
    /// Partitions that it is an alias of, or that its bytes name, as far as it still keeps them.
    #[serde(skip_serializing_if = "Vec::is_empty", default, with = "partitions")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub refers: Vec<PartitionId>,
}

/// `GET /v1/partitions/{id}/lineage`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LineageView {
    /// The partition, as `<task>.<output>`.
    pub partition: String,
    /// The task that makes it.
    pub task: GraphTask,
    /// The version of the function that makes it.
    pub version: Digest,
    /// The attempt whose output was committed.
    pub attempt: u32,
    /// Lineage of the partitions it was made from, and of those it refers to, to a depth of 16.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    pub inputs: Vec<LineageView>,
}

impl GraphView {
    /// What is stored of it.
    pub fn encode(&self) -> Vec<u8> {
        // Named MessagePack of these types cannot fail: there is no map with non-string keys and no writer.
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }

    /// The graph in `bytes`.
    ///
    /// # Errors
    /// `lost` / `corrupt` where they are none of this or an older version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        rmp_serde::from_slice(bytes).map_err(|e| unreadable("a task graph", &e))
    }
}

impl GraphTask {
    /// What is told of it alone.
    pub fn encode(&self) -> Vec<u8> {
        // As for `GraphView::encode`.
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }

    /// The task in `bytes`.
    ///
    /// # Errors
    /// `lost` / `corrupt` where they are none of this or an older version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        rmp_serde::from_slice(bytes).map_err(|e| unreadable("a task", &e))
    }

    /// What it made as output `output`, if it has.
    pub fn output(&self, output: u32) -> Option<&OutputView> {
        self.outputs.iter().find(|made| made.output == output)
    }
}

fn unreadable(what: &str, error: &rmp_serde::decode::Error) -> Error {
    let why = format!("what is kept of {what} cannot be read ({error}): it was written by a newer version");
    Error::new(Kind::Lost, Code::Corrupt, why)
}

/// Partitions: `<task>.<output>` where people read them, pairs elsewhere.
mod partitions {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use crate::{PartitionId, TaskId};

    pub(super) fn serialize<S: Serializer>(ids: &[PartitionId], to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_seq(ids.iter().map(ToString::to_string))
        } else {
            ids.iter().map(|id| (id.task, id.output)).collect::<Vec<_>>().serialize(to)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PartitionId>, D::Error> {
        if !from.is_human_readable() {
            let pairs = Vec::<(TaskId, u32)>::deserialize(from)?;
            return Ok(pairs.into_iter().map(|(task, output)| PartitionId { task, output }).collect());
        }
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_survives_both_encodings() {
        let id = |n: u8| PartitionId { task: TaskId([n; 16]), output: u32::from(n) };
        let task = GraphTask {
            id: id(1).task,
            parent: None,
            entry: "map".into(),
            version: Some(Digest::of(b"v")),
            state: "committed".into(),
            inputs: vec![id(2), id(3)],
            outputs: vec![OutputView { output: 1, bytes: 9, crc32c: Some(7), refers: vec![id(4)] }],
            attempts: 2,
            executor: Some(ExecutorId(5)),
            started_at_ms: Some(6),
            ended_at_ms: None,
            output_bytes: 9,
            runs: vec![RunView {
                attempt: 1,
                executor: None,
                started_at_ms: 6,
                ended_at_ms: Some(7),
                committed: false,
            }],
        };
        let graph = GraphView { tasks: vec![task], truncated: true };
        let json = serde_json::to_value(&graph).unwrap();
        assert_eq!(json["tasks"][0]["inputs"][0], id(2).to_string());
        assert_eq!(serde_json::from_value::<GraphView>(json).unwrap(), graph);
        assert_eq!(GraphView::decode(&graph.encode()).unwrap(), graph);
        assert!(GraphView::decode(b"no graph").is_err());
    }
}
