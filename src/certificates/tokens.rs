//! Private keys in PKCS#11 tokens, named by URIs (RFC 7512) in the configuration or in files.

use super::{FileError, Loaded, Problem, Sources, file, files};
use std::path::PathBuf;
use std::time::Duration;

/// Where keys in tokens are, beside files with their URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// URIs of keys.
    pub keys: Vec<String>,
    /// The PKCS#11 module of URIs that name none.
    pub module: Option<PathBuf>,
    /// The time that a token may do nothing while it is waited for; `None`: ten seconds.
    pub time_limit: Option<Duration>,
}

impl Tokens {
    /// The URIs of the configuration, with the name that messages about them begin with.
    pub(super) fn named(&self) -> Vec<(PathBuf, String)> {
        let uris = self.keys.iter();
        uris.map(|uri| (PathBuf::from("token_keys in [certificates]"), uri.trim().to_owned()))
            .collect()
    }
}

/// The URI that is all of a file, but for comments and empty lines.
pub(super) fn uri(octets: &[u8]) -> Option<&str> {
    let lines = std::str::from_utf8(octets).ok()?.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let uri = lines
        .next()
        .filter(|line| line.get(..7).is_some_and(|s| s.eq_ignore_ascii_case("pkcs11:")))?;
    lines.next().is_none().then_some(uri)
}

/// The files that are read to reach the keys in tokens: modules and PINs.
pub fn paths(sources: &Sources) -> Vec<PathBuf> {
    let mut uris = sources.tokens.named();
    for source in &sources.private_keys {
        for path in files(source).unwrap_or_default() {
            let found = file::read(&path, super::Kind::PrivateKey).map(|content| content.found);
            let keys = found.unwrap_or_default().into_iter();
            let keys = keys.filter(|found| found.kind == super::Kind::TokenKey);
            uris.extend(keys.map(|found| {
                (path.clone(), String::from_utf8_lossy(found.octets.expose()).into_owned())
            }));
        }
    }
    modules_and_pins(&sources.tokens, &uris)
}

#[cfg(feature = "pkcs11")]
mod with {
    use super::{FileError, Loaded, PathBuf, Problem, Tokens};
    use host::writers::{Changeable, check_code, check_file};
    use ike::proof::trust::Item;
    use std::path::Path;
    use token::{Keys, Settings, TIME_LIMIT, Uri};

    pub fn modules_and_pins(tokens: &Tokens, uris: &[(PathBuf, String)]) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = tokens.module.iter().cloned().collect();
        for uri in uris.iter().filter_map(|(_, uri)| uri.parse::<Uri>().ok()) {
            paths.extend(uri.module_path);
            paths.extend(uri.pin_source.and_then(|source| source.file().ok()));
        }
        paths
    }

    pub fn open(tokens: &Tokens, uris: Vec<(PathBuf, String)>, loaded: &mut Loaded) {
        let Tokens { module, time_limit, .. } = tokens.clone();
        let keys = Keys::new(Settings { module, time_limit: time_limit.unwrap_or(TIME_LIMIT) });
        for (path, uri) in uris {
            let uri: Uri = match uri.parse() {
                Ok(uri) => uri,
                Err(problem) => {
                    loaded.errors.push(error(&path, problem.to_string()));
                    continue;
                }
            };
            let module = uri.module_path.as_ref().or(tokens.module.as_ref());
            let pins = uri.pin_source.as_ref().and_then(|source| source.file().ok());
            let checked = module.map_or(Ok(()), |module| of(module, check_code(module)));
            let checked = checked.and_then(|()| {
                pins.map_or(Ok(()), |pin| {
                    let Ok(metadata) = std::fs::metadata(&pin) else { return Ok(()) };
                    of(&pin, check_file(&pin, &metadata))
                })
            });
            if let Err(problem) = checked {
                loaded.errors.push(error(&path, problem));
                continue;
            }
            let name = format!("{} ({uri})", path.display());
            match keys.open(&uri) {
                Ok(opened) => {
                    // A file may have a newer one than the token.
                    let mut read = loaded.material.certificates.iter();
                    let is_read = read.any(|item| holds(&item.der, &opened.public));
                    if let Some(der) = opened.certificate.filter(|_| !is_read) {
                        loaded.material.certificates.push(Item { name: name.clone(), der });
                    }
                    if let Some(remark) = opened.remark
                        && !loaded.warnings.contains(&remark)
                    {
                        loaded.warnings.push(remark);
                    }
                    loaded.material.outside_keys.push((name, opened.key));
                }
                Err(problem) => loaded.errors.push(error(&path, format!("{uri}: {problem}"))),
            }
        }
    }

    fn error(path: &Path, problem: String) -> FileError {
        FileError { path: path.to_owned(), problem: Problem::Token(problem) }
    }

    fn of(path: &Path, checked: Result<(), Changeable>) -> Result<(), String> {
        checked.map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Returns `true` if a certificate has this key.
    fn holds(certificate: &[u8], key: &[u8]) -> bool {
        certificate.windows(key.len().max(1)).any(|window| window == key)
    }
}

#[cfg(not(feature = "pkcs11"))]
mod with {
    use super::{FileError, Loaded, PathBuf, Problem, Tokens};

    pub fn modules_and_pins(_: &Tokens, _: &[(PathBuf, String)]) -> Vec<PathBuf> {
        Vec::new()
    }

    pub fn open(_: &Tokens, uris: Vec<(PathBuf, String)>, loaded: &mut Loaded) {
        for (path, _) in uris {
            let problem = "a PKCS#11 URI names a key in a token, and this build knows no tokens; build it with the feature \
                           pkcs11";
            loaded.errors.push(FileError { path, problem: Problem::Token(problem.to_owned()) });
        }
    }
}

use with::modules_and_pins;
pub(super) use with::open;
