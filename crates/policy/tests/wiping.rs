//! Freed memory holds no key of a policy: neither while the text is read and its values are used, nor after that.

use policy::database::PutOptions;
use policy::xml::read;
use policy::{Credential, Database, Secret};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The key, as it stands in a policy, and as octets.
const TEXT: &str = "c0ffee11c0ffee22c0ffee33c0ffee44c0ffee55c0ffee66";
const OCTETS: [u8; 8] = [0xc0, 0xff, 0xee, 0x11, 0xc0, 0xff, 0xee, 0x22];

thread_local! {
    static LOOKS: Cell<bool> = const { Cell::new(false) };
    static FOUND: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which looks for the key in freed memory.
struct Looking;

// SAFETY: every call is handed to the system's allocator as it is; looking touches only thread-locals that need neither
// allocation nor destruction.
unsafe impl GlobalAlloc for Looking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // With zeroes, every octet that is looked at later has a value.
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if LOOKS.get() {
            // SAFETY: the caller gives up this memory, which has this length, and was initialized by `alloc`.
            let freed = unsafe { std::slice::from_raw_parts(pointer, layout.size()) };
            // Not the beginning of a key: some allocators write there.
            let has = |needle: &[u8]| freed.windows(needle.len()).any(|part| part == needle);
            if has(&OCTETS) || has(&TEXT.as_bytes()[8..24]) {
                FOUND.set(FOUND.get() + 1);
            }
        }
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Looking = Looking;

/// The pieces of freed memory with the key that some work leaves behind.
fn left_by(work: impl FnOnce()) -> usize {
    FOUND.set(0);
    LOOKS.set(true);
    work();
    LOOKS.set(false);
    FOUND.get()
}

/// The sample policy with the key, in one of the formats of AIX.
fn sample(format: &str) -> String {
    let sample = include_str!("../../../tests/policies/site/left.xml");
    let line = sample.lines().find(|line| line.contains("<IKEPresharedKey "));
    let line = line.expect("it has a key");
    sample.replace(line, &format!("<IKEPresharedKey Format=\"{format}\" Value=\"{TEXT}\">"))
}

#[test]
fn a_key_that_is_not_wiped_is_seen() {
    assert_eq!(left_by(|| drop(TEXT.to_owned())), 1);
    let octets = Secret::from_hex(TEXT).expect("digits");
    assert_eq!(left_by(|| drop(octets.expose().to_vec())), 1);
}

#[test]
fn the_key_of_a_policy_is_wiped() {
    for format in ["HEX", "ASCII"] {
        let text = sample(format);
        let left = left_by(|| {
            let loaded = read("left.xml", &text).expect("the sample is valid");
            let tunnel = &loaded.policy.tunnels[0];
            let Credential::PresharedKey(key) = &tunnel.credential else { panic!("{tunnel:?}") };
            assert!(key.len() >= 24);
            let copy = loaded.policy.clone();
            drop(loaded);
            assert!(!format!("{copy:?}").contains(&TEXT[8..]));
        });
        assert_eq!(left, 0, "{format}: pieces of freed memory");
    }
}

#[test]
fn the_key_of_a_text_with_a_mistake_is_wiped() {
    let text = sample("HEX");
    for (from, to) in [
        ("IKE_ProtectionRef=\"site_p1\"", "IKE_ProtectionRef=\"none\""),
        ("Format=\"HEX\" Value=\"c0", "Format=\"HEX\" Value=\"x0"),
        ("</AIX_VPN>", ""),
    ] {
        assert!(text.contains(from), "{from}");
        let text = text.replace(from, to);
        let left = left_by(|| {
            let told = read("left.xml", &text).expect_err("it has a mistake").to_string();
            assert!(!told.contains(&TEXT[8..24]), "{told}");
        });
        assert_eq!(left, 0, "{to}: pieces of freed memory");
    }
}

#[test]
fn the_key_of_stored_objects_is_wiped() {
    let text = sample("HEX");
    let left = left_by(|| {
        let put = Database::default().put("left.xml", &text, &PutOptions::default());
        let database = put.expect("the sample is valid").database;
        let stored = database.to_xml();
        assert!(stored.contains(TEXT));
        let again = Database::read("policy.xml", &stored).expect("as it was written");
        assert!(again == database);
    });
    assert_eq!(left, 0, "pieces of freed memory");
}
