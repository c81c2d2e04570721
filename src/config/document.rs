//! `docs/CONFIG.md` from the table.

use std::fmt::Write;

use super::{Description, Settings, unused};

const INTRODUCTION: &str = "\
# Settings

<!-- Generated from src/config/table.rs. Do not edit; make it anew with
     UPDATE_CONFIG_MD=1 cargo test -p r2ccl --lib config -->

R2CCL is set up through environment variables, read once when NCCL loads the plugin. NCCL puts the
lines of `/etc/nccl.conf` and `~/.nccl.conf` into the environment first, so settings may also stand
there. None is needed for a first run.

An empty value is the same as none. A name that starts with `R2CCL_` and is not listed here is
reported with the nearest name that is; a value that cannot be used is reported with what is
allowed, and the default is used instead. `r2ccl config` prints all settings with their values in
force.
";

const UNUSED_INTRODUCTION: &str = "
## Settings of NCCL without effect

NCCL's own RDMA transport knows these, too. A line of the log (`info`) says so when one is set.
NCCL itself goes on heeding what concerns it.

| name | why it has none |
|---|---|
";

/// The text of `docs/CONFIG.md`.
pub fn markdown() -> String {
    let rows = Settings::defaults().describe();
    let mut text = String::from(INTRODUCTION);
    text.push_str("\n| name | default | allowed | stability |\n|---|---|---|---|\n");
    for row in &rows {
        let Description {
            name,
            default,
            stability,
            ..
        } = row;
        // A bar would end the cell, even inside code.
        let range = row.range.replace('|', "\\|");
        push(
            &mut text,
            format_args!("| `{name}` | `{default}` | `{range}` | {stability} |\n"),
        );
    }
    for row in &rows {
        push_section(&mut text, row);
    }
    text.push_str(UNUSED_INTRODUCTION);
    for (name, reason) in unused::UNUSED {
        push(&mut text, format_args!("| `{name}` | {reason} |\n"));
    }
    text
}

fn push_section(text: &mut String, row: &Description) {
    push(
        text,
        format_args!("\n## {}\n\n{}\n\n", row.name, row.meaning),
    );
    push(
        text,
        format_args!("* type: {}\n* allowed: `{}`\n", row.type_text, row.range),
    );
    push(
        text,
        format_args!(
            "* default: `{}`\n* stability: {}\n",
            row.default, row.stability
        ),
    );
    if row.is_shared {
        text.push_str("* both ends of a connection must have the same value\n");
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(line);
}
