use super::*;
use ::crypto::{Provider, Suite};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tracing::Level;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("vpnd.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_is_the_defaults_of_the_engine() {
    let config = parse("").expect("nothing is required");
    assert_eq!(config, Config::default());
    let (ours, theirs) = (config.ike(), ::ike::Config::default());
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
}

#[test]
fn the_shipped_file_is_valid_and_states_the_defaults() {
    let text = include_str!("../../../../config/vpnd.toml");
    assert_eq!(parse(text).expect("the shipped file is valid"), Config::default());
    // Uncommenting every setting must give the same, so that what the comments promise is what happens.
    let uncommented: String = text
        .lines()
        .map(|line| line.strip_prefix("#").filter(|l| !l.starts_with(' ')).unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n");
    assert!(uncommented.contains("\nretransmissions"));
    assert_eq!(parse(&uncommented).expect("every setting is valid"), Config::default());
}

#[test]
fn the_shipped_file_is_the_one_that_is_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/vpnd.toml");
    let written = text();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, &written).expect("the file can be written");
    }
    let shipped = fs::read_to_string(&path).expect("the file");
    assert!(shipped == written, "{}: UPDATE_EXPECTED=1 writes it again", path.display());
}

#[test]
fn every_setting_is_documented() {
    for section in SECTIONS {
        let first = section.keys.first().expect("a section has settings");
        assert!(!first.doc.is_empty(), "{first} comes first, and has no documentation");
    }
}

#[test]
fn the_socket_is_in_the_directory_of_the_other_volatile_files() {
    // The client knows the socket without linking the plane, whose default the directory is.
    let Config { control, esp, .. } = Config::default();
    assert_eq!(control.socket.parent(), Some(esp.state_dir.as_path()));
}

#[test]
fn every_field_reaches_the_gateway() {
    let config = parse(
        r#"
        [control]
        socket = "/tmp/c.sock"
        [log]
        level = "info,ike=debug"
        format = "json"
        [ike]
        retransmit_after = "500ms"
        retransmissions = 3
        liveness_interval = "off"
        liveness_action = "restart"
        close_action = "trap"
        nat_keepalive = "1m"
        cookie_threshold = 7
        half_open_limit = 70
        linger = "2s"
        fragment_size = 300
        [esp]
        replay_window = 128
        encap = "always"
        device = "left0"
        state_dir = "/run/left"
        [crypto]
        provider = "ring"
        algorithms = { aes-gcm-128 = "portable" }
        in_core_enabled = false
        min_sz = 64
        tunables = "/tmp/crypto.toml"
        "#,
    )
    .expect("valid");
    assert_eq!(config.control.socket, Path::new("/tmp/c.sock"));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.log.level.to_string(), "info,ike=debug");
    let gateway = format!("{:?}", config.gateway(Policy::default()));
    assert!(gateway.contains("device: \"left0\""), "{gateway}");
    assert!(gateway.contains("state_dir: \"/run/left\""), "{gateway}");
    assert!(gateway.contains("replay_window: 128"), "{gateway}");
    let crypto = config.crypto.choice();
    let (gcm, chacha) = (Suite::AesGcm16(policy::KeyBits::B128), Suite::ChaCha20Poly1305);
    assert_eq!(crypto.provider(gcm), Provider::Portable);
    assert_eq!(crypto.provider(chacha), Provider::Ring);
    assert_eq!((config.crypto.in_core_enabled, config.crypto.min_sz), (false, 64));
    assert_eq!(config.crypto.tunables, Path::new("/tmp/crypto.toml"));
    let ike = config.ike();
    assert_eq!(ike.retransmit_after, Duration::from_millis(500));
    assert_eq!(ike.retransmissions, 3);
    assert_eq!(ike.liveness_interval, None);
    let actions = (ike.liveness_action, ike.close_action);
    assert_eq!(actions, (::ike::RestartAction::Restart, ::ike::RestartAction::Trap));
    assert_eq!(ike.nat_keepalive, Duration::from_secs(60));
    assert_eq!((ike.cookie_threshold, ike.half_open_limit), (7, 70));
    assert_eq!(ike.linger, Duration::from_secs(2));
    assert_eq!(ike.fragment_size, Some(300));
    assert_eq!(ike.replay_window, 128);
    assert_eq!(ike.encap, ::ike::Encap::Always);
    let whole = parse("[ike]\nfragmentation = false\nfragment_size = 300").expect("valid");
    assert_eq!(whole.ike().fragment_size, None);
}

