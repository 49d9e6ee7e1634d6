//! No crate has a circle of imports with more than four files: each file can be read with few others in mind.
//!
//! A file imports another if it names an item that is defined there: in a `use`, or by a path in an expression.
//! Re-exports are followed to the definition, so that a front page that gathers names does not tie together what is
//! behind it. Tests beside the code do not count.
//!
//! `cargo test -p workspace-tests --test circles -- --nocapture` prints the circles of each crate; `CIRCLES_OF=vpn-esp`
//! prints only those of one crate, and every circle with the names on each edge.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Files that may import each other in a circle.
const MOST: usize = 4;

#[test]
fn no_circle_of_imports_has_more_than_four_files() {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let only = std::env::var("CIRCLES_OF").ok();
    let mut found = String::new();
    for directory in crates(root) {
        let name = package(&directory);
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let imports = Crate::read(&directory.join("src")).imports();
        let circles = circles(&imports);
        let sizes: Vec<usize> = circles.iter().map(BTreeSet::len).collect();
        println!("{name}: {} files, circles of {sizes:?}", imports.len());
        for circle in circles {
            if circle.len() > MOST || only.is_some() {
                describe(&mut found, &name, &circle, &imports);
            }
        }
    }
    assert!(found.is_empty() || only.is_some(), "{found}");
    println!("{found}");
}

#[test]
fn imports_are_found_and_followed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        fs::write(path, text).expect("writable");
    };
    write(
        "lib.rs",
        "pub mod a; mod b; mod c; pub use b::{Bee as Renamed, deep::*}; #[cfg(test)] mod t; // mod x;",
    );
    write("a.rs", "use crate::{Renamed, c}; fn f() { c::run('\"', \"crate::t::T\"); }");
    write(
        "b.rs",
        "pub mod deep; pub struct Bee; fn g<'a>() {} #[cfg(test)] mod tests { use crate::a::A; }",
    );
    write("b/deep.rs", "pub struct Deep; fn h() -> super::Bee { crate::c::run() }");
    write("c.rs", "use super::Deep; pub fn run() { self::inner::x() } mod inner { pub fn x() {} }");
    write("t.rs", "use crate::a;");
    let imports = Crate::read(directory.path()).imports();
    let of = |file: &str| imports[Path::new(file)].keys().map(|f| f.display().to_string());
    assert_eq!(of("lib.rs").collect::<Vec<_>>(), ["b/deep.rs", "b.rs"]);
    assert_eq!(of("a.rs").collect::<Vec<_>>(), ["b.rs", "c.rs"]);
    assert_eq!(of("b.rs").count(), 0);
    assert_eq!(of("b/deep.rs").collect::<Vec<_>>(), ["b.rs", "c.rs"]);
    assert_eq!(of("c.rs").collect::<Vec<_>>(), ["b/deep.rs"]);
    let circles = circles(&imports);
    assert_eq!(circles, [["b/deep.rs", "c.rs"].map(PathBuf::from).into()]);
}

/// The directories of the crates of this workspace.
fn crates(root: &Path) -> Vec<PathBuf> {
    let members = fs::read_dir(root.join("crates")).expect("the workspace has crates");
    let members = members.map(|entry| entry.expect("readable").path());
    let mut all: Vec<PathBuf> =
        members.chain([root.to_owned()]).filter(|d| d.join("src/lib.rs").exists()).collect();
    all.sort();
    all
}

/// The name in a crate's manifest.
fn package(directory: &Path) -> String {
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("every crate has one");
    let (_, package) = manifest.split_once("[package]").expect("every crate is a package");
    package.split('"').nth(1).expect("its name comes first").to_owned()
}

/// The files that a file imports, with the names by which it imports them.
type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

