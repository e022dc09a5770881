//! The figures of every round, for other programs.

use crate::plan::{Placement, Scenario};
use crate::table::Cell;
use serde_json::{Value, json};
use std::fs;
use std::thread::available_parallelism;

/// On what the figures were taken. The load average says how quiet it was.
#[derive(Debug)]
pub(crate) struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    load_before: String,
}

impl Machine {
    pub(crate) fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Machine {
            processor: model.map_or("unknown", |(_, model)| model).to_owned(),
            processors: available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            load_before: load_average(),
        }
    }

    /// In one line.
    pub(crate) fn describe(&self) -> String {
        let Machine { processor, processors, kernel, load_before } = self;
        format!(
            "{processor}, {processors} processors, Linux {kernel}; load average {load_before} before, \
             {} after",
            load_average()
        )
    }
}

/// Of the last minute.
fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn scenario(scenario: &Scenario) -> Value {
    json!({
        "placement": match scenario.placement {
            Placement::Pinned => "one processor",
            Placement::Free => "all processors",
        },
        "threads": scenario.threads,
        "shared_keys": scenario.keys,
        "hold_us": scenario.hold_us,
    })
}

pub(crate) fn json(machine: &Machine, cells: &[Cell]) -> String {
    let cells = cells.iter().map(|cell| {
        json!({
            "scenario": scenario(&cell.scenario),
            "contender": cell.contender.name(),
            "syscalls_per_pair": cell.syscalls,
            "rounds": cell.found.iter().map(|found| found.json()).collect::<Vec<_>>(),
        })
    });
    let all = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine.describe(),
        "cells": cells.collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}
