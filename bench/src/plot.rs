//! Line plots as SVG: a few curves over a few values, with names beside them.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result};

const COLORS: [&str; 6] = ["#0b6e4f", "#a23b72", "#c98a00", "#2e5eaa", "#b3401f", "#555555"];
/// Where the curves are, in pixels: the margins hold what is written.
const LEFT: f64 = 60.0;
const TOP: f64 = 34.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 280.0;
/// Of the vertical axis.
const TICKS: usize = 6;

/// A curve: its name, and for each value of the horizontal axis what there is of the vertical one.
pub type Curve = (String, Vec<Option<f64>>);

/// What is drawn.
pub struct Plot<'a> {
    /// Above it.
    pub title: &'a str,
    /// Of the horizontal axis, with its unit.
    pub x_name: &'a str,
    /// Of the vertical axis, with its unit.
    pub y_name: &'a str,
    /// The values of the horizontal axis, at least two, ascending.
    pub x: &'a [f64],
    /// The vertical axis' least and greatest value; what is above it is drawn at its upper edge.
    pub y: (f64, f64),
    /// What is drawn.
    pub curves: &'a [Curve],
}

impl Plot<'_> {
    /// Writes it to a file.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.svg()).with_context(|| format!("could not write {}", path.display()))
    }

    fn svg(&self) -> String {
        let mut svg = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 366\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"780\" height=\"366\" fill=\"white\"/>\n",
        );
        svg += &text(LEFT + WIDTH / 2.0, 18.0, "middle", self.title);
        self.axes(&mut svg);
        for (n, (name, values)) in self.curves.iter().enumerate() {
            self.curve(&mut svg, n, name, values);
        }
        svg + "</svg>\n"
    }

    /// Where a value of the horizontal axis is.
    fn x(&self, value: f64) -> f64 {
        let (first, last) = (self.x.first().copied().unwrap_or(0.0), self.x.last().copied().unwrap_or(1.0));
        LEFT + (value - first) / (last - first) * WIDTH
    }

    /// Where a value of the vertical axis is.
    fn y(&self, value: f64) -> f64 {
        let (least, most) = self.y;
        TOP + (most - value.min(most)) / (most - least) * HEIGHT
    }

    fn axes(&self, svg: &mut String) {
        let (least, most) = self.y;
        for tick in 0..TICKS {
            let value = least + (most - least) * tick as f64 / (TICKS - 1) as f64;
            let at = self.y(value);
            let end = LEFT + WIDTH;
            let _ = write!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"
            );
            *svg += &text(LEFT - 6.0, at + 4.0, "end", &number(value));
        }
        let below = TOP + HEIGHT;
        for value in self.x {
            *svg += &text(self.x(*value), below + 18.0, "middle", &number(*value));
        }
        *svg += &text(LEFT + WIDTH / 2.0, below + 40.0, "middle", self.x_name);
        let middle = TOP + HEIGHT / 2.0;
        let turned = format!("transform=\"rotate(-90 14 {middle})\" text-anchor=\"middle\"");
        let _ = writeln!(svg, "<text x=\"14\" y=\"{middle}\" {turned}>{}</text>", self.y_name);
    }

    /// One curve: the line through its points, these, and its name.
    fn curve(&self, svg: &mut String, n: usize, name: &str, values: &[Option<f64>]) {
        let color = COLORS[n % COLORS.len()];
        let points: Vec<(f64, f64)> =
            self.x.iter().zip(values).filter_map(|(x, y)| Some((self.x(*x), self.y((*y)?)))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let line = format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>");
        let _ = writeln!(svg, "<polyline points=\"{}\" {line}", path.join(" "));
        for (x, y) in points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
        }
        let at = TOP + 10.0 + 20.0 * n as f64;
        let _ = writeln!(svg, "<line x1=\"636\" x2=\"656\" y1=\"{at}\" y2=\"{at}\" {line}");
        *svg += &text(662.0, at + 4.0, "start", name);
    }
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

/// With as many places as its size wants.
fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 || value >= 100.0 {
        return format!("{value:.0}");
    }
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_run_from_edge_to_edge_and_leave_out_what_is_not_there() {
        let curves = [("a".to_owned(), vec![Some(0.0), None, Some(30.0)])];
        let plot = Plot {
            title: "t",
            x_name: "x",
            y_name: "y",
            x: &[1.0, 2.0, 3.0],
            y: (0.0, 20.0),
            curves: &curves,
        };
        let svg = plot.svg();
        assert!(svg.contains("points=\"60.0,314.0 620.0,34.0\""), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
