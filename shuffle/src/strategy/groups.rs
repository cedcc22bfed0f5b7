//! Groups of reducers, and the merges of each: what `push` and `push_star` share.

use std::ops::Range;

use fanfold::{Durability, Placement, Result};

use crate::{
    Layout, Tasks,
    tasks::{Made, Reducers, at_least_one},
};

/// A run of neighbouring reducers whose columns are merged together.
#[derive(Debug)]
pub(crate) struct Group {
    reducers: Range<u32>,
    columns: Range<u32>,
    /// In the order in which they were submitted.
    pub merges: Vec<Made>,
}

impl Group {
    /// Submits the merge of this group's columns of `maps`. All merges of a group would like to be in one place: there
    /// its reducers then find their input.
    pub fn merge<'a, T: Tasks>(
        &mut self,
        tasks: &T,
        maps: impl IntoIterator<Item = &'a Made>,
    ) -> Result<Made> {
        let blocks = maps.into_iter().map(|map| map.blocks(self.columns.clone())).collect::<Result<_>>()?;
        let place =
            self.merges.first().map_or(Placement::Spread, |first| Placement::Near(first.partition.id()));
        let call = tasks.merge(self.columns.clone(), blocks).durability(Durability::None).placement(place);
        let merge = Made::submit(call)?;
        self.merges.push(merge.clone());
        Ok(merge)
    }
}

/// All groups: together, every reducer once.
#[derive(Debug)]
pub(crate) struct Groups {
    layout: Layout,
    pub list: Vec<Group>,
}

impl Groups {
    /// `count` groups, or one per reducer if there are fewer of these.
    pub fn new(layout: Layout, count: u32) -> Result<Self> {
        let count = at_least_one("the number of groups", count)?.min(layout.reducers());
        let group = |number| {
            let reducers = layout.of_group(number, count);
            Group { columns: layout.columns_of(&reducers), reducers, merges: Vec::new() }
        };
        Ok(Self { layout, list: (0..count).map(group).collect() })
    }

    /// One merge of `maps` in every group.
    pub fn merge_all<T: Tasks>(&mut self, tasks: &T, maps: &[Made]) -> Result<Vec<Made>> {
        self.list.iter_mut().map(|group| group.merge(tasks, maps)).collect()
    }

    /// Submits all reducers over their groups' merges.
    pub fn reduce<T: Tasks>(&self, tasks: &T, reducers: &mut Reducers<T::Reduced>) -> Result<()> {
        for group in &self.list {
            for reducer in group.reducers.clone() {
                reducers.submit(tasks, self.layout, reducer, group.columns.start, &group.merges)?;
            }
        }
        Ok(())
    }

    /// All merges.
    pub fn into_merges(self) -> Vec<Made> {
        self.list.into_iter().flat_map(|group| group.merges).collect()
    }
}
