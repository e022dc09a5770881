//! The numbers in the text format that Prometheus reads.

use crate::core::{BOUNDS_MS, Histogram};
use crate::stats::Stats;
use std::fmt::Write;

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders every number.
pub(super) fn render(stats: &Stats) -> String {
    let mut out = String::new();
    let locks = &stats.locks;
    let mut gauge = |name, help, value| metric(&mut out, "gauge", name, help, value);
    gauge("held", "Keys held now.", locks.held as u64);
    gauge("waiters", "Acquires waiting now.", locks.waiters as u64);
    gauge("connections", "Connections now.", stats.connections as u64);
    gauge("admitting", "1 if new acquires are let in, 0 at a limit.", locks.admitting.into());
    gauge("active", "1 if this server may grant, 0 in quarantine or failed.", locks.active.into());
    let mut counter = |name, help, value| metric(&mut out, "counter", name, help, value);
    counter("acquires_total", "Acquires received.", locks.acquires);
    counter("queued_total", "Acquires that had to wait.", locks.queued);
    counter("grants_total", "Grants, the undone ones included.", locks.grants);
    counter("undone_total", "Grants undone because no byte of the answer had left.", locks.undone);
    counter("timeouts_total", "Acquires whose wait ended.", locks.timeouts);
    counter("busy_total", "Acquires refused at a limit.", locks.busy);
    counter("releases_total", "Releases of a held lock.", locks.released);
    counter("not_held_total", "Releases of nothing, probes included.", locks.not_held);
    counter("probes_total", "Probes.", locks.probes);
    counter("not_active_total", "Requests refused because it may not grant.", locks.not_active);
    counter("expiries_total", "Leases that ended by themselves.", locks.expired);
    counter("abandoned_total", "Waiters that left with their connection.", locks.abandoned);
    counter("accepted_total", "Connections accepted.", stats.accepted);
    counter("refused_total", "Connections refused because there were too many.", stats.refused);
    counter("auth_failures_total", "Failed authentications.", stats.auth_failed);
    counter("auth_slowed_total", "Failed authentications answered late.", stats.auth_slowed);
    counter("bad_requests_total", "Connections ended by a malformed frame.", stats.bad_requests);
    counter("overdue_total", "Connections ended because the peer took too long.", stats.overdue);
    counter("paused_total", "Times that a peer that did not read was not read from.", stats.paused);
    counter("received_bytes_total", "Bytes received.", stats.bytes_in);
    counter("sent_bytes_total", "Bytes sent.", stats.bytes_out);
    let help = "How long granted acquires had waited.";
    histogram(&mut out, "wait_seconds", help, &locks.waits);
    histogram(&mut out, "hold_seconds", "How long grants lasted.", &locks.holds);
    out
}

fn metric(out: &mut String, kind: &str, name: &str, help: &str, value: u64) {
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "# HELP lockd_{name} {help}\n# TYPE lockd_{name} {kind}\nlockd_{name} {value}\n"
    );
}

fn histogram(out: &mut String, name: &str, help: &str, histogram: &Histogram) {
    let _ = write!(out, "# HELP lockd_{name} {help}\n# TYPE lockd_{name} histogram\n");
    let mut sum = 0;
    for (count, bound) in histogram.counts.iter().zip(BOUNDS_MS) {
        sum += count;
        let bound = bound as f64 / 1000.0;
        let _ = writeln!(out, "lockd_{name}_bucket{{le=\"{bound}\"}} {sum}");
    }
    let count = histogram.count();
    let seconds = histogram.sum_nanos as f64 / 1e9;
    let _ = write!(
        out,
        "lockd_{name}_bucket{{le=\"+Inf\"}} {count}\nlockd_{name}_sum {seconds}\n\
         lockd_{name}_count {count}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative_and_end_with_everything() {
        let mut stats = Stats::default();
        stats.locks.waits.counts[0] = 3;
        stats.locks.waits.counts[2] = 2;
        stats.locks.waits.counts[BOUNDS_MS.len()] = 1;
        stats.locks.waits.sum_nanos = 1_500_000_000;
        let text = render(&stats);
        for line in [
            "lockd_wait_seconds_bucket{le=\"0.001\"} 3",
            "lockd_wait_seconds_bucket{le=\"0.005\"} 3",
            "lockd_wait_seconds_bucket{le=\"0.01\"} 5",
            "lockd_wait_seconds_bucket{le=\"255\"} 5",
            "lockd_wait_seconds_bucket{le=\"+Inf\"} 6",
            "lockd_wait_seconds_sum 1.5",
            "lockd_wait_seconds_count 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn every_sample_has_help_and_type_before_it() {
        let text = render(&Stats::default());
        let mut described = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                described = rest.split(' ').next().unwrap_or_default().into();
            } else if !line.starts_with('#') {
                assert!(!described.is_empty() && line.starts_with(&described), "{line}");
                let value = line.rsplit(' ').next().unwrap_or_default();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}
