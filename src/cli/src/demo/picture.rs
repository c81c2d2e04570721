//! The throughput over time as a picture.

use plotters::prelude::*;

use super::report::Report;
use super::watch::Watch;
use super::{NICS, RATE};

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 380);
/// Seconds between two points of a curve.
const STEP: f64 = 0.1;
/// Seconds over which each of them is the mean: five looks of a host at its NICs.
const MEAN: f64 = 0.25;
const COLOURS: [RGBColor; NICS] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xe0, 0x8e, 0x1b),
    RGBColor(0x3f, 0x9b, 0x5b),
    RGBColor(0x8c, 0x5a, 0xa6),
];

/// An SVG with the rates of all NICs on top of each other, and a line for each event.
pub fn draw(report: &Report, watch: &Watch) -> Result<String, String> {
    let mut text = String::new();
    let drawn = paint(&mut text, report, watch);
    drawn.map_err(|error| format!("the picture cannot be drawn: {error}"))?;
    Ok(text)
}

fn paint(
    text: &mut String,
    report: &Report,
    watch: &Watch,
) -> Result<(), Box<dyn std::error::Error>> {
    let end = watch.points.last().map_or(1.0, |point| point.at);
    let top = RATE.1 * NICS as f64 * 1.3;
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("seconds")
        .y_desc("Gb/s into host 0")
        .draw()?;
    // From the whole pile downwards, so that each lies over the one before.
    for nic in (0..NICS).rev() {
        let pile = pile(watch, nic, end);
        let colour = COLOURS[nic];
        chart
            .draw_series(AreaSeries::new(pile, 0.0, colour.filled()))?
            .label(format!("soft{nic}"))
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    for (index, effect) in report.effects.iter().enumerate() {
        let height = top * (0.97 - 0.06 * (index % 2) as f64);
        let line = [(effect.at, 0.0), (effect.at, height)];
        chart.draw_series([PathElement::new(line, BLACK)])?;
        let place = (effect.at + end * 0.005, height);
        let style = ("sans-serif", 14).into_font();
        chart.draw_series([Text::new(effect.act.text(), place, style)])?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    root.present()?;
    Ok(())
}

/// The sum of the rates of the NICs up to this one, over time.
fn pile(watch: &Watch, nic: usize, end: f64) -> Vec<(f64, f64)> {
    let count = (end / STEP) as usize;
    let rate = |step: usize| {
        let at = step as f64 * STEP;
        let rates = watch.rates((at - MEAN / 2.0).max(0.0), at + MEAN / 2.0);
        (at, rates[..=nic].iter().sum())
    };
    (0..=count).map(rate).collect()
}
