//! How do the methods look beside each other?
//!
//! Two figures: what logons met over the time of the storm, and how the sessions lie on the hosts after it. Both say at
//! a glance what a table does not: when it got bad, and on how many hosts.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use usher_simulator::{Arrivals, LEAD_IN_S, Scene, Trace, percentile};

use super::Ran;

const SIZE: (u32, u32) = (960, 880);
/// The time of the storm is cut into this many parts; fewer would hide the herds, more would be noise.
const PARTS: usize = 24;
/// Of the logons of a part this share is better than what is drawn.
const SHARE: f64 = 0.9;
/// Colours that people with any eyes can tell apart (Okabe and Ito); then they begin anew.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
/// Expansions beyond this are drawn in powers of ten.
const LINEAR_BELOW: f64 = 10.0;
/// Above the highest line there must be room for the names.
const ROOM: f64 = 1.4;
const FONT: &str = "sans-serif";

/// A figure that could not be drawn.
type Fault = anyhow::Error;

/// One line of a figure.
struct Line {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

/// The figures as SVG.
///
/// # Errors
/// If they cannot be drawn.
pub(super) fn svg(ran: &[Ran], scene: &Scene) -> Result<String, Fault> {
    let within_s = match scene.arrivals {
        Arrivals::Logons { within_s, .. } | Arrivals::Return { within_s } => within_s,
    };
    let over_time: Vec<Line> = ran
        .iter()
        .map(|ran| Line { name: ran.method.as_str(), points: expansions(&ran.traces, within_s) })
        .collect();
    let by_host: Vec<Line> =
        ran.iter().map(|ran| Line { name: ran.method.as_str(), points: sessions(&ran.traces) }).collect();
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let areas = root.split_evenly((2, 1));
        let title = "90th percentile of logon expansion, by the time of the login in seconds";
        let worst = highest(&over_time).max(1.5);
        if worst < LINEAR_BELOW {
            draw(&areas[0], title, &over_time, within_s, 1.0..1.0 + (worst - 1.0) * ROOM)?;
        } else {
            draw(&areas[0], title, &over_time, within_s, (1.0..worst * worst.sqrt()).log_scale())?;
        }
        let title = "sessions for each 8 cores, hosts in order, fullest first; percent of the hosts";
        let highest_count = highest(&by_host).max(1.0) * ROOM;
        draw(&areas[1], title, &by_host, 100.0, 0.0..highest_count)?;
        root.present()?;
    }
    Ok(text)
}

fn draw<Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    lines: &[Line],
    width: f64,
    heights: Y,
) -> Result<(), Fault>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 18))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(32)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..width, heights)?;
    chart.configure_mesh().light_line_style(WHITE).label_style((FONT, 13)).draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

/// By the middle of each part of the storm, over all seeds.
fn expansions(traces: &[Trace], within_s: f64) -> Vec<(f64, f64)> {
    let mut parts = vec![Vec::new(); PARTS];
    for trace in traces {
        for login in &trace.logins {
            let Some(expansion) = login.expansion(trace.end_s) else { continue };
            // A share of few parts: it fits.
            let part = ((login.at_s - LEAD_IN_S) / within_s * PARTS as f64) as usize;
            parts[part.min(PARTS - 1)].push(expansion);
        }
    }
    let middle = |part: usize| (part as f64 + 0.5) * within_s / PARTS as f64;
    let points = parts.iter_mut().enumerate().filter(|(_, values)| !values.is_empty());
    points
        .map(|(part, values)| {
            values.sort_by(f64::total_cmp);
            (middle(part), percentile(values, SHARE))
        })
        .collect()
}

/// Of the first seed: a mean over seeds would hide the fullest host.
fn sessions(traces: &[Trace]) -> Vec<(f64, f64)> {
    let Some(trace) = traces.first() else { return Vec::new() };
    let sized = trace.sessions.iter().zip(&trace.sizes);
    let mut counts: Vec<f64> = sized.map(|(sessions, size)| f64::from(*sessions) / size).collect();
    counts.sort_by(|a, b| b.total_cmp(a));
    let last = (counts.len().max(2) - 1) as f64;
    counts.into_iter().enumerate().map(|(rank, count)| (100.0 * rank as f64 / last, count)).collect()
}

fn highest(lines: &[Line]) -> f64 {
    lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max)
}
