//! Following `include` from file to file, with limits on their depth and on their contents together.

use crate::finding::{Finding, Report, unreadable};
use crate::source::{File, Files, Location};

/// Files inside files.
const MAX_DEPTH: usize = 12;

/// Reads a file and those that it includes.
pub(super) struct Walk<'f> {
    files: &'f mut dyn Files,
    /// The number of files that include each other down to the present one.
    depth: usize,
    /// The number of entries that may still be read.
    remaining: usize,
    /// The complaint about one too many.
    too_many: &'static str,
    report: &'f mut Report,
}

impl<'f> Walk<'f> {
    /// Begins at the outermost file. All files together may have `most` entries; one more is the error `too_many`.
    pub fn new(
        files: &'f mut dyn Files,
        most: usize,
        too_many: &'static str,
        report: &'f mut Report,
    ) -> Self {
        Self { files, depth: 0, remaining: most, too_many, report }
    }

    /// Counts an entry: a line, a section or a setting.
    ///
    /// # Errors
    /// If it is one too many.
    pub fn count(&mut self, location: &Location) -> Result<(), Finding> {
        match self.remaining.checked_sub(1) {
            Some(remaining) => self.remaining = remaining,
            None => return Err(unreadable(location, self.too_many, "")),
        }
        Ok(())
    }

    /// Reads the files that an `include` in `from` names. If there is none, that is reported, as the daemons do.
    ///
    /// # Errors
    /// If a file cannot be read, or files include each other too deeply; else the error of `read`.
    pub fn include(
        &mut self,
        pattern: &str,
        from: &File,
        location: &Location,
        mut read: impl FnMut(&File, &mut Self) -> Result<(), Finding>,
    ) -> Result<(), Finding> {
        if self.depth >= MAX_DEPTH {
            let message = "files include each other too deeply";
            return Err(unreadable(location, message, "remove an include"));
        }
        let included = self.files.include(pattern, &from.name);
        let included = included
            .map_err(|why| unreadable(location, format!("cannot include {pattern}: {why}"), ""))?;
        if included.is_empty() {
            let message = format!("include {pattern}: there is no such file");
            let help = "convert on the host that has the files, or copy them to the same place";
            self.report.dropped(location, message, help);
        }
        self.depth += 1;
        included.iter().try_for_each(|file| read(file, self))?;
        self.depth -= 1;
        Ok(())
    }
}