#[test]
fn settings_that_need_a_restart_are_named() {
    let before = parse("[esp]\nouter_mtu = 1400\n[tunnel.a]\nif_id = 1\n[tunnel.b]\nif_id = 2\n");
    let before = before.expect("valid");
    let needs = |text: &str| parse(text).expect("valid").needs_restart(&before);
    let same = "[esp]\nouter_mtu = 1400\n[tunnel.a]\nif_id = 1\n[tunnel.b]\nif_id = 2\n";
    assert_eq!(needs(same), [""; 0]);
    // The command line may have replaced the first two, and a reload applies the others.
    let applied = "[log]\nlevel = \"debug\"\n[control]\nsocket = \"/c\"\n[filter]\nipv4 = \"deny\"\non_stop = \"block\"\n\
                   [[filter.rule]]\naction = \"bypass\"\n";
    assert_eq!(needs(&format!("{same}{applied}")), [""; 0]);
    let changed = "[ike]\nlinger = \"6s\"\n[certificates]\ncrl_cache = \"/c\"\n[esp]\nouter_mtu = 1300\n\
                   [tunnel.a]\nif_id = 1\n[tunnel.b]\nif_id = 3\n[tunnel.\"c d\"]\nif_id = 4\n";
    assert_eq!(
        needs(changed),
        [
            "ike.linger",
            "esp.outer_mtu",
            "certificates.crl_cache",
            "[tunnel.\"b\"]",
            "[tunnel.\"c d\"]"
        ]
    );
}

