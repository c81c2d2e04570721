//! House rules that the compiler and clippy do not know. Each failure says what to do instead.

use r2ccl_plugin_tests::repository::{Findings, RustFile, root, rust_files, text_files};
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: usize = 100;
const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
const TEST_FUNCTION_LINES: usize = 120;

/// Where `unsafe` may stand in the product, and why.
const UNSAFE: [(&str, &str); 10] = [
    ("src/abi/", "declarations of the C ABI and their layout"),
    ("src/plugin/", "the C boundary: pointers that NCCL gives us"),
    (
        "src/fabric/src/lib.rs",
        "the door of a device: posting names raw memory",
    ),
    (
        "src/fabric/src/copy.rs",
        "copies to memory that somebody polls",
    ),
    (
        "src/fabric/src/soft/",
        "copies between sockets and registered memory",
    ),
    (
        "src/fabric/src/verbs/",
        "libibverbs, which is C, and the rings of its queue pairs",
    ),
    (
        "src/runtime/",
        "memory that NCCL registered, until it is deregistered",
    ),
    ("src/telemetry/", "NCCL's log function"),
    ("src/cli/src/net/", "plugins loaded by dlopen"),
    ("src/cli/src/bench/", "memory that the driver's ranks share"),
];

/// Where the environment may be read, and why.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("src/config", "the one reader of settings"),
    ("src/cli/", "what a started command inherits"),
    ("build.rs", "what cargo tells a build script"),
    ("src/abi/build.rs", "what cargo tells a build script"),
];

/// Where threads may be started, and why.
const THREADS: [(&str, &str); 5] = [
    (
        "src/fabric/src/soft/",
        "I/O threads of bulk lanes, link watcher",
    ),
    (
        "src/fabric/src/helpers.rs",
        "makes and connects queue pairs, which may block",
    ),
    (
        "src/runtime/control/",
        "the steward: control connections, recovery, unpolled work",
    ),
    (
        "src/fabric/src/verbs/events.rs",
        "waits for the devices' events",
    ),
    ("src/cli/", "the driver's ranks"),
];

fn sanctioned(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(prefix, _)| path.starts_with(prefix))
}

/// Whether `word` stands in `line` as a word of its own.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

#[test]
fn lines_fit_the_page() {
    let mut findings = Findings::default();
    for file in rust_files().iter().filter(|file| !file.is_generated()) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let columns = line.chars().count();
            if columns > COLUMNS {
                findings.add(&file.path, number, format!("{columns} columns"));
            }
            if line.ends_with(' ') || line.contains('\t') {
                findings.add(&file.path, number, "blanks at the end, or a tab");
            }
        }
    }
    findings.assert_none(
        "Lines have at most 100 columns. rustfmt leaves strings and comments alone: break them.",
    );
}

#[test]
fn files_stay_readable() {
    let mut findings = Findings::default();
    for file in rust_files().iter().filter(|file| !file.is_generated()) {
        let lines = file.code.len();
        if lines > FILE_LINES {
            findings.add(&file.path, lines, "the file is too long");
        }
    }
    findings.assert_none(
        "A file has 500 lines or fewer, 800 at most. Move a topic of its own into a module.",
    );
}

/// The lines of functions as (first line from 1, name, length), as rustfmt lays them out.
fn functions(file: &RustFile) -> Vec<(usize, String, usize)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (index, line) in file.code.iter().enumerate() {
        let before_name = ["fn ", " fn "].map(|start| line.trim_start().split_once(start));
        let Some((head, tail)) = before_name.into_iter().flatten().next() else {
            continue;
        };
        let is_head = |word: &str| {
            matches!(word, "const" | "async" | "unsafe" | "extern" | "pub")
                || word.starts_with("pub(")
        };
        if !head.split_whitespace().all(is_head) {
            continue;
        }
        let rest = file.code[index..].iter();
        let closing = format!("{}}}", " ".repeat(indent(line)));
        let body = rest
            .clone()
            .position(|line| line.trim_end().ends_with(['{', ';', '}']));
        if body.is_none_or(|at| !file.code[index + at].trim_end().ends_with('{')) {
            continue;
        }
        let length = rest.clone().position(|line| line.trim_end() == closing);
        let name = tail
            .chars()
            .take_while(|&c| c.is_alphanumeric() || c == '_')
            .collect();
        found.push((
            index + 1,
            name,
            length.map_or(rest.len(), |length| length + 1),
        ));
    }
    found
}

