//! The figures of threads on keys of their own, as a picture.

use crate::plan::{Contender, Placement};
use crate::table::{Cell, Spread, processor, rate};
use lockclient_load::Found;
use std::fmt::Write;

const WIDTH: f64 = 430.0;
const HEIGHT: f64 = 250.0;
/// Around the plotted area of a panel: for the numbers at its axes.
const LEFT: f64 = 62.0;
const TOP: f64 = 64.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 44.0;

struct Metric {
    title: &'static str,
    of: fn(&Found) -> f64,
}

const METRICS: [Metric; 3] = [
    Metric { title: "median time of a pair, µs", of: |found| found.p50_ns as f64 / 1000.0 },
    Metric { title: "pairs a second", of: rate },
    Metric { title: "processor time of a pair, µs", of: |found| processor(found) / 1000.0 },
];

/// An axis whose equal steps are equal ratios.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let share = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + share * (self.to - self.from)
    }

    /// 1, 2 and 5 times the powers of ten.
    fn marks(&self) -> Vec<f64> {
        let powers = -3..10;
        let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        all.filter(|mark| (self.least..=self.most).contains(mark)).collect()
    }
}

fn colour(contender: Contender) -> &'static str {
    match contender {
        Contender::Raw => "#777777",
        Contender::Redis => "#c0392b",
        Contender::Rust => "#1f6fb4",
        Contender::C => "#2e8b57",
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1_000_000.0 => format!("{} M", value / 1_000_000.0),
        value if value >= 1000.0 => format!("{} k", value / 1000.0),
        value => format!("{value}"),
    }
}

/// Draws a panel for each metric and placement. Lines go through the medians over the rounds; the
/// strokes across them reach from the least to the most.
pub(crate) fn draw(cells: &[Cell]) -> String {
    let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.scenario.is_own()).collect();
    let placements: Vec<Placement> = [Placement::Pinned, Placement::Free]
        .into_iter()
        .filter(|&one| cells.iter().any(|cell| cell.scenario.placement == one))
        .collect();
    let width = WIDTH * placements.len().max(1) as f64;
    let height = HEIGHT * METRICS.len() as f64;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    );
    for (row, metric) in METRICS.iter().enumerate() {
        for (column, &placement) in placements.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<g transform=\"translate({} {})\">",
                column as f64 * WIDTH,
                row as f64 * HEIGHT
            );
            let here: Vec<&Cell> =
                cells.iter().copied().filter(|cell| cell.scenario.placement == placement).collect();
            panel(&mut svg, metric, placement, &here);
            svg.push_str("</g>\n");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, metric: &Metric, placement: Placement, cells: &[&Cell]) {
    let spreads: Vec<Spread> = cells.iter().map(|cell| cell.over_rounds(metric.of)).collect();
    let least = spreads.iter().map(|spread| spread.least).fold(f64::INFINITY, f64::min);
    let most = spreads.iter().map(|spread| spread.most).fold(0.0, f64::max);
    let y = Axis { least: least / 1.3, most: most * 1.3, from: HEIGHT - BOTTOM, to: TOP };
    let mut threads: Vec<usize> = cells.iter().map(|cell| cell.scenario.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let x = Axis {
        least: threads[0] as f64 / 1.4,
        most: threads[threads.len() - 1] as f64 * 1.4,
        from: LEFT,
        to: WIDTH - RIGHT,
    };

    let place = match placement {
        Placement::Pinned => "client and server on one processor",
        Placement::Free => "client and server on all processors",
    };
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"18\" font-size=\"13\" font-weight=\"bold\">{}</text>\
         <text x=\"{LEFT}\" y=\"34\" fill=\"#555\">{place}</text>",
        metric.title
    );
    for mark in y.marks() {
        let at = y.at(mark);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(mark)
        );
    }
    for &count in &threads {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
            x.at(count as f64),
            HEIGHT - BOTTOM + 16.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">threads</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - BOTTOM + 32.0
    );
    let mut legend = LEFT;
    for contender in Contender::ALL {
        let mut line = String::new();
        for (cell, spread) in cells.iter().zip(&spreads) {
            if cell.contender != contender {
                continue;
            }
            let (across, up) = (x.at(cell.scenario.threads as f64), y.at(spread.median));
            let _ = write!(line, "{}{across:.1} {up:.1}", if line.is_empty() { "M" } else { "L" });
            let _ = writeln!(
                svg,
                "<path d=\"M{across:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/>\
                 <circle cx=\"{across:.1}\" cy=\"{up:.1}\" r=\"2.5\" fill=\"{colour}\"/>",
                y.at(spread.least),
                y.at(spread.most),
                colour = colour(contender)
            );
        }
        if line.is_empty() {
            continue;
        }
        let _ = writeln!(
            svg,
            "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <rect x=\"{legend}\" y=\"42\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"51\">{}</text>",
            legend + 14.0,
            contender.name(),
            colour = colour(contender)
        );
        legend += 22.0 + 5.3 * contender.name().len() as f64;
    }
}
