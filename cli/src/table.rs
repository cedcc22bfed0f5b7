//! Tables for people: columns that align, text that cannot move the cursor.

use std::{borrow::Cow, fmt};

/// Rows under a header. The last column is not padded.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column's title, and whether its cells end at the same place (numbers) or begin there.
#[derive(Clone)]
pub struct Column {
    title: Cow<'static, str>,
    right: bool,
}

/// A column of text.
pub fn left(title: impl Into<Cow<'static, str>>) -> Column {
    Column { title: title.into(), right: false }
}

/// A column of numbers.
pub fn right(title: impl Into<Cow<'static, str>>) -> Column {
    Column { title: title.into(), right: true }
}

impl Table {
    /// An empty table.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row with one cell per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([self.columns[column].title.chars().count()]).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let titles = self.columns.iter().map(|column| printable(&column.title)).collect();
        for row in [&titles].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, column), width) in row.iter().zip(&self.columns).zip(&widths) {
                let pad = " ".repeat(width - cell.chars().count());
                let (before, after) = if column.right { (pad.as_str(), "") } else { ("", pad.as_str()) };
                line.extend([before, cell, after, "  "]);
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `text` with control characters escaped: names, keys and log lines come from strangers.
pub fn printable(text: &str) -> String {
    if !text.contains(|c: char| c.is_control() && c != '\t') {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len() + 8), |mut out, c| {
        if c.is_control() && c != '\t' {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut table = Table::new([left("NAME"), right("SIZE"), left("WHEN")]);
        table.row(["é".into(), "12 B".into(), "now".into()]);
        table.row(["longer\u{1b}[2J".into(), "5 MiB".into(), "then".into()]);
        let text = table.to_string();
        let wanted = "\
NAME              SIZE  WHEN
é                 12 B  now
longer\\u{1b}[2J  5 MiB  then
";
        assert_eq!(text, wanted);
    }
}
