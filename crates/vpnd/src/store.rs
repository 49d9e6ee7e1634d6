//! The operations on the policy store, for a running daemon and for `vpnd offline` if none runs.

use crate::config::Config;
use crate::preflight;
use control::protocol::{
    Command, GetPolicy, ObjectChange, Objects, PolicyText, PutPolicy, Refusal, RefusalCode, Reply,
    Stored,
};
use host::policy_file::PolicyFile;
use policy::database::{DatabaseError, Object, PutOptions, Selection};
use policy::{Bindings, Database, Policy};
use std::path::Path;
use vpn::store::{Store, StoreError};

/// The new content of the store, and its differences from the present content.
#[derive(Debug)]
pub struct Prepared {
    /// Every object.
    pub database: Database,
    /// The effect on each object.
    pub objects: Vec<ObjectChange>,
    /// Number of objects that the command does not concern.
    pub others: usize,
    /// The warnings about the file that is put.
    pub warnings: Vec<String>,
}

/// Prepares the change of a command; `None` if the command does not change the store. `bindings`: the marks and
/// interfaces that the tunnels have or will have.
pub fn prepare(
    database: &Database,
    command: &Command,
    bindings: &Bindings,
) -> Option<Result<Prepared, Refusal>> {
    match command {
        Command::PolicyPut(wanted) => Some(put(database, wanted, bindings)),
        Command::PolicyDelete(objects) => Some(delete(database, objects)),
        Command::PolicyPurge => Some(Ok(purge(database))),
        _ => None,
    }
}

fn put(database: &Database, wanted: &PutPolicy, bindings: &Bindings) -> Result<Prepared, Refusal> {
    let PutPolicy { force, swap, lenient, .. } = *wanted;
    let options = PutOptions { force, swap, lenient, bindings: Some(bindings) };
    let put = database
        .put(&wanted.file, &wanted.text.0, &options)
        .map_err(|errors| Refusal::new(RefusalCode::BadPolicy, errors.to_string()))?;
    let objects: Vec<ObjectChange> = put.changes.into_iter().map(change).collect();
    let others = put.database.objects().len().saturating_sub(objects.len());
    let warnings = put.warnings.iter().map(ToString::to_string).collect();
    Ok(Prepared { database: put.database, objects, others, warnings })
}

