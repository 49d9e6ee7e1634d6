//! `ikedb`: the policy database.

use super::{Flags, Trouble, find, socket, started_with, starting};
use crate::convert::Convert;
use crate::programs::Offline;
use control::protocol::{Command, GetPolicy, Objects, PolicyText, PutPolicy, Reply, Stored};
use host::policy_file;
use std::io::Write;
use std::path::{Path, PathBuf};
use terminal::report::plain;

const USAGE: &str = "\
Usage: ikedb -p[Fs] [XML-file]
       ikedb -g[r] [-t type [-n name | -i ID -y ID-type]]
       ikedb -d -t type [-n name | -i ID -y ID-type]
       ikedb -c[F] [-l linux-file] [-k secrets-file] [-f XML-file]
       ikedb -x
       ikedb -o";

pub(super) fn run(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let flags = Flags::read(words, "pgdcxoFsre:t:n:i:y:l:k:f:R:AD", USAGE)?;
    if flags.has('R') || flags.has('A') || flags.has('D') {
        let message = "policies in LDAP are not supported; keep them here, and copy them with: ikedb -g > file, ikedb -p file";
        return Err(Trouble::new(message));
    }
    let [task] = flags.of("pgdcxo")[..] else {
        return Err(Trouble::usage("one of -p, -g, -d, -c, -x and -o is needed", USAGE));
    };
    let allowed = match task {
        'p' => "pFse",
        'g' => "grtniy",
        'd' => "dtniy",
        'c' => "cFlkf",
        task => {
            if task == 'x' {
                "x"
            } else {
                "o"
            }
        }
    };
    if let Some((stray, _)) = flags.given.iter().find(|(letter, _)| !allowed.contains(*letter)) {
        return Err(Trouble::usage(format!("-{stray} does not go with -{task}"), USAGE));
    }
    if flags.operands.len() > usize::from(task == 'p') {
        return Err(Trouble::usage("too many files", USAGE));
    }
    match task {
        'p' => put(&flags),
        'g' => get(&flags, out),
        'd' => change(Command::PolicyDelete(objects(&flags)?)).map(drop),
        'c' => convert(&flags),
        'x' => change(Command::PolicyPurge).map(drop),
        _ => Ok(write!(out, "{}", policy::xml::dtd())?),
    }
}

/// Asks the daemon, or where none runs, works on the store that `startsrc` has it start with.
fn ask(command: Command) -> Result<Reply, Trouble> {
    let mut client = match find()? {
        Some(client) => client,
        None => {
            if let Some(file) = starting::policy_file() {
                eprintln!(
                    "ikedb: warning: startsrc has vpnd run {file}, and not this database, as long as that file is there"
                );
            }
            let (config, silent) = (started_with(), socket());
            Offline { config: Some(&config), silent: Some(&silent), ..Offline::default() }
                .start()?
        }
    };
    client.ask(command).map_err(|error| {
        let trouble = Trouble::from(error);
        // Where the store speaks of options, it means those of vpnctl.
        Trouble { message: trouble.message.replace("with --force", "with -F"), ..trouble }
    })
}

/// Changes the database; remarks go to standard error.
fn change(command: Command) -> Result<Stored, Trouble> {
    match ask(command)? {
        Reply::Stored(stored) => {
            let remarks = stored.reloaded.iter().flat_map(|reloaded| &reloaded.warnings);
            for warning in stored.warnings.iter().chain(remarks) {
                eprintln!("{warning}");
            }
            Ok(stored)
        }
        _ => Err(Trouble::new(
            "vpnd gave an answer that does not fit; use the vpnctl that came with it",
        )),
    }
}

fn put(flags: &Flags) -> Result<(), Trouble> {
    if flags.has('e') {
        let message = "-e: entities are never expanded, so that no file can grow in the reader; \
                       put the files one after the other: what is in the database can be referred to";
        return Err(Trouble::new(message));
    }
    let path = flags.operands.first().map_or("-", String::as_str);
    let file =
        policy_file::text(Path::new(path)).map_err(|error| Trouble::new(error.to_string()))?;
    file.warning.iter().for_each(|warning| eprintln!("{warning}"));
    put_text(file.name, PolicyText(file.text), flags.has('F'), flags.has('s'))
}

fn put_text(file: String, text: PolicyText, force: bool, swap: bool) -> Result<(), Trouble> {
    change(Command::PolicyPut(PutPolicy { file, text, force, swap, ..PutPolicy::default() }))
        .map(drop)
}

fn get(flags: &Flags, out: &mut dyn Write) -> Result<(), Trouble> {
    let objects = objects(flags)?;
    match ask(Command::PolicyGet(GetPolicy { objects, recursive: flags.has('r'), keys: true }))? {
        Reply::Policy(PolicyText(text)) => Ok(out.write_all(text.as_bytes())?),
        _ => Err(Trouble::new(
            "vpnd gave an answer that does not fit; use the vpnctl that came with it",
        )),
    }
}

fn objects(flags: &Flags) -> Result<Objects, Trouble> {
    let [kind, name, id, id_type] =
        ['t', 'n', 'i', 'y'].map(|letter| flags.value(letter).map(str::to_owned));
    if kind.is_none() && (flags.has('d') || name.is_some() || id.is_some() || id_type.is_some()) {
        return Err(Trouble::usage("-t type is needed", USAGE));
    }
    if id.is_some() != id_type.is_some() {
        return Err(Trouble::usage("-i and -y go together", USAGE));
    }
    let of_key = kind.as_deref() == Some("IKEPresharedKey");
    if of_key && name.is_some() || !of_key && id.is_some() || name.is_some() && id.is_some() {
        let message =
            "-n names every kind of object but an IKEPresharedKey, which -i ID -y ID-type names";
        return Err(Trouble::usage(message, USAGE));
    }
    Ok(Objects { kind, name: name.or(id), id_type })
}

fn convert(flags: &Flags) -> Result<(), Trouble> {
    let secrets = PathBuf::from(flags.value('k').unwrap_or("/etc/ipsec.secrets"));
    let convert = Convert {
        file: PathBuf::from(flags.value('l').unwrap_or("/etc/ipsec.conf")),
        from: None,
        // The file of the default need not exist, the one that is named must.
        secrets: Some(secrets).filter(|path| flags.has('k') || path.exists()),
        output: flags.value('f').map(PathBuf::from),
        settings: None,
        force: flags.has('F'),
        peer: false,
        local_address: None,
    };
    let is_complete = if convert.output.is_some() {
        let code = convert.run().map_err(|error| Trouble::new(error.to_string()))?;
        code == std::process::ExitCode::SUCCESS
    } else {
        let converted = convert.convert().map_err(|error| Trouble::new(error.to_string()))?;
        eprint!("{}", converted.report());
        if !converted.settings.is_empty() {
            eprint!("for vpnd.toml:\n\n{}\n", converted.settings);
        }
        let name = plain(&convert.file.display().to_string()).into_owned();
        put_text(name, PolicyText(converted.xml.clone()), convert.force, false)?;
        !converted.is_incomplete()
    };
    match is_complete {
        true => Ok(()),
        false => Err(Trouble::new("not every tunnel could be converted as it was, see above")),
    }
}