#[test]
fn functions_fit_a_screen() {
    let mut findings = Findings::default();
    let mut seen = 0;
    for file in rust_files().iter().filter(|file| !file.is_generated()) {
        for (number, name, length) in functions(file) {
            seen += 1;
            let is_test = number > file.tests_from;
            let limit = if is_test {
                TEST_FUNCTION_LINES
            } else {
                FUNCTION_LINES
            };
            if length > limit {
                findings.add(
                    &file.path,
                    number,
                    format!("`{name}` has {length} lines of {limit}"),
                );
            }
        }
    }
    assert!(seen > 100, "the search for functions finds only {seen}");
    findings
        .assert_none("A function fits a screen: name its steps and give each its own function.");
}

#[test]
fn nothing_is_left_over() {
    let mut findings = Findings::default();
    for file in rust_files() {
        for (number, line) in file.numbered() {
            for leftover in ["dbg!", "todo!", "unimplemented!"] {
                if line.contains(leftover) {
                    findings.add(&file.path, number, leftover);
                }
            }
        }
        if file.path.starts_with("src/cli/") || file.path.ends_with("build.rs") {
            continue;
        }
        for (number, line) in file.product_lines() {
            for print in ["println!", "print!", "eprint!", "eprintln!"] {
                if has_word(line, print.trim_end_matches('!')) && line.contains(print) {
                    findings.add(&file.path, number, print);
                }
            }
        }
    }
    // Spelt in two halves, so that this file does not find itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    for file in text_files().iter().filter(|file| file.path != "LICENSE") {
        for (number, line) in (1..).zip(file.text.lines()) {
            for word in words.iter().filter(|word| has_word(line, word)) {
                findings.add(&file.path, number, word);
            }
        }
    }
    findings.assert_none(
        "Finish it, or say in a comment what is not done and why that is right. A library logs \
         through `tracing`; it never prints.",
    );
}

/// Lines with a condition that joins a `let` with something else, from 1.
fn let_chains(code: &[String]) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let begins = ["if let ", "while let "]
            .iter()
            .find_map(|start| line.find(start).map(|at| at + start.len()));
        let is_chain = begins.is_some_and(|at| {
            let rest = code[index + 1..].iter().map(String::as_str);
            joins_conditions(&std::iter::once(&line[at..]).chain(rest).collect::<Vec<_>>())
        });
        if is_chain || line.contains("&& let ") {
            found.push(index + 1);
        }
    }
    found
}

/// Whether `&&` stands outside of brackets before the body of a condition that begins with `lines`.
fn joins_conditions(lines: &[&str]) -> bool {
    let (mut depth, mut seen_value, mut last) = (0, false, ' ');
    for c in lines.iter().flat_map(|line| line.chars()) {
        match c {
            '{' if depth == 0 && seen_value => return false,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '=' if depth == 0 => seen_value = true,
            '&' if depth == 0 && seen_value && last == '&' => return true,
            _ => {}
        }
        last = c;
    }
    false
}

