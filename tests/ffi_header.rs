//! `include/lockclient.h` is what the source generates, and what the shared library exports.
//!
//! To take over a change: `LOCKCLIENT_BLESS=1 cargo test --test ffi_header`.

use std::path::{Path, PathBuf};

/// The sources of the header, in the order of its functions.
const SOURCES: [&str; 9] =
    ["status", "last_error", "config", "log", "client", "acquire", "release", "ticket", "stats"];

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn generated() -> String {
    let mut builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(root("cbindgen.toml")).expect("a configuration"));
    for source in SOURCES.iter().chain(&["version"]) {
        builder = builder.with_src(root(&format!("src/ffi/{source}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut text);
    String::from_utf8(text).expect("text")
}

#[test]
fn the_committed_header_is_what_the_source_generates() {
    let committed = root("include/lockclient.h");
    let generated = generated();
    if std::env::var_os("LOCKCLIENT_BLESS").is_some() {
        std::fs::write(&committed, &generated).expect("the header can be written");
    }
    let text = std::fs::read_to_string(&committed).unwrap_or_default();
    for (number, (old, new)) in text.lines().zip(generated.lines()).enumerate() {
        assert_eq!(old, new, "line {}: LOCKCLIENT_BLESS=1 takes the change over", number + 1);
    }
    assert_eq!(text, generated, "LOCKCLIENT_BLESS=1 takes the change over");
}
