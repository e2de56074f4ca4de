//! [`Chart`]: lines over two axes, written as SVG.

use std::ops::Range;
use std::path::Path;

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use crate::error::{Failure, Result};

/// The size of a picture, in pixels.
const SIZE: (u32, u32) = (760, 420);
/// The colours of lines, told apart also by those who see no red or no green (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0 on, evenly.
    Even,
    /// By their logarithm.
    Logarithmic,
}

/// What an axis means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// With the unit.
    pub label: &'static str,
    /// How values lie on it.
    pub scale: Scale,
}

/// A line: its name and its points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

/// A picture.
pub(crate) struct Chart {
    /// The name of the file, without its end.
    pub name: &'static str,
    /// The sentence above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From below upwards.
    pub y: Axis,
    /// Whether the names of the lines stand below on the right, and not above on the left: where there is room.
    pub is_key_below: bool,
    /// At most as many as there are colours.
    pub lines: Vec<Line>,
}

impl Chart {
    /// Writes the picture into `directory`.
    ///
    /// # Errors
    /// [`Failure::Chart`].
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(format!("{}.svg", self.name));
        let area = SVGBackend::new(&path, SIZE).into_drawing_area();
        let failed =
            |error: &dyn std::fmt::Display| Failure::Chart(path.display().to_string(), error.to_string());
        let drawn = (|| -> std::result::Result<(), Box<dyn std::error::Error>> {
            area.fill(&WHITE)?;
            let (x, y) = (self.range(self.x, |point| point.0), self.range(self.y, |point| point.1));
            let mut builder = ChartBuilder::on(&area);
            builder.caption(&self.title, ("sans-serif", 17)).margin(12).margin_right(30);
            builder.x_label_area_size(38).y_label_area_size(66);
            match (self.x.scale, self.y.scale) {
                (Scale::Even, Scale::Even) => self.draw(builder.build_cartesian_2d(x, y)?),
                (Scale::Even, Scale::Logarithmic) => self.draw(builder.build_cartesian_2d(x, y.log_scale())?),
                (Scale::Logarithmic, Scale::Even) => self.draw(builder.build_cartesian_2d(x.log_scale(), y)?),
                (Scale::Logarithmic, Scale::Logarithmic) => {
                    self.draw(builder.build_cartesian_2d(x.log_scale(), y.log_scale())?)
                }
            }?;
            area.present()?;
            Ok(())
        })();
        drawn.map_err(|error| failed(&error))
    }

    /// From the least to the greatest value of all lines.
    fn range(&self, axis: Axis, of: impl Fn(&(f64, f64)) -> f64) -> Range<f64> {
        let values = || self.lines.iter().flat_map(|(_, points)| points.iter().map(&of));
        let (least, greatest) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        match axis.scale {
            Scale::Even => 0.0..greatest * 1.05,
            // Whole powers of ten, so that there is one to read at each end.
            Scale::Logarithmic => {
                10_f64.powf(least.max(1.0).log10().floor())..10_f64.powf(greatest.max(10.0).log10().ceil())
            }
        }
    }

    fn draw<'a, DB, X, Y>(
        &self,
        mut context: ChartContext<'a, DB, Cartesian2d<X, Y>>,
    ) -> std::result::Result<(), Box<dyn std::error::Error>>
    where
        DB: DrawingBackend + 'a,
        DB::ErrorType: 'static,
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut mesh = context.configure_mesh();
        mesh.x_label_formatter(&whole).y_label_formatter(&whole);
        mesh.x_desc(self.x.label)
            .y_desc(self.y.label)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 13));
        mesh.draw()?;
        for ((name, points), colour) in self.lines.iter().zip(COLOURS) {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            context.draw_series(line)?.label(name).legend(key);
        }
        let mut keys = context.configure_series_labels();
        keys.position(if self.is_key_below {
            SeriesLabelPosition::LowerRight
        } else {
            SeriesLabelPosition::UpperLeft
        });
        keys.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3));
        keys.label_font(("sans-serif", 13)).draw()?;
        Ok(())
    }
}

/// A number without digits behind the point.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what the library calls")]
fn whole(value: &f64) -> String {
    format!("{value:.0}")
}