#[test]
fn let_chains_are_found() {
    let chains = |text: &str| let_chains(&text.lines().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(chains("if a && let Some(b) = c {"), [1]);
    assert_eq!(chains("if let Some(b) = c\n    && d\n{"), [1]);
    assert_eq!(chains("while let P { x, .. } = c && d {"), [1]);
    assert_eq!(
        chains("if let Some(&&b) = c.filter(|d| d && e) {\n  f && g"),
        [0; 0]
    );
    assert_eq!(chains("if let P { x, .. } = c {\n  d && e"), [0; 0]);
}

#[test]
fn the_oldest_compiler_reads_it() {
    let mut findings = Findings::default();
    for file in rust_files() {
        let inferred = (1..)
            .zip(&file.code)
            .filter(|(_, line)| line.contains("; _]"));
        let numbers = inferred.map(|(number, _)| number);
        for number in let_chains(&file.code).into_iter().chain(numbers) {
            findings.add(&file.path, number, file.code[number - 1].trim());
        }
    }
    findings.assert_none(
        "Distributions that we build on package Rust 1.85 (rust-version in Cargo.toml). Chains of \
         `let` need 1.88: nest the conditions, or use `let … else` or `Option::filter`. Inferred \
         array lengths (`; _]`) need 1.89: name the length.",
    );
}

#[test]
fn unsafe_code_stays_at_the_edges() {
    let mut findings = Findings::default();
    for file in rust_files() {
        if sanctioned(&UNSAFE, &file.path) {
            continue;
        }
        for (number, _) in file
            .product_lines()
            .filter(|(_, line)| has_word(line, "unsafe"))
        {
            findings.add(&file.path, number, "unsafe");
        }
    }
    findings.assert_none(
        "Unsafe code lives where the product touches C, sockets or foreign memory; the list is \
         UNSAFE in this file. Use a safe function from there, or argue for a new entry.",
    );
}

#[test]
fn only_the_configuration_reads_the_environment() {
    let calls = [
        "env::var",
        "env::vars",
        "env::var_os",
        "env::vars_os",
        "env::set_var",
        "env::remove_var",
        "getenv",
        "setenv",
    ];
    let mut findings = Findings::default();
    for file in rust_files() {
        if sanctioned(&ENVIRONMENT, &file.path) {
            continue;
        }
        for (number, line) in file.product_lines() {
            if let Some(call) = calls.iter().find(|call| has_word(line, call)) {
                findings.add(&file.path, number, call);
            }
        }
    }
    findings.assert_none(
        "A setting is a row of the table in src/config: then it is parsed, checked, documented and \
         shown by `r2ccl config`. Take it from there as a value.",
    );
}

#[test]
fn threads_are_started_in_few_places() {
    let mut findings = Findings::default();
    for file in rust_files() {
        if sanctioned(&THREADS, &file.path) {
            continue;
        }
        for (number, line) in file.product_lines() {
            let starts = ["thread::spawn", "thread::Builder", "thread::scope"];
            if let Some(start) = starts.iter().find(|start| has_word(line, start)) {
                findings.add(&file.path, number, start);
            }
        }
    }
    findings.assert_none(
        "The process belongs to the training job. Give the work to the steward, or argue for a new \
         entry in THREADS of this file.",
    );
}

#[test]
fn tests_wait_for_conditions() {
    let mut findings = Findings::default();
    for file in rust_files() {
        for (number, line) in file.test_lines() {
            let Some((_, argument)) = line.split_once("thread::sleep(") else {
                continue;
            };
            let milliseconds = argument.split_once("from_millis(").map(|(_, rest)| {
                let digits = rest.chars().take_while(char::is_ascii_digit);
                digits
                    .collect::<String>()
                    .parse::<u32>()
                    .unwrap_or(u32::MAX)
            });
            let is_poll =
                argument.contains("from_micros(") || milliseconds.is_some_and(|ms| ms <= 10);
            if !is_poll {
                findings.add(&file.path, number, line.trim());
            }
        }
    }
    findings.assert_none(
        "A test never sleeps while something ought to happen: it polls for the condition (every \
         10 ms or less) until a deadline. `thread::sleep` with another argument \
         than such a pause is slow on good days and fails on bad ones.",
    );
}

#[test]
fn nothing_names_somebodys_machine() {
    let folders = ["home", "root", "work", "Users", "mnt"].map(|name| format!("/{name}/"));
    let mut findings = Findings::default();
    for file in text_files().iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in (1..).zip(file.text.lines()) {
            for folder in &folders {
                let before = |at: usize| line[..at].chars().next_back().unwrap_or(' ');
                let starts_path =
                    |at| !before(at).is_alphanumeric() && !"._})>-".contains(before(at));
                if line
                    .match_indices(folder.as_str())
                    .any(|(at, _)| starts_path(at))
                {
                    findings.add(&file.path, number, format!("{folder}…"));
                }
            }
        }
    }
    findings.assert_none("Take paths from the environment, an argument or the repository's root.");
}