fn describe(text: &mut String, name: &str, circle: &BTreeSet<PathBuf>, imports: &Imports) {
    let _ = writeln!(text, "{name}: {} files import each other in a circle", circle.len());
    for from in circle {
        for (to, names) in imports[from].iter().filter(|(to, _)| circle.contains(*to)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let _ =
                writeln!(text, "  {} -> {}: {}", from.display(), to.display(), names.join(", "));
        }
    }
}

/// Files that can reach each other by imports, where these are several (Tarjan's strongly connected components).
fn circles(imports: &Imports) -> Vec<BTreeSet<PathBuf>> {
    let mut search = Search::new(imports);
    for file in imports.keys() {
        if !search.number.contains_key(file.as_path()) {
            search.visit(file);
        }
    }
    search.found.retain(|component| component.len() > 1);
    search.found.sort_by_key(|component| std::cmp::Reverse(component.len()));
    search.found
}

struct Search<'a> {
    imports: &'a Imports,
    number: BTreeMap<&'a Path, usize>,
    /// The earliest file that can be reached.
    earliest: BTreeMap<&'a Path, usize>,
    open: Vec<&'a Path>,
    found: Vec<BTreeSet<PathBuf>>,
}

impl<'a> Search<'a> {
    fn new(imports: &'a Imports) -> Self {
        let (number, earliest) = (BTreeMap::new(), BTreeMap::new());
        Self { imports, number, earliest, open: Vec::new(), found: Vec::new() }
    }

    fn visit(&mut self, file: &'a Path) {
        let number = self.number.len();
        self.number.insert(file, number);
        self.open.push(file);
        let mut earliest = number;
        for to in self.imports[file].keys() {
            if !self.number.contains_key(to.as_path()) {
                self.visit(to);
                earliest = earliest.min(self.earliest[to.as_path()]);
            } else if self.open.contains(&to.as_path()) {
                earliest = earliest.min(self.number[to.as_path()]);
            }
        }
        self.earliest.insert(file, earliest);
        if earliest == number {
            let first = self.open.iter().position(|open| *open == file).expect("it was opened");
            self.found.push(self.open.drain(first..).map(Path::to_owned).collect());
        }
    }
}

/// The names from the crate's root to a module; empty for the root.
type ModulePath = Vec<String>;

/// The parts of a module.
#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    children: BTreeSet<String>,
    /// Imported names with the path that each stands for, which begins with `crate`, `self`, `super` or another name.
    uses: BTreeMap<String, Vec<String>>,
    /// Modules of which everything is imported.
    globs: Vec<Vec<String>>,
    /// Names of items that are defined here.
    items: BTreeSet<String>,
    /// Paths in expressions, types and `use`.
    paths: BTreeSet<Vec<String>>,
}

/// The modules of a crate.
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

impl Crate {
    /// Reads the library below a directory.
    fn read(source: &Path) -> Self {
        let mut all = Self::default();
        all.read_file(source, Path::new("lib.rs"), Path::new(""), Vec::new());
        all
    }

    /// Reads a file, whose child modules are in `directory`.
    fn read_file(&mut self, source: &Path, file: &Path, directory: &Path, module: ModulePath) {
        let text = fs::read_to_string(source.join(file))
            .unwrap_or_else(|error| panic!("{}: {error}", source.join(file).display()));
        let tokens = tokens(&text);
        let mut reader = Reader {
            tokens: &tokens,
            at: 0,
            file,
            all: self,
            inside: vec![(module, 0)],
            depth: 0,
            outside: Vec::new(),
        };
        reader.read();
        for child in reader.outside {
            let name = child.last().expect("a child has a name").clone();
            let below = child[..child.len() - 1].iter().collect::<PathBuf>();
            let near = if directory.as_os_str().is_empty() { &below } else { directory };
            let path = near.join(format!("{name}.rs"));
            self.read_file(source, &path, &near.join(&name), child);
        }
    }