fn delete(database: &Database, objects: &Objects) -> Result<Prepared, Refusal> {
    if objects.kind.is_none() {
        let message = "the field \"type\" must name the kind of the objects to delete";
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    let selection = selection(objects)?;
    let rest = database.delete(&selection).map_err(refusal)?;
    let gone = database.select(&selection, false).map_err(refusal)?;
    let objects = gone.into_iter().map(deleted).collect();
    let others = rest.objects().len();
    Ok(Prepared { database: rest, objects, others, warnings: Vec::new() })
}

fn purge(database: &Database) -> Prepared {
    let objects = database.objects().iter().map(deleted).collect();
    Prepared { database: Database::default(), objects, others: 0, warnings: Vec::new() }
}

/// The text of a policy file with the objects that are wanted.
///
/// # Errors
/// Where one is named that there is not.
pub fn get(database: &Database, wanted: &GetPolicy) -> Result<PolicyText, Refusal> {
    let selection = selection(&wanted.objects)?;
    let text = database.export(&selection, wanted.recursive, wanted.keys).map_err(refusal)?;
    Ok(PolicyText(text))
}

/// Carries out a command on the store in a directory, which no daemon may be running from. The warnings are also those
/// of a daemon that starts with the configuration.
///
/// # Errors
/// As the daemon would refuse it, or where the store cannot be used.
pub fn without_daemon(
    directory: &Path,
    config: &Config,
    command: &Command,
) -> Result<Reply, Refusal> {
    if let Command::PolicyGet(wanted) = command {
        return get(&Store::look(directory).map_err(unusable)?, wanted).map(Reply::Policy);
    }
    let dry_run = matches!(command, Command::PolicyPut(PutPolicy { dry_run: true, .. }));
    let bindings = config.planes().bindings();
    let name = directory.display().to_string();
    let (mut prepared, policy) = if dry_run {
        let database = Store::look(directory).map_err(unusable)?;
        let mut prepared = prepare(&database, command, &bindings).ok_or_else(no_change)??;
        let policy = match prepared.database.load(&name).map(PolicyFile::from) {
            Ok(file) => {
                prepared.warnings.extend(refused_before(&database, &file, &name, config)?);
                file.policy
            }
            Err(_) => Policy::default(),
        };
        (prepared, policy)
    } else {
        let mut store = Store::open(directory).map_err(unusable)?;
        let mut prepared =
            prepare(store.database(), command, &bindings).ok_or_else(no_change)??;
        let (checked, loaded) = store.check(prepared.database.clone()).map_err(unusable)?;
        let file = PolicyFile::from(loaded);
        // The old objects count, so this comes before they are replaced.
        prepared.warnings.extend(refused_before(store.database(), &file, &name, config)?);
        store.commit(checked).map_err(unusable)?;
        (prepared, file.policy)
    };
    prepared.warnings.extend(preflight::before_the_start(&policy, config));
    Ok(Reply::Stored(prepared.describe(directory, dry_run)))
}

fn no_change() -> Refusal {
    Refusal::new(RefusalCode::NotPossible, "that changes no policy store")
}

/// The refusal of the changed policy as a warning, if vpnd refuses the policy before the change, too.
///
/// An error would keep an operator from repairing such a store with several single changes.
fn refused_before(
    before: &Database,
    file: &PolicyFile,
    name: &str,
    config: &Config,
) -> Result<Option<String>, Refusal> {
    let Err(refused) = preflight::refuse(file, config) else { return Ok(None) };
    let before = before.load(name).map(PolicyFile::from);
    match before.is_ok_and(|before| preflight::refuse(&before, config).is_err()) {
        true => Ok(Some(refused.to_string())),
        false => Err(Refusal::new(RefusalCode::BadPolicy, refused.to_string())),
    }
}

impl Prepared {
    /// The answer to the client, without the changes of tunnels.
    pub fn describe(self, directory: &Path, dry_run: bool) -> Stored {
        Stored {
            directory: directory.display().to_string(),
            dry_run,
            objects: self.objects,
            others: self.others,
            warnings: self.warnings,
            reloaded: None,
        }
    }
}

/// The refusal where the store cannot be used.
pub fn unusable(error: StoreError) -> Refusal {
    let code = match error {
        StoreError::Damaged(_) => RefusalCode::BadPolicy,
        _ => RefusalCode::StoreFailed,
    };
    Refusal::new(code, error.to_string())
}

fn refusal(error: DatabaseError) -> Refusal {
    let code = match error {
        DatabaseError::Missing { .. } | DatabaseError::Ambiguous(_) => RefusalCode::UnknownObject,
        _ => RefusalCode::ObjectInUse,
    };
    Refusal::new(code, error.to_string())
}

fn selection(objects: &Objects) -> Result<Selection, Refusal> {
    let kind = objects.kind.as_deref().map(str::parse).transpose();
    let kind = kind.map_err(|error: policy::database::UnknownKind| {
        Refusal::new(RefusalCode::UnknownObject, error.to_string())
    })?;
    Ok(Selection { kind, name: objects.name.clone(), id_type: objects.id_type.clone() })
}

fn deleted(object: &Object) -> ObjectChange {
    ObjectChange {
        kind: object.element().to_owned(),
        name: object.name().to_owned(),
        effect: "deleted".to_owned(),
        differences: Vec::new(),
    }
}

fn change(change: policy::database::Change) -> ObjectChange {
    let policy::database::Change { kind, name, effect, differences } = change;
    ObjectChange { kind, name, effect: effect.name().to_owned(), differences }
}