#[test]
fn every_module_is_part_of_a_crate() {
    let files = rust_files();
    let mut declared = BTreeSet::new();
    for file in &files {
        let stem = file.path.trim_end_matches(".rs");
        let is_root = ["/mod", "/lib", "/main", "/build"]
            .iter()
            .any(|name| stem.ends_with(name));
        let is_test_root = stem
            .rsplit_once('/')
            .is_some_and(|(folder, _)| folder.ends_with("/tests"));
        let folder = match stem.rsplit_once('/') {
            Some((folder, _)) if is_root || is_test_root => folder,
            _ => stem,
        };
        for line in &file.code {
            if let Some(name) = declared_module(line) {
                declared.insert(format!("{folder}/{name}"));
            }
        }
    }
    let mut findings = Findings::default();
    for file in &files {
        let module = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let folder = module.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_root = ["lib", "main", "build"]
            .iter()
            .any(|name| module.rsplit('/').next() == Some(name));
        let is_target = ["/tests", "/benches", "/examples", "/bin"]
            .iter()
            .any(|end| folder.ends_with(end));
        if !is_root && !is_target && !declared.contains(module) {
            findings.add(&file.path, 1, "no `mod` names this file");
        }
    }
    findings
        .assert_none("Name the file in its parent module, or delete it: nobody compiles it now.");
}

/// The module that a line of code declares.
fn declared_module(line: &str) -> Option<&str> {
    let (head, name) = line.trim().rsplit_once("mod ")?;
    let is_declaration = head.is_empty() || head.starts_with("pub");
    is_declaration.then(|| name.trim_end_matches([';', '{', '}', ' ']))
}

/// The number behind each `R` that begins a word in `text`.
fn rule_numbers(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter_map(|word| word.strip_prefix('R')?.parse().ok())
        .collect()
}

/// The rules that a line of comment cites: `PROTOCOL R7`, `PROTOCOL R7, R8 and R9`.
fn cited_rules(line: &str) -> Vec<u32> {
    let mut rules = Vec::new();
    for rest in line.split("PROTOCOL ").skip(1) {
        let mut words = rest.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let is_rule = word.starts_with('R') && !rule_numbers(word).is_empty();
            if !is_rule && word != "and" {
                break;
            }
            rules.extend(rule_numbers(word));
            if is_rule && !word.ends_with(',') && words.peek() != Some(&"and") {
                break;
            }
        }
    }
    rules
}

#[test]
fn citations_are_read() {
    assert_eq!(cited_rules("// (PROTOCOL R7): x R8"), [7]);
    assert_eq!(cited_rules("/// PROTOCOL R7, R8 and R12. R13"), [7, 8, 12]);
    assert_eq!(cited_rules("/// see PROTOCOL.md, R7"), [0; 0]);
}

