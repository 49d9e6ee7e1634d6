//! Scripts: the commands that nftables carries out together.

#![forbid(unsafe_code)]

use super::rule::Rule;
use super::set::{Element, Key};
use super::tables::Table;
use std::fmt::{self, Write as _};
use std::ops::Deref;
use std::os::fd::RawFd;

/// Commands for tables of the family inet, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands(String);

impl Commands {
    /// Declares a table with all that it has. If the table is there, that is added to it.
    pub fn declare(&mut self, table: &Table) {
        self.push(format_args!("{table}"));
    }

    /// Puts a table in the place of the one that has its name, if there is one.
    pub fn replace(&mut self, table: &Table) {
        if table.is_owned() {
            // A process does not get a table that it declares without this flag.
            self.declare(&Table::owned(table.name()));
            self.push(format_args!("delete table inet {}\n", table.name()));
        } else {
            self.remove(table.name());
        }
        self.declare(table);
    }

    /// Removes a table that nobody owns, if it is there.
    pub fn remove(&mut self, table: &str) {
        // Naming the table before deleting it makes the deletion succeed where there is none.
        self.push(format_args!("table inet {table}\ndelete table inet {table}\n"));
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, [table, chain]: [&str; 2], rule: &Rule) {
        self.push(format_args!("add rule inet {table} {chain} {rule}\n"));
    }

    /// Adds a set without elements.
    pub fn add_set(&mut self, [table, set]: [&str; 2], key: &Key) {
        self.push(format_args!("add set inet {table} {set} {{ type {}; }}\n", key.kind()));
    }

    /// Adds elements to a set; there is at least one.
    pub fn add_elements<'a>(
        &mut self,
        set: [&str; 2],
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        self.change_elements("add", set, elements);
    }

    /// Deletes elements of a set, which are there; there is at least one.
    pub fn delete_elements<'a>(
        &mut self,
        set: [&str; 2],
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        self.change_elements("delete", set, elements);
    }

    fn change_elements<'a>(
        &mut self,
        command: &str,
        [table, set]: [&str; 2],
        elements: impl IntoIterator<Item = &'a Element>,
    ) {
        let elements: Vec<String> = elements.into_iter().map(ToString::to_string).collect();
        let elements = elements.join(", ");
        self.push(format_args!("{command} element inet {table} {set} {{ {elements} }}\n"));
    }

    /// Adds a counter.
    pub(super) fn add_counter(&mut self, [table, counter]: [&str; 2]) {
        self.push(format_args!("add counter inet {table} {counter}\n"));
    }

    /// Deletes a counter that is there.
    pub(super) fn delete_counter(&mut self, [table, counter]: [&str; 2]) {
        self.push(format_args!("delete counter inet {table} {counter}\n"));
    }

    /// Prints a counter.
    pub(super) fn list_counter(&mut self, [table, counter]: [&str; 2]) {
        self.push(format_args!("list counter inet {table} {counter}\n"));
    }

    /// Carries out the commands in a file, which the process that carries out these has open.
    pub(super) fn include(&mut self, file: RawFd) {
        self.push(format_args!("include \"/proc/self/fd/{file}\"\n"));
    }

    fn push(&mut self, command: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(command);
    }
}

impl Deref for Commands {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Extend<Self> for Commands {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, commands: I) {
        self.0.extend(commands.into_iter().map(|Self(text)| text));
    }
}

impl FromIterator<Self> for Commands {
    fn from_iter<I: IntoIterator<Item = Self>>(commands: I) -> Self {
        let mut all = Self::default();
        all.extend(commands);
        all
    }
}

impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