#[test]
fn mistakes_are_named_with_their_place_and_cure() {
    for (text, fragments) in [
        ("[ike]\nretransmit = 3", &["vpnd.toml", "line 2", "retransmit", "retransmissions"][..]),
        ("[ikev2]", &["line 1", "ikev2", "expected one of", "`ike`"]),
        ("[ike]\nlinger = 5", &["line 2", "length of time such as \"30s\""]),
        ("[ike]\nlinger = \"5 days\"", &["line 2", "\"5 days\" is no length of time", "\"5m\""]),
        ("[ike]\nlinger = \"99999999999999999999h\"", &["is no length of time"]),
        ("[ike]\nretransmissions = 65", &["ike.retransmissions = 65", "0 to 64"]),
        ("[ike]\nretransmissions = -1", &["line 2", "retransmissions"]),
        ("[ike]\nnat_keepalive = \"off\"", &["ike.nat_keepalive = \"off\"", "length of time"]),
        ("[ike]\nliveness_interval = \"1ms\"", &["ike.liveness_interval = 1ms", "or \"off\""]),
        ("[ike]\ncookie_threshold = 9\nhalf_open_limit = 8", &["ike.cookie_threshold = 9"]),
        ("[ike]\nfragment_size = 20", &["ike.fragment_size = 20", "between 160 and 65535"]),
        ("[ike]\nfragmentation = \"force\"", &["line 2", "fragmentation"]),
        ("[esp]\nencap = \"maybe\"", &["line 2", "maybe", "always"]),
        ("[esp]\nouter_mtu = 500", &["esp.outer_mtu", "between 576 and 65535"]),
        ("[esp]\ndf = \"maybe\"", &["set", "clear", "copy"]),
        ("[esp]\npath_mtu_lifetime = \"1m\"", &["esp.path_mtu_lifetime", "120s", "off"]),
        ("[esp]\nreplay_window = 70000", &["esp.replay_window = 70000", "at most 65,536"]),
        ("[esp]\nworkers = 0", &["line 2", "\"auto\" or a number of workers from 1 to 64"]),
        ("[esp]\nworkers = \"all\"", &["line 2", "use auto, or 1 to 64"]),
        ("[esp]\nschedule = \"fast\"", &["line 2", "run-to-completion or pipeline"]),
        ("[esp]\nwait = \"sleep\"", &["line 2", "event, poll or adaptive"]),
        (
            "[esp]\nwithout = [\"gro\"]",
            &["line 2", "use device-offload, udp-segmentation, udp-gro"],
        ),
        ("[esp]\ndevice = \"a name of a device\"", &["esp.device", "1 to 15"]),
        ("[esp]\ndevice = \"../x\"", &["esp.device"]),
        (
            "# A comment.\n[esp]\n\n  device = 'vpn\"0'\n",
            &["vpnd.toml: line 4: esp.device = \"vpn\\\"0\"", "nftables", "leave it out"],
        ),
        ("esp.device = 'vpn\"0'", &["vpnd.toml: esp.device = ", "nftables"]),
        ("[log]\nlevel = \"loud\"", &["line 2", "\"loud\" is no log level", "debug"]),
        ("[traces]\nendpoint = \"https://a/\"", &["line 2", "https, which vpnd does not speak"]),
        ("[traces]\nendpoint = \"a:4318\"", &["line 2", "no http:// URL"]),
        ("[log]\nformat = \"xml\"", &["line 2", "xml", "json"]),
        ("[crypto]\nprovider = \"openssl\"", &["line 2", "\"openssl\"; there are aws-lc, ring"]),
        ("[crypto]\nalgorithms = { aes = \"ring\" }", &["line 2", "\"aes\"; there are aes-gcm"]),
        ("[ike\n", &["line 1"]),
    ] {
        let error = parse(text).expect_err(text);
        for fragment in fragments {
            assert!(error.contains(fragment), "{text:?}: no {fragment:?} in:\n{error}");
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::read(Path::new("/nonexistent/vpnd.toml")).expect_err("there is none");
    assert!(error.to_string().starts_with("cannot read the configuration /nonexistent/vpnd.toml"));
}

#[test]
fn a_file_that_others_can_change_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("vpnd.toml");
    fs::write(&file, "[log]\nlevel = \"debug\"\n").expect("writable");
    let read = |mode| {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("ours");
        Config::read(&file).map_err(|error| error.to_string())
    };
    let error = read(0o646).expect_err("everybody may write it");
    assert!(error.starts_with("the configuration /") && error.contains("chmod go-w"), "{error}");
    assert!(read(0o644).is_ok());
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&file, None, Some(65_534)).expect("as root");
        let error = read(0o664).expect_err("a group may write it");
        assert!(error.contains("every member of group 65534 may change it"), "{error}");
    }
    assert_eq!(Config::read(Path::new("/dev/null")).expect("it is empty"), Config::default());
}

#[test]
fn levels() {
    for good in ["error", "info", "TRACE", "off", "info,ike=debug", "ike=trace,warn"] {
        assert!(good.parse::<LogLevel>().is_ok(), "{good}");
    }
    let level = |text: &str| text.parse::<LogLevel>().expect("a level");
    assert_eq!(level("info,cli=debug").targets(), level("info,vpnd=debug").targets());
    assert_eq!(level("info,cli=debug").to_string(), "info,cli=debug");
    let warns = |text: &str| level(text).targets().would_enable("vpnd::daemon", &Level::WARN);
    assert!(warns("info,vpn=error"), "the library is another part");
    assert!(!warns("info,vpnd=error") && !warns("info,vpn=debug,vpnd=error"));
    for bad in ["", "loud", "info,", "ike", "ike=", "info,ike=loud", "info ike=debug"] {
        assert!(bad.parse::<LogLevel>().is_err(), "{bad}");
    }
}

