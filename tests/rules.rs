//! `docs/rules.md` against the tests: every rule is shown, and every file that is listed shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rules, by family: none may fall out of the table.
const FAMILIES: [(&str, usize); 9] = [
    ("IN", 5),
    ("OWN", 3),
    ("DL", 8),
    ("SND", 6),
    ("CLO", 2),
    ("REL", 6),
    ("GR", 5),
    ("CON", 7),
    ("HOST", 7),
];

/// Rules without a number.
const PLAIN: [&str; 3] = ["READ", "BUSY", "END"];

/// Rules that may be without a test.
const UNSHOWN: [&str; 0] = [];

const NONE: &str = "—";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "c" || end == "cpp") {
            found.push(path);
        }
    }
}

/// The names of the tests in a source: functions marked as tests, and in C any function.
fn tests(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let rust = path.extension().is_some_and(|end| end == "rs");
    let (mut names, mut marked) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if !rust {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            names.extend(words.map(str::to_owned));
        } else if line.starts_with("#[test]") {
            marked = true;
        } else if let Some((_, name)) = line.split_once("fn ").filter(|_| marked) {
            names.push(name.split('(').next().unwrap_or_default().to_owned());
            marked = false;
        }
    }
    names
}

/// Which files show each rule.
fn shown(rules: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    for directory in ["src", "tests", "ffi-tests"] {
        sources(&root().join(directory), &mut files);
    }
    let mut shown = BTreeMap::<String, BTreeSet<String>>::new();
    for file in files {
        let names = tests(&file);
        let file = file.strip_prefix(root()).unwrap().display().to_string();
        for rule in rules {
            let prefix = format!("{}_", rule.to_ascii_lowercase().replace('-', "_"));
            if names.iter().any(|name| name.starts_with(&prefix)) {
                shown.entry(rule.clone()).or_default().insert(file.clone());
            }
        }
    }
    shown
}

/// A row of the table: the rule's name, the start of the line, the files.
fn row(line: &str) -> Option<(String, &str, Vec<String>)> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (start, files) = cells.rsplit_once(" | ")?;
    let rule = start.split_whitespace().next()?;
    if !rule.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-')
    {
        return None;
    }
    let files = files.split(", ").filter(|file| *file != NONE);
    Some((rule.to_owned(), start, files.map(|file| file.replace('`', "")).collect()))
}

/// The table with what the sources say in its last column.
fn bless(table: &str) -> String {
    let rules = table.lines().filter_map(row).map(|(rule, ..)| rule).collect();
    let shown = shown(&rules);
    let line = |line: &str| {
        let Some((rule, start, _)) = row(line) else { return format!("{line}\n") };
        let files = shown.get(&rule).into_iter().flatten();
        let files: Vec<String> = files.map(|file| format!("`{file}`")).collect();
        let files = if files.is_empty() { NONE.to_owned() } else { files.join(", ") };
        format!("| {start} | {files} |\n")
    };
    table.lines().map(line).collect()
}

#[test]
fn every_rule_has_a_test_of_its_name() {
    let path = root().join("docs/rules.md");
    let mut table = std::fs::read_to_string(&path).unwrap();
    if std::env::var_os("LOCKCLIENT_BLESS").is_some() {
        table = bless(&table);
        std::fs::write(&path, &table).unwrap();
    }
    let rows: Vec<_> = table.lines().filter_map(row).collect();
    let rules: BTreeSet<String> = rows.iter().map(|(rule, ..)| rule.clone()).collect();
    assert_eq!(rules.len(), rows.len(), "a rule stands twice");
    let numbered = FAMILIES
        .iter()
        .flat_map(|(family, count)| (1..=*count).map(move |number| format!("{family}-{number}")));
    for rule in numbered.chain(PLAIN.map(str::to_owned)) {
        assert!(rules.contains(&rule), "{rule} has no row");
    }
    let shown = shown(&rules);
    let mut faults = Vec::new();
    for (rule, _, files) in rows {
        let Some(found) = shown.get(&rule) else {
            if !UNSHOWN.contains(&rule.as_str()) {
                faults.push(format!("{rule} is shown by no test"));
            }
            continue;
        };
        if files.is_empty() {
            faults.push(format!("{rule} is shown by {found:?}, which the table does not list"));
        }
        for file in files.iter().filter(|file| !found.contains(*file)) {
            faults.push(format!("{rule}: there is no test of its name in {file}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
