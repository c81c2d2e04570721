//! The repository as the tests see it: its files, and Rust text with comments and strings blanked.

use std::path::{Path, PathBuf};

/// Folders that hold what we write; everything else at the top is a build product.
const FOLDERS: [&str; 7] = [
    "src",
    "plugin-tests",
    "scripts",
    "docs",
    "nccl-headers",
    ".ci",
    ".config",
];

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("plugin-tests lies in the root").into()
}

/// One text file of the repository.
pub struct TextFile {
    /// Path from the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// One file of Rust.
pub struct RustFile {
    /// Path from the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The lines with comments and the insides of strings blanked.
    pub code: Vec<String>,
    /// Index of the first line that is compiled for tests only; past the end if there is none.
    pub tests_from: usize,
}

impl RustFile {
    /// Reads Rust from `text`.
    pub fn new(path: String, text: String) -> Self {
        let code: Vec<String> = blank(&text).lines().map(str::to_owned).collect();
        let tests_from = if is_test_path(&path) {
            0
        } else {
            first_test_line(&code)
        };
        Self {
            path,
            text,
            code,
            tests_from,
        }
    }

    /// Whether a script wrote the file: the first line says so.
    pub fn is_generated(&self) -> bool {
        let first = self.text.lines().next().unwrap_or_default();
        first.starts_with("//") && first.contains("do not edit")
    }

    /// Lines of code with their number from 1 that are part of the product, not of its tests.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered().take(self.tests_from)
    }

    /// Lines of code with their number from 1 that only tests see.
    pub fn test_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered().skip(self.tests_from)
    }

    /// All lines of code with their number from 1.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.iter().map(String::as_str))
    }
}

/// All text files that we write, sorted by path.
pub fn text_files() -> Vec<TextFile> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root()).expect("the root is readable") {
        let path = entry.expect("the root is readable").path();
        if path.is_file() {
            paths.push(path);
        }
    }
    for folder in FOLDERS {
        walk(&root().join(folder), &mut paths);
    }
    paths.sort();
    paths.iter().filter_map(|path| read(path)).collect()
}

/// All Rust files, sorted by path.
pub fn rust_files() -> Vec<RustFile> {
    let files = text_files().into_iter();
    let files: Vec<_> = files
        .filter(|file| file.path.ends_with(".rs"))
        .map(|file| RustFile::new(file.path, file.text))
        .collect();
    assert!(files.len() > 20, "only {} Rust files found", files.len());
    files
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() != "target" {
                walk(&path, paths);
            }
        } else {
            paths.push(path);
        }
    }
}

fn read(path: &Path) -> Option<TextFile> {
    let text = std::fs::read_to_string(path).ok()?;
    let path = path.strip_prefix(root()).ok()?.to_str()?.to_owned();
    Some(TextFile { path, text })
}

/// Whether a file serves tests as a whole: it is not part of what a job runs.
fn is_test_path(path: &str) -> bool {
    path.starts_with("plugin-tests/")
        || path.contains("/tests/")
        || path.contains("/examples/")
        || path.contains("/conformance/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
}

/// Index of the `#[cfg(test)]` that opens a module with a body, which comes last in a file.
fn first_test_line(code: &[String]) -> usize {
    let opens_module = |line: &String| {
        let line = line.trim_start_matches("pub(crate) ");
        line.starts_with("mod ") && line.ends_with('{')
    };
    (0..code.len())
        .find(|&index| {
            code[index].starts_with("#[cfg(test)]")
                && code[index + 1..].iter().take(3).any(opens_module)
        })
        .unwrap_or(code.len())
}

/// Replaces comments and the insides of strings by spaces; lines stay where they are.
fn blank(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let end = skipped_end(&characters, at);
        if end == at {
            out.push(characters[at]);
            at += 1;
        } else {
            let blanked = characters[at..end].iter();
            out.extend(blanked.map(|&c| if c == '\n' { c } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none begins there.
fn skipped_end(text: &[char], at: usize) -> usize {
    let next = text.get(at + 1).copied();
    let inside_word = at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_');
    match text[at] {
        '/' if next == Some('/') => find(text, at, |rest| rest[0] == '\n', 0),
        '/' if next == Some('*') => find(text, at + 2, |rest| rest.starts_with(&['*', '/']), 2),
        '"' => string_end(text, at),
        'r' if !inside_word || text[at - 1] == 'b' || text[at - 1] == 'c' => raw_end(text, at),
        '\'' if next == Some('\\') => find(text, at + 3, |rest| rest[0] == '\'', 1),
        '\'' if text.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn find(text: &[char], from: usize, ends: impl Fn(&[char]) -> bool, length: usize) -> usize {
    (from..text.len())
        .find(|&index| ends(&text[index..]))
        .map_or(text.len(), |index| index + length)
}

fn string_end(text: &[char], at: usize) -> usize {
    let mut index = at + 1;
    while index < text.len() && text[index] != '"' {
        index += if text[index] == '\\' { 2 } else { 1 };
    }
    (index + 1).min(text.len())
}

fn raw_end(text: &[char], at: usize) -> usize {
    let hashes = text[at + 1..].iter().take_while(|&&c| c == '#').count();
    if text.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|&c| c == '#')
    };
    find(text, at + 2 + hashes, closes, 1 + hashes)
}

/// What a rule found: `path:line: what`, one a line.
#[derive(Default)]
pub struct Findings(Vec<String>);

impl Findings {
    /// Adds one finding.
    pub fn add(&mut self, path: &str, line: usize, what: impl std::fmt::Display) {
        self.0.push(format!("{path}:{line}: {what}"));
    }

    /// Fails with all findings and the `lesson`: what to do instead, and why.
    ///
    /// # Panics
    ///
    /// If there is a finding.
    pub fn assert_none(self, lesson: &str) {
        assert!(self.0.is_empty(), "\n{}\n\n{lesson}\n", self.0.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        RustFile::new("src/x.rs".into(), text.into()).code
    }

    #[test]
    fn comments_and_strings_are_blanked() {
        assert_eq!(code("a // b\nc"), ["a     ", "c"]);
        assert_eq!(code("a /* b\n b */ c"), ["a     ", "      c"]);
        assert_eq!(
            code(r#"f("unsafe \" x", 'y', '\'', "z")"#)
                .concat()
                .matches("unsafe")
                .count(),
            0
        );
        assert_eq!(code("r##\"un\"#safe\"## + b").concat().trim(), "+ b");
        assert_eq!(code("fn f<'a>(x: &'a str)"), ["fn f<'a>(x: &'a str)"]);
        assert_eq!(code("for r in 0..2"), ["for r in 0..2"]);
    }

    #[test]
    fn tests_begin_at_the_test_module() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(RustFile::new("src/x.rs".into(), text.into()).tests_from, 1);
        let text = "#[cfg(test)]\nmod tests;\nfn f() {}\n";
        assert_eq!(RustFile::new("src/x.rs".into(), text.into()).tests_from, 3);
        assert_eq!(
            RustFile::new("src/x/tests.rs".into(), text.into()).tests_from,
            0
        );
    }
}