#[test]
fn certificates_may_lie_anywhere() {
    let config = parse(
        r#"
        [certificates]
        directory = "/srv/vpn"
        authorities = ["ca", "/usr/share/ca.pem"]
        crls = ["lists"]
        without_crl = "accept"
        ocsp_max_age = "24h"
        fetch_crls = false
        fetch_timeout = "2s"
        crl_hosts = ["crl.example.net", "192.0.2.7"]
        crl_cache = "/var/cache/vpnd"
        "#,
    )
    .expect("valid");
    let sources = config.certificates.sources();
    let named = |sources: &[vpn::certificates::Source]| -> Vec<(String, bool)> {
        sources.iter().map(|s| (s.path.display().to_string(), s.optional)).collect()
    };
    // Default sources may be absent, named ones may not.
    let expected = [("/srv/vpn/ca".to_owned(), true), ("/usr/share/ca.pem".to_owned(), false)];
    assert_eq!(named(&sources.authorities), expected);
    assert_eq!(named(&sources.private_keys), [("/srv/vpn/private".to_owned(), true)]);
    assert_eq!(named(&sources.crls), [("/srv/vpn/lists".to_owned(), false)]);
    let day = Duration::from_secs(24 * 3600);
    assert_eq!(config.certificates.ocsp_max_age, Span(Some(day)));
    assert_eq!(config.certificates.without_crl, WithoutCrl::Accept);
    let expected = vpn::revocation::Settings {
        fetch: false,
        timeout: Duration::from_secs(2),
        cache: Some("/var/cache/vpnd".into()),
        hosts: vec!["crl.example.net".into(), "192.0.2.7".into()],
        ..vpn::revocation::Settings::default()
    };
    assert_eq!(config.certificates.revocation(), expected);
    let error = parse("[certificates]\nfetch_timeout = \"off\"").expect_err("it needs an end");
    assert!(error.contains("certificates.fetch_timeout"), "{error}");
}

#[test]
fn tokens_have_keys_a_module_and_a_time_limit() {
    let config = parse(
        "[certificates]\ntoken_keys = [\"pkcs11:object=a\"]\ntoken_module = \"/lib/m.so\"\ntoken_timeout = \"3s\"\n",
    );
    let tokens = config.expect("valid").certificates.sources().tokens;
    let second = Duration::from_secs(1);
    assert_eq!((tokens.keys.len(), tokens.time_limit), (1, Some(3 * second)));
    assert_eq!(tokens.module, Some("/lib/m.so".into()));
    let tokens = Certificates::default().sources().tokens;
    assert_eq!((tokens.module, tokens.time_limit), (None, Some(10 * second)));
    for timeout in ["off", "0.5s", "999ms", "51s"] {
        let text = format!("[certificates]\ntoken_timeout = {timeout:?}");
        parse(&text).expect_err(timeout);
    }
}

#[test]
fn planes_are_chosen_for_all_tunnels_and_for_one() {
    let config = parse(
        "[esp]\ndataplane = \"auto\"\n[tunnel.\"a b\"]\ndataplane = \"xfrm\"\nmark = \"0x11/0xff\"\nif_id = 7\n",
    );
    let planes = config.expect("valid").planes();
    assert_eq!(planes.choice, vpn::planes::Choice::Auto);
    let tunnel = planes.tunnels["a b"];
    assert_eq!(tunnel.choice, Some(vpn::planes::Choice::Xfrm));
    assert_eq!((tunnel.binding.mark, tunnel.binding.if_id), (Some((0x11, 0xff)), Some(7)));
    let unknown = parse("[esp]\ndataplane = \"kernel\"\n").expect_err("no such plane");
    assert!(unknown.contains("\"userspace\" and \"xfrm\""), "{unknown}");
    assert!(parse("[tunnel.x]\nmark = \"0x111/0xff\"\n").is_err());
}