    /// The file that defines the item to which a path leads.
    fn definition(&self, from: &ModulePath, path: &[String], steps: usize) -> Option<&Path> {
        // Globs that import each other would be followed for ever.
        let steps = steps.checked_sub(1)?;
        let here = self.modules.get(from)?;
        let (first, rest) = path.split_first()?;
        let mut module = from.clone();
        let mut rest = match first.as_str() {
            "crate" => {
                module.clear();
                rest
            }
            "self" => rest,
            "super" => {
                module.pop()?;
                rest
            }
            name if here.children.contains(name) => path,
            name if here.uses.get(name).is_some_and(|to| to[0] != name) => {
                let path = [&here.uses[name][..], rest].concat();
                return self.definition(from, &path, steps);
            }
            _ => return None,
        };
        while let Some((name, further)) = rest.split_first() {
            if name == "super" {
                module.pop()?;
            } else if self.modules.get(&module)?.children.contains(name) {
                module.push(name.clone());
            } else {
                break;
            }
            rest = further;
        }
        let at = self.modules.get(&module)?;
        let Some((name, further)) = rest.split_first() else { return Some(&at.file) };
        if at.items.contains(name) {
            return Some(&at.file);
        }
        if let Some(to) = at.uses.get(name) {
            let path = [&to[..], further].concat();
            // A name of another crate, which this one only passes on.
            return self.definition(&module, &path, steps);
        }
        at.globs.iter().find_map(|glob| {
            let path = [&glob[..], rest].concat();
            self.definition(&module, &path, steps)
        })
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module) in &self.modules {
            imports.entry(module.file.clone()).or_default();
            for used in &module.paths {
                if let Some(file) = self.definition(path, used, 16)
                    && file != module.file
                {
                    let of = imports.entry(module.file.clone()).or_default();
                    of.entry(file.to_owned()).or_default().insert(used.join("::"));
                }
            }
        }
        imports
    }
}

/// Reads the tokens of a file into modules.
struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    file: &'a Path,
    all: &'a mut Crate,
    /// The modules around, each with the depth of braces inside which its items are.
    inside: Vec<(ModulePath, usize)>,
    depth: usize,
    /// Child modules in files of their own.
    outside: Vec<ModulePath>,
}

