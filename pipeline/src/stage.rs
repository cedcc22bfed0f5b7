//! What a pipeline computes: steps, fused into stages.
//!
//! A [`Pipeline`] is built anew in the driver and in every task, by the same function: closures do not travel. Steps in a
//! row that need the same resources are one stage, and pass rows on within one task.

use fanfold::{Error, Result};

use crate::{rows::Row, schedule::Shape};

/// What a task of a stage occupies while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Slots, in thousandths of a cpu; at least 1.
    pub cpu_millis: u32,
    /// Bytes of memory of its instance; `None`: as the manifest says.
    pub memory: Option<u64>,
    /// GPUs.
    pub gpu: u32,
    /// Custom resources.
    pub custom: Vec<(String, u32)>,
}

impl Needs {
    /// So many thousandths of a cpu, and nothing else.
    pub fn cpu(millis: u32) -> Self {
        Self { cpu_millis: millis, memory: None, gpu: 0, custom: Vec::new() }
    }

    /// And so many bytes of memory.
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// And so many GPUs.
    pub fn gpu(self, count: u32) -> Self {
        Self { gpu: count, ..self }
    }

    /// And so many of a custom resource.
    pub fn custom(mut self, name: &str, count: u32) -> Self {
        self.custom.push((name.to_owned(), count));
        self
    }
}

/// What is done with a row on which a step fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnError {
    /// The pipeline fails, with an error that names step, split or partition, and row.
    Fail,
    /// The row goes to a dead-letter partition of the report, with the reason; of a batch, all its rows. After this many
    /// rows the pipeline fails all the same. Dead letters do not count against the memory limit.
    Skip(u64),
}

/// The rows of a split, in order.
pub type RowIter = Box<dyn Iterator<Item = Result<Row>>>;

pub(crate) type ReadFn<S> = Box<dyn Fn(&S, u64) -> Result<RowIter>>;
type EachFn = Box<dyn FnMut(&[u8]) -> Result<Vec<Row>>>;
type BatchFn = Box<dyn FnMut(&[Row]) -> Result<Vec<Row>>>;

/// A step of a task that runs, with its state.
pub(crate) enum Loaded {
    Each(EachFn),
    Batch(BatchFn),
}

/// A step.
pub(crate) struct Step {
    pub name: String,
    pub load: Box<dyn Fn() -> Result<Loaded>>,
}

/// Steps that run in one task.
pub(crate) struct Stage {
    pub needs: Needs,
    pub steps: Vec<Step>,
    pub batch: u64,
    pub stateful: bool,
    pub rows_max: Option<u64>,
    /// Each of its rows becomes one: a step that wants batches gets them from the batches of the stage.
    even: bool,
}

impl Stage {
    fn new(needs: Needs) -> Self {
        Self { needs, steps: Vec::new(), batch: 1, stateful: false, rows_max: None, even: true }
    }
}

/// Steps from splits to rows, and where the rows go. See [`crate`] for an example.
pub struct Pipeline<S> {
    pub(crate) read: ReadFn<S>,
    pub(crate) stages: Vec<Stage>,
    /// Before the names of objects, if rows are written.
    pub(crate) objects: Option<String>,
    pub(crate) on_error: OnError,
    next: Needs,
}

impl<S> Pipeline<S> {
    /// Begins with the rows of splits: `read` gives those of one split, in order, from a row on. It is called again for
    /// the same split, from where a task stopped, and must give the same rows. An error ends the pipeline.
    pub fn read(needs: Needs, read: impl Fn(&S, u64) -> Result<RowIter> + 'static) -> Self {
        let stages = vec![Stage::new(needs.clone())];
        Self { read: Box::new(read), stages, objects: None, on_error: OnError::Fail, next: needs }
    }

    /// What the following steps need. Until then: as those before.
    pub fn needs(mut self, needs: Needs) -> Self {
        self.next = needs;
        self
    }

    /// What is done where a step fails.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Makes one row of each.
    pub fn map(self, name: &str, map: impl Fn(&[u8]) -> Result<Row> + Clone + 'static) -> Self {
        self.each(name, true, move |row| Ok(vec![map(row)?]))
    }

    /// Keeps some rows.
    pub fn filter(self, name: &str, keep: impl Fn(&[u8]) -> Result<bool> + Clone + 'static) -> Self {
        self.each(name, false, move |row| Ok(if keep(row)? { vec![row.to_vec()] } else { Vec::new() }))
    }

    /// Makes any number of rows of each.
    pub fn flat_map(self, name: &str, map: impl Fn(&[u8]) -> Result<Vec<Row>> + Clone + 'static) -> Self {
        self.each(name, false, map)
    }