#[test]
fn protocol_rules_and_code_agree() {
    let text = std::fs::read_to_string(root().join("docs/PROTOCOL.md")).expect("docs/PROTOCOL.md");
    let heads = text
        .lines()
        .map(|line| line.trim_start_matches(['#', '*', '|', '-', ' ']));
    let head_rule = |line: &str| {
        rule_numbers(line.split_whitespace().next()?)
            .first()
            .copied()
    };
    let rules: BTreeSet<u32> = heads.filter_map(head_rule).collect();
    assert!(
        rules.len() > 5,
        "only the rules {rules:?} are found in docs/PROTOCOL.md"
    );

    let mut findings = Findings::default();
    let mut tested: BTreeMap<u32, usize> = BTreeMap::new();
    for file in rust_files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            for rule in cited_rules(line) {
                if !rules.contains(&rule) && file.path != "plugin-tests/tests/tidy.rs" {
                    findings.add(
                        &file.path,
                        number,
                        format!("PROTOCOL R{rule} does not exist"),
                    );
                }
                if number > file.tests_from && file.path != "plugin-tests/tests/tidy.rs" {
                    *tested.entry(rule).or_default() += 1;
                }
            }
        }
    }
    for rule in rules.iter().filter(|rule| !tested.contains_key(rule)) {
        findings.add(
            "docs/PROTOCOL.md",
            1,
            format!("no test cites PROTOCOL R{rule}"),
        );
    }
    findings.assert_none(
        "Each rule of docs/PROTOCOL.md is cited by the test that tries to break it, and where the \
         code keeps it, as `PROTOCOL R7`.",
    );
}

/// Rules that `src/core` keeps.
fn is_rule_of_core(rule: u32) -> bool {
    matches!(rule, 1..=18 | 40..=43 | 50..=62)
}

/// Names in quotes in the lists of deliberate bugs, with the rules that the comment above cites.
fn planted_bugs() -> BTreeMap<String, Vec<u32>> {
    let mut bugs = BTreeMap::new();
    let path = root().join("src/core/src/planted.rs");
    let text = std::fs::read_to_string(path).expect("the deliberate bugs of the core");
    let mut rules = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("///") {
            rules.extend(cited_rules(line));
        } else if let Some((_, name)) = line.split_once(" = \"").filter(|_| !rules.is_empty()) {
            let name = name.trim_end_matches("\",").to_owned();
            bugs.insert(name, core::mem::take(&mut rules));
        } else {
            rules.clear();
        }
    }
    bugs
}

/// Whoever writes a rule shows that its absence is noticed.
#[test]
fn each_rule_of_the_core_is_on_trial() {
    let text = std::fs::read_to_string(root().join("docs/PROTOCOL.md")).expect("docs/PROTOCOL.md");
    let heads = text.lines().filter_map(|line| line.strip_prefix("**"));
    let rules = heads.filter_map(|line| rule_numbers(line.split_whitespace().next()?).pop());
    let rules: BTreeSet<u32> = rules.filter(|rule| is_rule_of_core(*rule)).collect();
    assert!(rules.len() > 30, "only {} rules of the core", rules.len());
    let bugs = planted_bugs();
    let tried: BTreeSet<u32> = bugs.values().flatten().copied().collect();
    let mut findings = Findings::default();
    let file = "docs/PROTOCOL.md";
    for rule in &rules {
        if !tried.contains(rule) {
            findings.add(file, 1, format!("R{rule} has no deliberate bug"));
        }
    }
    let (_, table) = text.split_once("## Rules on trial").expect("the table");
    for (name, rules) in &bugs {
        let row = table
            .lines()
            .find(|line| line.contains(&format!("| `{name}` |")));
        let listed = row.and_then(|row| rule_numbers(row.split('|').nth(1)?).pop());
        if listed.is_none_or(|rule| !rules.contains(&rule)) {
            findings.add(file, 1, format!("{name}: the table says {listed:?}"));
        }
    }
    findings.assert_none(
        "Each rule that the core keeps has a deliberate bug in src/core/src/planted.rs that leaves \
         it out and cites it, and a line in the table \"Rules on trial\": tests find the bug.",
    );
}
