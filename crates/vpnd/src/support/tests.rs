use super::*;
use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

/// The files of an archive without the directory in it.
fn files(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).expect("it is there")));
    let entries = archive.entries().expect("an archive");
    let file = |entry: io::Result<tar::Entry<'_, GzDecoder<fs::File>>>| {
        let mut entry = entry.expect("a file");
        let name = entry.path().expect("a path").into_owned();
        let name = name.components().skip(1).collect::<PathBuf>().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name, text)
    };
    entries.map(file).collect()
}

#[test]
fn an_archive_is_written_without_a_daemon_once_and_for_its_owner() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("support.tar.gz");
    let control = directory.path().join("control.sock");
    let limit = Duration::from_secs(10);
    let written = write(&control, Some(&path), limit).expect("a new file");
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let files = files(&path);
    assert_eq!(files.len(), written.files);
    let (name, contents) = files.last().expect("it has files");
    assert_eq!(name, "contents.txt");
    assert!(contents.contains("daemon: not here: no vpnd is listening on "), "{contents}");
    for name in ["system.txt", "sysctl.txt"] {
        assert!(files.iter().any(|(file, text)| file == name && !text.is_empty()), "{name}");
        assert!(contents.contains(&format!("{name}: ")), "{contents}");
    }
    let error = write(&control, Some(&path), limit).expect_err("it exists").to_string();
    assert!(error.contains("--output FILE"), "{error}");
}

#[test]
fn a_name_has_the_host_and_the_time() {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    assert_eq!(base_name("gw", time), "vpnd-support-gw-20010909T014640Z");
}

#[test]
fn a_secret_is_removed_in_each_form() {
    let mut secrets = Secrets::default();
    secrets.learn("say \"friend\"");
    secrets.learn("0x0123456789abcdef");
    secrets.learn_octets(b"\xff\xfe\xfd\xfc");
    // They occur everywhere.
    secrets.learn("1234");
    secrets.learn("tunnel");
    let mut text =
        "tunnel 1234 say \"friend\" say \\\"friend\\\" 0123456789ABCDEF 0x0123456789abcdef fffefdfc \
                    73617920"
            .to_owned();
    text.push_str("22667269656e6422");
    secrets.remove(&mut text);
    assert!(text.starts_with("tunnel 1234 [removed] [removed] [removed] "), "{text}");
    for secret in ["friend", "0123", "fffe", "7361792"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn values_that_only_one_policy_has_are_secret() {
    let mut secrets = Secrets::default();
    let (with, without) =
        ("<Key Name=\"branch\" Value=\"open sesame\"/>", "<Key Name=\"branch\" Value=\"\"/>");
    secrets.learn_difference(with, without);
    let mut text = "branch: open sesame".to_owned();
    secrets.remove(&mut text);
    assert_eq!(text, "branch: [removed]");
}

#[test]
fn the_configuration_loses_its_keys_and_comments() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("vpnd.toml");
    let text = "# the old key: 0x1111111111111111\n\
                [control]\nsocket = \"/run/vpnd/control.sock\"\n\
                [certificates]\nprivate_keys = [\"private\"]\n\
                token_keys = [\"pkcs11:token=gw;object=k?pin-value=987654\"]\n\
                [[sa]]\nname = \"lab\"\nkey = \"0x2222222222222222\"\n\
                integrity_key = { file = \"/etc/vpnd/sa.key\" }\n";
    fs::write(&path, text).expect("writable");
    let mut secrets = Secrets::default();
    let json = settings::without_secrets(&path, &mut secrets).expect("it is TOML");
    for kept in ["/run/vpnd/control.sock", "\"private\"", "\"lab\"", "/etc/vpnd/sa.key"] {
        assert!(json.contains(kept), "{kept}: {json}");
    }
    for secret in ["1111", "2222", "987654"] {
        assert!(!json.contains(secret), "{secret}: {json}");
    }
    let mut log = "key 0x2222222222222222".to_owned();
    secrets.remove(&mut log);
    assert_eq!(log, "key [removed]");
    fs::write(&path, "key = \"0x3333333333333333").expect("writable");
    let why =
        settings::without_secrets(&path, &mut secrets).expect_err("a quotation mark is missing");
    assert!(why.contains("vpnd check") && !why.contains("3333"), "{why}");
}
