//! A file of the largest size, whatever is in it, takes bounded memory and work: both are counted, not timed.

use policy::xml::{MAX_FILE_LEN, read};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static ALL: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting octets per thread.
struct Counting;

// SAFETY: every call is handed to the system's allocator as it is; counting touches only thread-locals that need
// neither allocation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get() + layout.size();
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        ALL.set(ALL.get().saturating_add(layout.size()));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that reading may hold at once: what the largest policy that is loaded takes.
const HELD: usize = 128 << 20;
/// The most that reading may ask for in all.
const ASKED: usize = 256 << 20;
/// A file that is refused for its shape, before anything is made of it.
const OF_A_SHAPE: usize = 24 << 20;

/// A text of repetitions up to the largest size.
fn filled(head: &str, piece: &str, tail: &str) -> String {
    let count = (MAX_FILE_LEN - head.len() - tail.len()) / piece.len();
    format!("{head}{}{tail}", piece.repeat(count))
}

/// A text with numbered pieces, up to a number of them.
fn numbered(most: usize, head: &str, piece: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for more in (0..most).map(piece) {
        if text.len() + more.len() + tail.len() > MAX_FILE_LEN {
            break;
        }
        text += &more;
    }
    text + tail
}

/// The cost of reading a text: octets held at once, octets allocated in all, and `true` if it was refused.
fn cost(text: &str) -> (usize, usize, bool) {
    assert!(text.len() <= MAX_FILE_LEN);
    let before = LIVE.get();
    PEAK.set(before);
    ALL.set(0);
    let result = read("p.xml", text);
    let refused = result.is_err();
    if let Err(errors) = result {
        assert!(errors.to_string().len() < 100_000, "what is said is bounded, too");
    }
    (PEAK.get() - before, ALL.get(), refused)
}

#[test]
fn files_of_no_shape_are_refused_cheaply() {
    let attribute = |n: usize| format!(" a{n}=''");
    let shapes = [
        ("nested", filled("<AIX_VPN>", "<IKETunnel>", "")),
        ("side by side", filled("<AIX_VPN>", "<IKETunnel/>", "</AIX_VPN>")),
        ("attributes", numbered(usize::MAX, "<AIX_VPN", attribute, "/>")),
        ("the same attribute", filled("<AIX_VPN", " a=''", "/>")),
        ("references in a value", filled("<AIX_VPN Versoin='", "&#50;", "'/>")),
        ("text", filled("<AIX_VPN>", "a", "</AIX_VPN>")),
        (
            "a definition in a definition",
            filled("<!DOCTYPE a [", "<!ENTITY a \"&b;&b;\">", "]><AIX_VPN/>"),
        ),
    ];
    for (what, text) in shapes {
        let (held, asked, refused) = cost(&text);
        assert!(refused, "{what}");
        assert!(held < OF_A_SHAPE && asked < 8 * OF_A_SHAPE, "{what}: {held} held, {asked} in all");
    }
}

const PROTECTION: &str = "<IKEProtection IKE_ProtectionName='p' IKE_Role='Responder' IKE_Version='2'>\
                          <IKETransform IKE_AuthenticationMethod='RSA_signatures'/>";
const ONE_OFFER: &str =
    "<IKETransform IKE_Encryption='AES-GCM-16-256' IKE_PRF='PRF_HMAC_SHA2_256' IKE_DHGroup='19'/>";

fn tunnel(n: usize, remote: &str) -> String {
    format!(
        "<IKETunnel IKE_TunnelName='t{n}' IKE_ProtectionRef='p'><IKELocalIdentity><FQDN Value='l'/></IKELocalIdentity>\
         <IKERemoteIdentity>{remote}</IKERemoteIdentity></IKETunnel>"
    )
}

/// Small files that come to much: groups by ranges, lists that every tunnel copies, names that are searched for.
#[test]
fn files_that_multiply_are_bounded_in_memory() {
    let head =
        |offers: &str| format!("<AIX_VPN Version='2.1'>{PROTECTION}{offers}</IKEProtection>");
    let range = |third: usize| {
        format!(
            "<IPV4_Address_Range From_IPAddr='10.0.{third}.0' To_IPAddr='10.0.{}.255'/>",
            third + 3
        )
    };
    let group = format!("<IKEGroup Name='g'>{}</IKEGroup>", range(0));
    let offers: String = ["SHA2_256", "SHA2_384", "SHA2_512", "SHA", "AES-CMAC", "AES-XCBC"]
        .iter()
        .flat_map(|hash| {
            ["128", "192", "256"].into_iter().flat_map(move |bits| {
                ["2", "5", "14", "15", "16", "19", "20", "21", "24", "31"].map(move |group| {
                    format!("<IKETransform IKE_Encryption='AES-CBC-{bits}' IKE_Hash='{hash}' IKE_DHGroup='{group}'/>")
                })
            })
        })
        .collect();
    let name = |n: usize| tunnel(n, &format!("<FQDN Value='r{n}'/>"));
    let mut list = String::new();
    for n in 0..2_000 {
        let _ = write!(list, "q{n} ");
    }
    let traffic = |n: usize| {
        let octets =
            [n >> 16 & 255, n >> 8 & 255, n & 255].map(|octet| octet.to_string()).join(".");
        let side = |name, address: &str| {
            format!(
                "<IPSec{name}Identity Protocol='0' Port='0' EndPort='65535'><IPV4_Address_Range From_IPAddr='{address}' \
                 To_IPAddr='{address}'/></IPSec{name}Identity>"
            )
        };
        let [local, remote] = [side("Local", "192.0.2.1"), side("Remote", &format!("10.{octets}"))];
        format!(
            "<IPSecTunnel IPSec_TunnelName='net{n}' IKE_TunnelName='t' IPSec_ProtectionRef='s'>{local}{remote}</IPSecTunnel>"
        )
    };
    let second = "<IPSecProposal IPSec_ProposalName='e'><IPSecESPProtocol ESP_Encryption='ESP_AES128_GCM_16' \
                  ESP_Authentication='NONE' ESP_EncapsulationMode='Tunnel'/></IPSecProposal><IPSecProtection \
                  IPSec_ProtectionName='s' IPSec_ProposalRefs='e' IPSec_Role='Both'/>";
    let files = [
        (
            "phase 2 tunnels",
            numbered(
                20_000,
                &(head(ONE_OFFER)
                    + &tunnel(0, "<FQDN Value='r'/>").replace("'t0'", "'t'")
                    + second),
                traffic,
                "</AIX_VPN>",
            ),
        ),
        (
            "a group of ranges",
            numbered(
                9_900,
                &head(ONE_OFFER),
                |n| format!("<IKEGroup Name='g{n}'>{}</IKEGroup>", range(0)),
                "</AIX_VPN>",
            ),
        ),
        (
            "tunnels of one group",
            numbered(
                3_900,
                &(head(ONE_OFFER) + &group),
                |n| tunnel(n, "<Group Name='g'/>"),
                "</AIX_VPN>",
            ),
        ),
        ("tunnels of many offers", numbered(3_900, &head(&offers), name, "</AIX_VPN>")),
        (
            "references to nothing",
            numbered(
                100,
                &head(ONE_OFFER),
                |n| {
                    format!(
                        "<IPSecProtection IPSec_ProtectionName='x{n}' IPSec_ProposalRefs='{list}'/>"
                    )
                },
                "</AIX_VPN>",
            ),
        ),
    ];
    for (what, text) in files {
        let (held, asked, _) = cost(&text);
        assert!(held < HELD && asked < ASKED, "{what}: {held} held, {asked} in all");
    }
}
