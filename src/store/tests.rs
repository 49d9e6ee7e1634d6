use super::*;
use policy::database::PutOptions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const SITE: &str = include_str!("../../tests/policies/site/left.xml");

/// Where the child process finds the store, and before which step it dies.
const DIRECTORY: &str = "VPN_STORE_TEST_DIRECTORY";
const DEATH: &str = "VPN_STORE_TEST_DEATH";

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn open(directory: &Path) -> Store {
    Store::open(directory).unwrap_or_else(|error| panic!("{error}"))
}

fn commit(store: &mut Store, database: Database) -> Loaded {
    let (checked, loaded) = store.check(database).expect("it reads back to the same");
    store.commit(checked).expect("it can be written");
    loaded
}

fn site() -> Database {
    Database::read("left.xml", SITE).expect("the sample is valid")
}

/// Preshared keys, each of that many octets.
fn keys(count: usize, length: usize) -> String {
    let key = "k".repeat(length);
    let one = |n| {
        format!(
            "<IKEPresharedKey Value='{key}'><IKEPresharedRemoteID><PK_FQDN Value='h{n}.example.net'/>\
             </IKEPresharedRemoteID></IKEPresharedKey>"
        )
    };
    format!("<AIX_VPN Version='2.1'>{}</AIX_VPN>", (0..count).map(one).collect::<String>())
}

/// Another policy that takes several pieces to write.
fn large() -> Database {
    let put = site().put("keys.xml", &keys(2, 6000), &PutOptions::default());
    put.expect("valid").database
}

#[test]
fn a_stored_policy_is_there_after_a_restart() {
    let directory = empty();
    let path = directory.path().join("store");
    let mut store = open(&path);
    assert!(store.database().is_empty());
    let loaded = commit(&mut store, site());
    assert_eq!(loaded.policy, policy::xml::read("left.xml", SITE).expect("valid").policy);
    assert_eq!(loaded.definitions.of("site").next().expect("it is defined").element, "IKETunnel");
    assert_eq!(loaded.definitions.file(), store.path().display().to_string());
    drop(store);
    let mut store = open(&path);
    assert_eq!(*store.database(), site());
    commit(&mut store, Database::default());
    assert!(Store::look(&path).expect("readable").is_empty());
}

#[test]
fn nobody_else_may_read_it_and_one_may_write_it() {
    let directory = empty();
    let path = directory.path().join("store");
    let mut store = open(&path);
    commit(&mut store, site());
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&store.path()), mode(&path.join(LOCK))), (0o700, 0o600, 0o600));
    assert!(matches!(Store::open(&path), Err(StoreError::InUse(_))));
    assert_eq!(Store::look(&path).expect("looking needs no lock"), site());
    drop(store);
    open(&path);
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    set(&path, 0o703);
    assert!(matches!(Store::look(&path), Err(StoreError::Changeable { .. })));
    set(&path, 0o700);
    set(&path.join(FILE), 0o602);
    let error = Store::look(&path).expect_err("everybody may write it").to_string();
    assert!(error.contains("policy.xml") && error.contains("chmod go-w"), "{error}");
}

#[test]
fn a_damaged_store_is_told_and_the_policy_kept() {
    let directory = empty();
    let mut store = open(directory.path());
    commit(&mut store, site());
    let text = fs::read_to_string(store.path()).expect("readable");
    let damaged = text.replace("IKE_ProtectionRef=\"site_p1\"", "IKE_ProtectionRef=\"site_p9\"");
    fs::write(store.path(), &damaged).expect("writable");
    let error = store.refresh().expect_err("a broken reference").to_string();
    assert!(error.contains("policy.xml:") && error.contains("site_p9"), "{error}");
    assert_eq!(*store.database(), site(), "as it was");
    fs::write(store.path(), b"\xff").expect("writable");
    assert!(matches!(store.refresh(), Err(StoreError::Unreadable { .. })));
    fs::write(store.path(), text.replace("10.2.0.255", "10.2.0.127")).expect("writable");
    let loaded = store.refresh().expect("changed by hand");
    assert_eq!(loaded.policy.tunnels[0].children[0].remote[0].to_string(), "10.2.0.0/25");
}

#[test]
fn a_step_that_fails_leaves_the_old_or_the_new() {
    let (old, new) = (site(), large());
    let mut steps = 0;
    for failing in 0.. {
        let directory = empty();
        let mut store = open(directory.path());
        commit(&mut store, old.clone());
        let mut count = 0;
        let mut at = None;
        let (checked, _) = store.check(new.clone()).expect("it reads back to the same");
        let outcome = store.commit_by(checked, |step| {
            count += 1;
            at = Some(step);
            match count > failing {
                true => Err(io::Error::other("injected")),
                false => Ok(()),
            }
        });
        let found = Store::look(directory.path()).expect("whole");
        assert_eq!(found, *store.database(), "what is told is what is there: {at:?}");
        let Err(error) = outcome else {
            assert_eq!(found, new);
            break;
        };
        assert!(error.to_string().contains("injected"), "{error}");
        let renamed = at == Some(Step::SyncDirectory);
        assert_eq!(found, if renamed { new.clone() } else { old.clone() }, "{at:?}");
        assert_eq!(matches!(error, StoreError::Unsure { .. }), renamed);
        commit(&mut store, new.clone());
        assert_eq!(Store::look(directory.path()).expect("whole"), new);
        steps = failing + 1;
    }
    assert!(steps >= 8, "{steps} steps, four of them writing");
}

#[test]
fn a_death_between_steps_leaves_the_old_or_the_new() {
    let (old, new) = (site(), large());
    let mut found = Vec::new();
    for death in 1.. {
        let directory = empty();
        commit(&mut open(directory.path()), old.clone());
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "store::tests::dies_between_steps", "--ignored"])
            .envs([(DIRECTORY, directory.path().as_os_str()), (DEATH, death.to_string().as_ref())])
            .output()
            .expect("it can be run");
        let stored = Store::look(directory.path()).expect("whole");
        assert!(stored == old || stored == new);
        found.push(stored == new);
        let mut store = open(directory.path());
        commit(&mut store, new.clone());
        if child.status.success() {
            break;
        }
    }
    assert!(found.len() > 6, "{found:?}");
    assert!(found.is_sorted(), "once new, it stays so: {found:?}");
    assert_eq!(found.iter().filter(|new| **new).count(), 2, "before the last step, and in the end");
}

#[test]
#[ignore = "the child process of the test above"]
fn dies_between_steps() {
    let directory = std::env::var_os(DIRECTORY).expect("given");
    let death: usize = std::env::var(DEATH).expect("given").parse().expect("a number");
    let mut steps = 0;
    let die = |_| {
        steps += 1;
        if steps == death {
            std::process::abort();
        }
        Ok(())
    };
    let mut store = open(directory.as_ref());
    let (checked, _) = store.check(large()).expect("it reads back to the same");
    store.commit_by(checked, die).expect("it can be written");
}

#[test]
fn a_policy_too_large_to_be_read_is_not_written() {
    let directory = empty();
    let mut store = open(directory.path());
    commit(&mut store, site());
    let put = store.database().put(
        "keys.xml",
        &keys(2, MAX_FILE_LEN / 2 - 1_288),
        &PutOptions::default(),
    );
    let database = put.expect("as much as is read").database;
    assert!(matches!(store.check(database), Err(StoreError::Full(_))));
    assert_eq!(*store.database(), site());
    assert_eq!(Store::look(directory.path()).expect("readable"), site());
}
