//! `mkdev`, `rmdev` and `lsdev` for the devices `ipsec_v4` and `ipsec_v6`, and `smit` for their menus: IPsec of each
//! address family.

use super::{Flags, Settings, Trouble};
use control::client::Client;
use control::protocol::{Command, FamiliesInfo, Reply};
use std::io::Write;

const MAKE: &str = "Usage: mkdev -c ipsec -t 4|6 | -l ipsec_v4|ipsec_v6";
const REMOVE: &str = "Usage: rmdev [-d] -l ipsec_v4|ipsec_v6";
const LIST: &str = "Usage: lsdev -C -c ipsec | -l ipsec_v4|ipsec_v6";
const MENU: &str = "Usage: smit ipsec4|ipsec6";

const CLASS: &str = "ipsec";

/// A device of AIX, which stands for a family.
struct Device {
    name: &'static str,
    /// As the flag `-t` has it.
    kind: &'static str,
    description: &'static str,
    /// As the control protocol has it.
    family: &'static str,
}

const DEVICES: [Device; 2] = [
    Device {
        name: "ipsec_v4",
        kind: "4",
        description: "IP Version 4 Security Extension",
        family: "ipv4",
    },
    Device {
        name: "ipsec_v6",
        kind: "6",
        description: "IP Version 6 Security Extension",
        family: "ipv6",
    },
];

/// `mkdev`: switches a family on, also after a restart.
pub(super) fn make(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let flags = Flags::read(words, "c:t:l:", MAKE)?;
    let device = match (flags.value('c'), flags.value('t'), flags.value('l')) {
        (Some(CLASS), Some(kind), None) => of_kind(kind)?,
        (None, None, Some(name)) => named(name)?,
        (Some(class), _, None) if class != CLASS => return Err(other_class(class)),
        _ => return Err(Trouble::usage("name the class and the type, or the device", MAKE)),
    };
    nothing_else(&flags, MAKE)?;
    set("mkdev", device, true, true)?;
    writeln!(out, "{} Available", device.name)?;
    Ok(())
}

/// `rmdev`: switches a family off until `mkdev` or a restart; with `-d` also after a restart.
pub(super) fn remove(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let flags = Flags::read(words, "dl:", REMOVE)?;
    let Some(name) = flags.value('l') else {
        return Err(Trouble::usage("name the device", REMOVE));
    };
    let device = named(name)?;
    nothing_else(&flags, REMOVE)?;
    let for_good = flags.has('d');
    set("rmdev", device, false, for_good)?;
    writeln!(out, "{} {}", device.name, if for_good { "deleted" } else { "Defined" })?;
    Ok(())
}

/// `lsdev`: the devices and their states.
pub(super) fn list(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let flags = Flags::read(words, "Cc:l:", LIST)?;
    let wanted = match (flags.value('c'), flags.value('l')) {
        (Some(CLASS), None) => None,
        (None | Some(CLASS), Some(name)) => Some(named(name)?.name),
        (Some(class), _) => return Err(other_class(class)),
        (None, None) => return Err(Trouble::usage("name the class ipsec or a device", LIST)),
    };
    nothing_else(&flags, LIST)?;
    let families = ask(&mut Settings::open("lsdev")?.client, Command::Families)?.families;
    for device in DEVICES.iter().filter(|d| wanted.is_none_or(|wanted| wanted == d.name)) {
        let on = families.iter().any(|f| f.family == device.family && f.on);
        let state = if on { "Available" } else { "Defined" };
        writeln!(out, "{} {state:<9}  {}", device.name, device.description)?;
    }
    Ok(())
}

/// `smit`: the commands that do the same as the menus.
pub(super) fn menu(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let device = match words {
        [menu] => DEVICES.iter().find(|d| menu.strip_prefix(CLASS) == Some(d.kind)),
        _ => None,
    };
    let Some(Device { name, family, .. }) = device else {
        return Err(Trouble::usage(
            "there are no menus here; ipsec4 and ipsec6 show commands",
            MENU,
        ));
    };
    let of_filter = format!("vpnctl filter, vpnctl filter --{family} deny|permit");
    let lines = [
        ("Start IP Security", format!("mkdev -l {name}, or vpnctl family {family} on --persist")),
        ("Stop IP Security", format!("rmdev -l {name}, or vpnctl family {family} off")),
        ("Basic IP Security Configuration", "vpnctl policy new, vpnctl policy put".to_owned()),
        ("Advanced: filter rules", of_filter),
        ("Advanced: list active tunnels", "ike cmd=list, or vpnctl list --verbose".to_owned()),
        ("Advanced: Internet Key Exchange", "ikedb -p, or vpnctl policy put".to_owned()),
        ("State of the families", "lsdev -C -c ipsec, or vpnctl family".to_owned()),
    ];
    writeln!(out, "There are no menus here. These commands do the same:")?;
    for (item, command) in lines {
        writeln!(out, "  {item:<32} {command}")?;
    }
    Ok(())
}

/// Switches a family on or off in a running daemon, or at the next start of one.
fn set(command: &'static str, device: &Device, on: bool, persist: bool) -> Result<(), Trouble> {
    let mut settings = Settings::open(command)?;
    if !persist {
        settings.need_daemon("use -d as well")?;
    }
    let family = device.family.to_owned();
    let change = Command::SetFamily { family, on: Some(on), persist };
    let FamiliesInfo { file, .. } = ask(&mut settings.client, change)?;
    settings.tell_kept(&file);
    Ok(())
}

fn ask(client: &mut Client, command: Command) -> Result<FamiliesInfo, Trouble> {
    match client.ask(command)? {
        Reply::Families(families) => Ok(families),
        reply => Err(client.unexpected(&reply).into()),
    }
}

fn named(name: &str) -> Result<&'static Device, Trouble> {
    DEVICES.iter().find(|device| device.name == name).ok_or_else(|| {
        Trouble::new(format!("there is no device {name} here; there are ipsec_v4 and ipsec_v6"))
    })
}

fn of_kind(kind: &str) -> Result<&'static Device, Trouble> {
    DEVICES.iter().find(|device| device.kind == kind).ok_or_else(|| {
        Trouble::new(format!("there is no type {kind} of the class ipsec; there are 4 and 6"))
    })
}

fn other_class(class: &str) -> Trouble {
    Trouble::new(format!("there is no class {class} here; only ipsec"))
}

fn nothing_else(flags: &Flags, usage: &'static str) -> Result<(), Trouble> {
    match flags.operands.first() {
        Some(word) => Err(Trouble::usage(format!("{word:?} is too much"), usage)),
        None => Ok(()),
    }
}
