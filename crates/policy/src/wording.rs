//! Words that messages share: quoted values, lists of names, and the name that was probably meant.

/// Names that are compared in search of the one that was meant.
const MAX_CANDIDATES: usize = 500;

/// Characters of a value that a message quotes.
const MAX_QUOTED: usize = 60;

/// A value as a message shows it: quoted, escaped, cut.
pub(crate) fn quoted(value: &str) -> String {
    match value.char_indices().nth(MAX_QUOTED) {
        Some((cut, _)) => format!("{:?}…", &value[..cut]),
        None => format!("{value:?}"),
    }
}

/// The candidate nearest to what was written, if it is near at all; case does not count.
pub(crate) fn nearest<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if written.len() > 2 * MAX_QUOTED {
        return None;
    }
    let lower = written.to_ascii_lowercase();
    let allowed = (written.chars().count() / 3).min(4);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| candidate.len() <= 2 * MAX_QUOTED)
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`, or else the fallback.
pub(crate) fn did_you_mean<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    match nearest(written, candidates) {
        Some(candidate) => format!("did you mean {candidate:?}?"),
        None => otherwise(),
    }
}

/// Names with commas between.
pub(crate) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