impl Reader<'_> {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn module(&mut self) -> &mut Module {
        let (path, _) = self.inside.last().expect("a file is a module");
        let module = self.all.modules.entry(path.clone()).or_default();
        module.file = self.file.to_owned();
        module
    }

    fn read(&mut self) {
        self.module();
        while self.at < self.tokens.len() {
            let before = if self.at == 0 { "" } else { &self.tokens[self.at - 1] };
            let in_path = before == "::" || before == ".";
            match self.token(0) {
                "#" if self.token(1) == "[" => self.attribute(),
                "mod" if is_name(self.token(1)) => self.child(),
                "use" => self.use_tree(),
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.depth -= 1;
                    self.at += 1;
                    if self.inside.len() > 1 && self.inside.last().is_some_and(|m| m.1 > self.depth)
                    {
                        self.inside.pop();
                    }
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                    if is_name(self.token(1)) && self.is_item() =>
                {
                    let name = self.token(1).to_owned();
                    self.module().items.insert(name);
                    self.at += 2;
                }
                "static" if self.token(1) == "mut" => self.at += 1,
                "macro_rules" if self.token(1) == "!" => {
                    let name = self.token(2).to_owned();
                    self.module().items.insert(name);
                    self.at += 3;
                    self.skip_item();
                }
                token if is_name(token) && !in_path => self.path(),
                _ => self.at += 1,
            }
        }
    }

    /// Whether the token here is directly in a module, and not in a function, an implementation or a trait.
    fn is_item(&self) -> bool {
        self.inside.last().is_some_and(|module| module.1 == self.depth)
    }

    /// Passes an attribute, and the item that it takes away from all builds but that of tests.
    fn attribute(&mut self) {
        let begun = self.at;
        self.at += 1;
        self.skip_group();
        let text = self.tokens[begun..self.at].concat();
        if text == "#[cfg(test)]" || text.starts_with("#[cfg(all(test") {
            while self.token(0) == "#" && self.token(1) == "[" {
                self.at += 1;
                self.skip_group();
            }
            self.skip_item();
        }
    }

    /// Passes brackets of any kind and all that is between them.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Passes everything up to the end of an item: a semicolon, a comma, or a group in braces.
    fn skip_item(&mut self) {
        while self.at < self.tokens.len() {
            match self.token(0) {
                ";" | "," => {
                    self.at += 1;
                    return;
                }
                "{" => return self.skip_group(),
                "(" | "[" => self.skip_group(),
                "}" => return,
                _ => self.at += 1,
            }
        }
    }

    fn child(&mut self) {
        let name = self.token(1).to_owned();
        let mut path = self.inside.last().expect("a file is a module").0.clone();
        path.push(name.clone());
        match self.token(2) {
            ";" => self.outside.push(path),
            "{" => {
                self.depth += 1;
                self.inside.push((path, self.depth));
            }
            _ => {
                self.at += 1;
                return;
            }
        }
        if self.token(2) == "{" {
            let (parent, _) = self.inside[self.inside.len() - 2].clone();
            self.all.modules.entry(parent).or_default().children.insert(name);
            self.module();
        } else {
            self.module().children.insert(name);
        }
        self.at += 3;
    }

    fn use_tree(&mut self) {
        self.at += 1;
        if self.token(0) == "::" {
            // A crate for certain.
            return self.skip_item();
        }
        self.branch(&mut Vec::new());
    }

    /// Reads what follows a prefix in a `use`: a path, a group or a star.
    fn branch(&mut self, prefix: &mut Vec<String>) {
        let length = prefix.len();
        loop {
            match self.token(0).to_owned().as_str() {
                "{" => {
                    self.at += 1;
                    while !matches!(self.token(0), "}" | "") {
                        self.branch(prefix);
                        if self.token(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "*" => {
                    self.at += 1;
                    let path = prefix.clone();
                    self.module().globs.push(path.clone());
                    self.module().paths.insert(path);
                    break;
                }
                name => {
                    self.at += 1;
                    if name != "self" || prefix.is_empty() {
                        prefix.push(name.to_owned());
                    }
                    if self.token(0) == "::" {
                        self.at += 1;
                        continue;
                    }
                    let mut alias = prefix.last().expect("a name").clone();
                    if self.token(0) == "as" {
                        alias = self.token(1).to_owned();
                        self.at += 2;
                    }
                    let path = prefix.clone();
                    self.module().uses.insert(alias, path.clone());
                    self.module().paths.insert(path);
                    break;
                }
            }
        }
        prefix.truncate(length);
    }

    fn path(&mut self) {
        let mut path = vec![self.token(0).to_owned()];
        self.at += 1;
        while self.token(0) == "::" && is_name(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 {
            self.module().paths.insert(path);
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens of a text, without comments, literals and lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '"' || rest.starts_with("b\"") || rest.starts_with("c\"") {
            string(rest)
        } else if first == '\'' {
            character(rest)
        } else if is_name(rest) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            end
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            tokens.push(first.to_string());
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or(text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].strip_prefix('"')?;
    let begin = text.len() - after.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len()))
}

fn string(text: &str) -> usize {
    let begin = text.find('"').expect("it begins with one") + 1;
    let mut escaped = false;
    for (at, c) in text[begin..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return begin + at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character, or of a lifetime, which has no quote behind it.
fn character(text: &str) -> usize {
    let inner = &text[1..];
    if inner.starts_with('\\') {
        return inner[2..].find('\'').map_or(text.len(), |end| end + 4);
    }
    let one = inner.chars().next().map_or(0, char::len_utf8);
    if inner[one..].starts_with('\'') { one + 2 } else { 1 + one }
}
