//! What the documents name exists: files, scripts, settings.

use r2ccl_plugin_tests::repository::{Findings, root, rust_files, text_files};
use std::path::Path;

/// The documents that people read, with their paths.
fn documents() -> Vec<(String, String)> {
    let files = text_files().into_iter();
    let documents: Vec<_> = files
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path, file.text))
        .collect();
    assert!(documents.iter().any(|(path, _)| path == "README.md"));
    documents
}

/// The targets of `[text](target)` in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1);
    targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

#[test]
fn links_lead_somewhere() {
    let mut findings = Findings::default();
    for (path, text) in documents() {
        let folder = root().join(&path);
        let folder = folder.parent().unwrap_or(Path::new("."));
        for (number, line) in (1..).zip(text.lines()) {
            for target in links(line).filter(|target| !target.contains("://")) {
                let file = target.split('#').next().unwrap_or_default();
                if !folder.join(file).exists() {
                    findings.add(&path, number, format!("no file {target}"));
                }
            }
        }
    }
    findings.assert_none("A link names a file of this repository, relative to the document.");
}

#[test]
fn named_scripts_exist() {
    let mut findings = Findings::default();
    for file in text_files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            let is_part = |c: char| !(c.is_alphanumeric() || "-_./".contains(c));
            for word in line.split(is_part).map(|word| word.trim_end_matches('.')) {
                let is_script = word.starts_with("scripts/") && word.ends_with(".sh");
                if is_script && !root().join(word).exists() {
                    findings.add(&file.path, number, format!("no {word}"));
                }
            }
        }
    }
    findings.assert_none("Name a script by its path from the root, and only one that is there.");
}

#[test]
fn named_settings_exist() {
    let files = rust_files();
    let table: String = files
        .iter()
        .filter(|file| file.path.starts_with("src/config"))
        .map(|file| file.text.as_str())
        .collect();
    let mut findings = Findings::default();
    let mut seen = 0;
    for (path, text) in documents() {
        for (number, line) in (1..).zip(text.lines()) {
            let is_part = |c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            for name in line
                .split(is_part)
                .filter(|name| name.starts_with("R2CCL_"))
            {
                seen += 1;
                if !name.ends_with('_') && !table.contains(&format!("\"{name}\"")) {
                    findings.add(&path, number, name);
                }
            }
        }
    }
    assert!(seen > 0, "no document names a setting");
    findings.assert_none("Settings that documents name are rows of the table in src/config.");
}

#[test]
fn scripts_stop_at_the_first_error() {
    let mut findings = Findings::default();
    for file in text_files() {
        let is_script = file.path.starts_with("scripts/") || file.path == ".ci/run";
        if !is_script || !file.text.starts_with("#!") {
            continue;
        }
        let strict = ["set -euo pipefail", "set -eu"];
        if !file.text.lines().any(|line| strict.contains(&line)) {
            findings.add(&file.path, 1, "does not say `set -euo pipefail`");
        }
    }
    findings.assert_none("A script that goes on after an error reports success for failures.");
}