    fn each(
        mut self,
        name: &str,
        even: bool,
        map: impl Fn(&[u8]) -> Result<Vec<Row>> + Clone + 'static,
    ) -> Self {
        let load = move || Ok(Loaded::Each(Box::new(map.clone())));
        let stage = self.stage(1);
        stage.even &= even;
        stage.steps.push(Step { name: name.to_owned(), load: Box::new(load) });
        self
    }

    /// Makes rows of `rows` rows at a time; of fewer at the end of a task's input, which is put together of several
    /// partitions where rows may come in any order. `load` makes the step's state, once for each task: a task is given
    /// the more input the more waits.
    pub fn map_batches<M: 'static>(
        mut self,
        name: &str,
        rows: u64,
        load: impl Fn() -> Result<M> + 'static,
        map: impl Fn(&mut M, &[Row]) -> Result<Vec<Row>> + Clone + 'static,
    ) -> Self {
        let load = move || {
            let (mut state, map) = (load()?, map.clone());
            Ok(Loaded::Batch(Box::new(move |rows: &[Row]| map(&mut state, rows))))
        };
        let stage = self.stage(rows.max(1));
        (stage.stateful, stage.even) = (true, false);
        stage.steps.push(Step { name: name.to_owned(), load: Box::new(load) });
        self
    }

    /// Passes on this many rows, whichever come first, and ends the pipeline.
    pub fn limit(mut self, rows: u64) -> Self {
        if let Some(stage) = self.stages.last_mut() {
            stage.rows_max = Some(rows);
        }
        self
    }

    /// Ends with objects: the rows' bytes one after the other, an object for each task of the last stage. The objects'
    /// names are `prefix` and numbers. With [`crate::Settings::ordered`] or a checkpoint they sort as the rows do and are
    /// the same each time; without, every job wants a prefix of its own.
    pub fn write(mut self, prefix: &str) -> Self {
        // A limit counts rows before they are written.
        if self.stages.last().is_some_and(|stage| stage.rows_max.is_some()) {
            self.stages.push(Stage::new(self.next.clone()));
        }
        self.objects = Some(prefix.to_owned());
        self
    }

    /// The stage of the next step. A step that wants batches is fused with what leaves them as they are: a task stops
    /// between batches.
    fn stage(&mut self, batch: u64) -> &mut Stage {
        let fits = |stage: &Stage| {
            let batches = batch == 1 || stage.even;
            stage.needs == self.next && stage.rows_max.is_none() && batches
        };
        if !self.stages.last().is_some_and(fits) {
            self.stages.push(Stage::new(self.next.clone()));
        }
        let last = self.stages.len() - 1;
        let stage = &mut self.stages[last];
        stage.batch = stage.batch.max(batch);
        stage
    }

    /// A stage's name: those of its steps.
    pub(crate) fn name(&self, stage: usize) -> String {
        let read = (stage == 0).then_some("read");
        let write = (self.objects.is_some() && stage + 1 == self.stages.len()).then_some("write");
        let steps = self.stages.get(stage).into_iter().flat_map(|stage| &stage.steps).map(|step| &*step.name);
        read.into_iter().chain(steps).chain(write).collect::<Vec<_>>().join("+")
    }

    /// What the scheduler knows of the stages. `resources` are the names after cpu and gpu.
    ///
    /// # Errors
    /// `invalid` where a stage needs more of something than there is.
    pub(crate) fn shapes(&self, capacity: &[u32], resources: &[&str]) -> Result<Vec<Shape>> {
        let shape = |(n, stage): (usize, &Stage)| {
            let name = self.name(n);
            let custom = |wanted: &&str| -> u32 {
                stage.needs.custom.iter().filter(|(name, _)| name == wanted).map(|(_, count)| count).sum()
            };
            let mut needs = vec![stage.needs.cpu_millis, stage.needs.gpu];
            needs.extend(resources.iter().map(custom));
            let unknown = stage.needs.custom.iter().find(|(name, _)| !resources.contains(&name.as_str()));
            if unknown.is_some() || needs.iter().zip(capacity).any(|(needs, there)| needs > there) {
                return Err(Error::invalid(format!(
                    "stage `{name}` needs {:?}, the settings' capacity has less",
                    stage.needs
                )));
            }
            let (batch, stateful, rows_max) = (stage.batch, stage.stateful, stage.rows_max);
            let sink = self.objects.is_some() && n + 1 == self.stages.len();
            Ok(Shape { name, needs, batch, stateful, rows_max, sink })
        };
        self.stages.iter().enumerate().map(shape).collect()
    }
}
