//! Mistakes in files: each case changes one thing in a good file and names the finding that must follow.

use policy::xml::{Severity, read};

const HOST: &str = include_str!("../../fixtures/01_ikev2_psk_gcm_transport_v4.xml");
const GATEWAY: &str = include_str!("../../fixtures/02_ikev2_tunnel_multi_child_pfs.xml");

struct Case {
    /// Replaced once in the file …
    from: &'static str,
    /// … by this.
    to: &'static str,
    line: usize,
    /// Parts of message and help.
    says: &'static [&'static str],
}

const fn case(
    from: &'static str,
    to: &'static str,
    line: usize,
    says: &'static [&'static str],
) -> Case {
    Case { from, to, line, says }
}

/// Each must give exactly the one error.
fn check_errors(file: &str, cases: &[Case]) {
    for Case { from, to, line, says } in cases {
        assert!(file.contains(from), "the file has no {from}");
        let text = file.replacen(from, to, 1);
        let errors = match read("p.xml", &text) {
            Ok(_) => panic!("{from} → {to}: not refused"),
            Err(errors) => errors,
        };
        let found: Vec<_> = errors.errors().collect();
        assert_eq!(found.len(), 1, "{from} → {to}:\n{errors}");
        assert_eq!(found[0].line, *line, "{from} → {to}:\n{errors}");
        let said = format!("{} {}", found[0].message, found[0].help.as_deref().unwrap_or(""));
        for part in *says {
            assert!(said.contains(part), "{from} → {to}: no {part:?} in\n{errors}");
        }
    }
}

/// Each must load with a warning that the unchanged file does not give.
fn check_warnings(file: &str, cases: &[Case]) {
    for Case { from, to, line, says } in cases {
        assert!(file.contains(from), "the file has no {from}");
        let loaded = read("p.xml", &file.replacen(from, to, 1))
            .unwrap_or_else(|e| panic!("{from} → {to}:\n{e}"));
        let unchanged = read("p.xml", file).expect("the unchanged file is good").warnings;
        let fits = |said: &str| says.iter().all(|part| said.contains(part));
        let text = |w: &policy::xml::Diagnostic| {
            format!("{} {}", w.message, w.help.as_deref().unwrap_or(""))
        };
        assert!(!unchanged.iter().any(|w| fits(&text(w))), "{from} → {to}: warned of before");
        let found = loaded.warnings.iter().find(|w| fits(&text(w)));
        let found =
            found.unwrap_or_else(|| panic!("{from} → {to}: no {says:?} in {:#?}", loaded.warnings));
        assert_eq!(
            (found.severity, found.line),
            (Severity::Warning, *line),
            "{from} → {to}:\n{found}"
        );
    }
}

#[test]
fn form() {
    check_errors(
        HOST,
        &[
            case("</AIX_VPN>", "", 4, &["AIX_VPN is not closed", "add </AIX_VPN>"]),
            case("</AIX_VPN>", "</AIX_VPN></AIX_VPN>", 51, &["an end tag without a start tag"]),
            case("</AIX_VPN>", "</AIX_VPN>x", 51, &["text outside the policy"]),
            case(
                "\"hh_p1\"\n",
                "\"hh_p1\n",
                6,
                &["the value of IKE_ProtectionName is not closed in its line"],
            ),
            case("IKE_Role=\"Both\"", "IKE_Role", 7, &["'=' expected"]),
            case("\"hh_k\" IKE_P", "\"hh_k\"IKE_P", 23, &["no blank before the attribute"]),
            case("\"hh_k\" IKE_P", "\"&#0;k\" IKE_P", 23, &["reference to no character"]),
            case(
                "<AIX_VPN Version=\"2.1\">",
                "<AIX_VPN Version=\"2.1\">\u{1}",
                4,
                &["control character"],
            ),
            case("version=\"1.0\"", "version=\"2.0\"", 1, &["only XML 1.0"]),
        ],
    );
}

#[test]
fn vocabulary() {
    check_errors(
        HOST,
        &[
            case(
                "IKE_Role=\"Both\"",
                "IKE_Role=\"Bth\"",
                7,
                &["IKE_Role cannot be \"Bth\"", "did you mean \"Both\"?"],
            ),
            case(
                "IKE_Role=\"Both\"",
                "IKE_Role=\"Peer\"",
                7,
                &["known are Both, Initiator, Responder"],
            ),
            case(
                "PRF_HMAC_SHA1",
                "PRF_HMAC_TIGER",
                17,
                &["cannot be \"PRF_HMAC_TIGER\"", "PRF_HMAC_SHA"],
            ),
            case(
                "IKE_DHGroup=\"20\"",
                "IKE_DHGroup=\"18\"",
                19,
                &["known are 2, 5, 14, 15, 16, 19, 20, 21, 24, 31, and 35 to 37 (ML-KEM)"],
            ),
            case("IKE_DHGroup=\"20\"", "IKE_DHGroup=\"0\"", 19, &["needs a Diffie-Hellman group"]),
            case("Preshared_key", "RSA_signature", 20, &["did you mean \"RSA_signatures\"?"]),
            case(
                "IKE_Version=\"2\"",
                "IKE_Version=\"1\"",
                8,
                &["IKEv1 is not supported", "IKE_Version=\"2\""],
            ),
            case("IKE_Version=\"2\"", "IKE_Version=\"3\"", 8, &["IKE_Version cannot be \"3\""]),
            case(
                "IKE_Flags_AutoStart=\"No\"",
                "IKE_Flags_AutoStart=\"on\"",
                24,
                &["known are Yes, No"],
            ),
            case(
                "ESP_AES256_GCM_16",
                "ESP_AES256_GCM_8",
                32,
                &["did you mean \"ESP_AES256_GCM_16\"?"],
            ),
        ],
    );
}

#[test]
fn references() {
    check_errors(
        HOST,
        &[
            case(
                "IPSec_ProposalRefs=\"hh_prop\"",
                "IPSec_ProposalRefs=\" \"",
                36,
                &["lists no proposal"],
            ),
            case(
                "IPSec_ProposalName=\"hh_prop\"",
                "IPSec_ProposalName=\"\"",
                31,
                &["is not a name"],
            ),
        ],
    );
    check_errors(
        GATEWAY,
        &[
            case(
                "</AIX_VPN>",
                "<IPSecProposal IPSec_ProposalName='gw_cbc'><IPSecESPProtocol ESP_Encryption='ESP_AES128_GCM_16'/></IPSecProposal></AIX_VPN>",
                67,
                &["a second IPSecProposal named \"gw_cbc\""],
            ),
            case("\"gw_https\"", "\"gw_lan\"", 58, &["a second IPSecTunnel named \"gw_lan\""]),
        ],
    );
}

#[test]
fn values() {
    check_errors(
        HOST,
        &[
            case(
                "IKE_KeyOverlap=\"10\"",
                "IKE_KeyOverlap=\"0\"",
                10,
                &["out of range", "from 1 to 99"],
            ),
            case(
                "IKE_KeyRefreshMinutes=\"480\"",
                "IKE_KeyRefreshMinutes=\"0\"",
                21,
                &["out of range"],
            ),
            case(
                "IKE_KeyRefreshMinutes=\"480\"",
                "IKE_KeyRefreshMinutes=\"99999999999999999999999\"",
                21,
                &["out of range"],
            ),
            case(
                "IPSec_ResponderKeyRefreshMinKB=\"1\"",
                "IPSec_ResponderKeyRefreshMinKB=\"201\"",
                41,
                &["201 is above"],
            ),
            case("ESP_ExtendedSeqNum=\"0\"", "ESP_ExtendedSeqNum=\"2\"", 33, &["out of range"]),
            case(
                "<IPV4_Address Value=\"192.0.2.10\"/>",
                "<FQDN Value=\"\"/>",
                25,
                &["\"\" is not an identity"],
            ),
            case(
                "<IPV4_Address Value=\"192.0.2.10\"/>",
                "<Key_ID Value=\"\"/>",
                25,
                &["1 to 255 octets"],
            ),
            case(
                "Format=\"ASCII\" Value=\"correct-horse-battery-staple-0192\"",
                "Format=\"HEX\" Value=\"0x123\"",
                28,
                &["odd number"],
            ),
            case("Format=\"ASCII\"", "Format=\"HEX\"", 28, &["odd number"]),
            case("correct-horse-battery-staple-0192", "", 28, &["the key is empty"]),
        ],
    );
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    check_errors(
        HOST,
        &[
            case(
                "\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\"",
                "\"ESP_AES128_GMAC\" ESP_Authentication=\"HMAC-SHA2-256\"",
                32,
                &["NULL-AUTH-AES-GMAC-128 protects integrity itself", "must be NONE"],
            ),
            case(
                "\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\"",
                "\"ESP_CHACHA20_POLY1305\" ESP_Authentication=\"HMAC-SHA\"",
                32,
                &["CHACHA20-POLY1305 protects integrity itself", "must be NONE"],
            ),
            case("<IKETransform IKE_Hash=\"SHA\"/>", "", 5, &["no IKE_Hash is offered"]),
            case(
                "<IKETransform IKE_Encryption=\"AES-CBC-256\"/>",
                "",
                5,
                &["no IKE_Encryption is offered"],
            ),
            case(
                "From_IPAddr=\"192.0.2.20\" To_IPAddr=\"192.0.2.20\"",
                "From_IPAddr=\"192.0.2.21\" To_IPAddr=\"192.0.2.21\"",
                47,
                &["must be 192.0.2.20, the address of IKERemoteIdentity"],
            ),
            case(
                "IPSec_InitiatorDHGroup=\"0\"",
                "IPSec_InitiatorDHGroup=\"0 19\"",
                39,
                &["neither a group nor none"],
            ),
        ],
    );
    check_errors(
        GATEWAY,
        &[
            case(
                "<IPV4_Address Value=\"198.51.100.1\"/>",
                "<IPV6_Address Value=\"2001:db8::1\"/>",
                23,
                &["of different families"],
            ),
            case(
                "<IPV4_Address_Range From_IPAddr=\"10.1.0.0\" To_IPAddr=\"10.1.255.255\"/>",
                "<IPV6_Address_Range From_IPAddr=\"::1\" To_IPAddr=\"::2\"/>",
                54,
                &["of different families"],
            ),
            case(
                "<IPV4_Address_Range From_IPAddr=\"10.1.0.0\" To_IPAddr=\"10.1.255.255\"/>",
                "<IPV4_Subnet Value=\"10.1.0.0\" Mask=\"8\" Netmask=\"8\"/>",
                52,
                &["two spellings"],
            ),
        ],
    );
}

#[test]
fn an_initiator_needs_addresses() {
    let text = GATEWAY
        .replace("IKE_Role=\"Both\"", "IKE_Role=\"Initiator\"")
        .replace("PK_IPV4_Address Value=\"203.0.113.1\"", "PK_FQDN Value=\"b.example\"")
        .replace("<IPV4_Address Value=\"203.0.113.1\"/>", "<FQDN Value=\"b.example\"/>");
    let errors = read("p.xml", &text).expect_err("no address of the peer");
    let found: Vec<_> = errors.errors().collect();
    assert_eq!(found.len(), 1, "{errors}");
    assert!(found[0].message.contains("without an address, which an initiator needs"), "{errors}");
}

#[test]
fn warnings() {
    check_warnings(
        HOST,
        &[
            case(" Version=\"2.1\"", "", 4, &["AIX_VPN has no Version"]),
            case("Version=\"2.1\"", "Version=\"3.0\"", 4, &["unknown Version"]),
            case(
                "IKE_XCHGMode=\"None\"",
                "IKE_XCHGMode=\"Main\"",
                9,
                &["IKE_XCHGMode has no meaning in IKEv2"],
            ),
            case(
                "IKE_KeyOverlap=\"10\"",
                "IKE_KeyOverlap=\"51\"",
                10,
                &["IKE_KeyOverlap 51 is read as 50"],
            ),
            case(
                "IKE_Flags_UseCRL=\"No\"",
                "IKE_Flags_UseCRL=\"Yes\"",
                11,
                &["IKE_Flags_UseCRL has no effect"],
            ),
            case("IKE_Role=\"Both\"", "IKE_Role=\"both\"", 7, &["\"both\" is read as \"Both\""]),
            case(
                "IKE_Role=\"Both\"",
                "IKE_Role=\" Both\"",
                7,
                &["blanks around a value are ignored"],
            ),
            case("IKE_DHGroup=\"20\"", "IKE_DHGroup=\"5\"", 19, &["group 5 (MODP-1536) is weak"]),
            case(
                "IKE_KeyRefreshMinutes=\"480\"",
                "IKE_KeyRefreshMinutes=\"1441\"",
                12,
                &[
                    "1441 Minutes is outside the responder's window: SAs that the peer asks for have 1440 Minutes",
                ],
            ),
            case(
                "IKE_KeyRefreshMinutes=\"480\"",
                "IKE_KeyRefreshMinutes=\"480\" IKE_KeyRefreshKB=\"7\"",
                21,
                &["IKE_KeyRefreshKB 7 is ignored"],
            ),
            case(
                "<IKETransform IKE_Hash=\"SHA\"/>",
                "<IKETransform IKE_Hash=\"SHA\"/><IKETransform IKE_Hash=\"SHA\"/>",
                18,
                &["IKE_Hash \"SHA\" is repeated"],
            ),
            case(
                "<IKETransform IKE_AuthenticationMethod=\"Preshared_key\"/>",
                "",
                5,
                &["Preshared_key is assumed"],
            ),
            case(
                "AES-CBC-256",
                "AES-GCM-16-256",
                18,
                &["AES-GCM-16-256 protects integrity itself"],
            ),
            case(
                "AES-CBC-256",
                "CHACHA20-POLY1305",
                18,
                &["CHACHA20-POLY1305 protects integrity itself"],
            ),
            case(
                "ESP_AES256_GCM_16",
                "ESP_AES192_GMAC",
                32,
                &["ESP_AES192_GMAC does not encrypt", "everybody on the way", "ESP_AES256_GCM_16"],
            ),
            case(
                "\"ESP_AES256_GCM_16\" ESP_Authentication=\"NONE\"",
                "\"ESP_NULL\" ESP_Authentication=\"HMAC-SHA2-256\"",
                32,
                &["ESP_NULL does not encrypt", "everybody on the way"],
            ),
            case(
                "IPSec_Flags_UseCommitBit=\"No\"",
                "IPSec_Flags_UseCommitBit=\"Yes\"",
                38,
                &["IPSec_Flags_UseCommitBit has no meaning"],
            ),
            case(
                "ESP_KeyRefreshKB=\"0\"",
                "ESP_KeyRefreshKB=\"8\"",
                38,
                &["ESP_KeyRefreshKB 8 is ignored"],
            ),
            case(
                "IPSec_ProposalRefs=\"hh_prop\"",
                "IPSec_ProposalRefs=\"hh_prop hh_prop\"",
                36,
                &["\"hh_prop\" is listed twice"],
            ),
            case(
                "IPSec_InitiatorDHGroup=\"0\"",
                "IPSec_InitiatorDHGroup=\"GROUP_19\"",
                39,
                &["ECP-256 is offered as initiator, but not accepted"],
            ),
            case(
                "IPSec_TunnelName=\"hh_d\"",
                "IPSec_TunnelName=\"hh_k\"",
                42,
                &["an IKETunnel is named \"hh_k\" as well"],
            ),
            case(
                "<IPV4_Address_Range From_IPAddr=\"192.0.2.10\" To_IPAddr=\"192.0.2.10\"/>",
                "<IPV4_Address Value=\"192.0.2.10\"/>",
                45,
                &["IPV4_Address is read as the range 192.0.2.10"],
            ),
            case(
                "EndPort=\"65535\"",
                "EndPort=\"0\"",
                44,
                &["Port 0 to EndPort 0 is read as every port"],
            ),
            case("correct-horse-battery-staple-0192", "short", 28, &["fewer than 16 octets"]),
            case(
                "</AIX_VPN>",
                "<IPSecProposal IPSec_ProposalName='u'><IPSecESPProtocol ESP_Encryption='ESP_AES128_GCM_16'/></IPSecProposal></AIX_VPN>",
                51,
                &["nothing refers to the IPSecProposal \"u\""],
            ),
            case(
                "</AIX_VPN>",
                "<IKEPresharedKey Value='0123456789abcdef'><IKEPresharedRemoteID><PK_FQDN Value='z'/></IKEPresharedRemoteID></IKEPresharedKey></AIX_VPN>",
                51,
                &["no tunnel has the remote identity z"],
            ),
            case(
                "</AIX_VPN>",
                "<IKETunnel IKE_TunnelName='i' IKE_ProtectionRef='hh_p1'><IKELocalIdentity><FQDN Value='z'/></IKELocalIdentity><IKERemoteIdentity><IPV4_Address Value='192.0.2.20'/></IKERemoteIdentity></IKETunnel></AIX_VPN>",
                51,
                &["\"i\": it protects no traffic"],
            ),
        ],
    );
    check_warnings(
        GATEWAY,
        &[
            case(
                "IPSec_Flags_UseLifeSize=\"Yes\"",
                "IPSec_Flags_UseLifeSize=\"No\"",
                48,
                &["window for KB has no effect: no proposal has a limit by volume"],
            ),
            case(
                "Port=\"443\" EndPort=\"444\"",
                "Port=\"443\"",
                63,
                &["Port 443 without EndPort is every port from 443 to 65535"],
            ),
            case(
                "IPSec_Role=\"Both\"",
                "IPSec_Role=\"Responder\"",
                50,
                &["IPSec_Flags_AutoStart has no effect: the IPSec_Role is Responder"],
            ),
            case(
                "IKE_Role=\"Both\"",
                "IKE_Role=\"Responder\"",
                21,
                &["IKE_Flags_AutoStart has no effect: the IKE_Role is Responder"],
            ),
        ],
    );
}

/// One run tells everything.
#[test]
fn all_errors_at_once() {
    let text = HOST
        .replace("IKE_Role=\"Both\"", "IKE_Role=\"Bth\"")
        .replace("AES-CBC-256", "3DES-CBC")
        .replace("\"192.0.2.10\"", "\"here\"")
        .replace("IPSec_ProposalRefs=\"hh_prop\"", "IPSec_ProposalRefs=\"other\"");
    let errors = read("p.xml", &text).expect_err("many errors");
    let lines: Vec<_> = errors.errors().map(|e| e.line).collect();
    assert_eq!(lines, [7, 16, 25, 36, 45, 45], "{errors}");
}

#[test]
fn a_diagnostic_reads_like_a_compiler() {
    let text = HOST.replace("AES-CBC-256", "AES-CBC-265");
    let errors = read("dir/p.xml", &text).expect_err("an unknown cipher");
    assert!(
        errors.to_string().contains(concat!(
            "dir/p.xml:16:35: error: IKE_Encryption cannot be \"AES-CBC-265\"\n",
            "   |\n",
            "16 |     <IKETransform IKE_Encryption=\"AES-CBC-265\"/>\n",
            "   |                                   ^^^^^^^^^^^\n",
            "   = help: did you mean \"AES-CBC-256\"?\n\n"
        )),
        "{errors}"
    );
    assert!(errors.to_string().ends_with("policy refused: 1 error"), "{errors}");
    let error = errors.errors().next().expect("there is one");
    assert_eq!(error.element.as_deref(), Some("IKETransform"));
    assert_eq!(error.attribute.as_deref(), Some("IKE_Encryption"));
    assert_eq!(error.value.as_deref(), Some("AES-CBC-265"));

    let text = HOST.replace("Format=\"ASCII\"", "Format=\"HEX\"");
    let errors = read("p.xml", &text).expect_err("not hexadecimal");
    assert!(
        errors.to_string().contains("28 |   <IKEPresharedKey Format=\"HEX\" Value=\"…\">\n"),
        "{errors}"
    );
    assert_eq!(errors.errors().next().and_then(|e| e.value.clone()), None);
}

#[test]
fn more_proposals_than_a_peer_reads_are_refused_in_their_line() {
    let names: Vec<String> = (0..65).map(|n| format!("many{n}")).collect();
    let line = HOST.lines().position(|l| l.contains("IPSec_ProposalRefs=")).expect("a line") + 1;
    let refs = HOST.split("IPSec_ProposalRefs=\"").nth(1).and_then(|rest| rest.split('"').next());
    let refs = refs.expect("a list of proposals");
    let proposal = |name: &String| {
        format!(
            "<IPSecProposal IPSec_ProposalName=\"{name}\"><IPSecESPProtocol ESP_Encryption=\"ESP_AES256_GCM_16\" \
             ESP_EncapsulationMode=\"Transport\"/></IPSecProposal>"
        )
    };
    let with = |count: usize| {
        let all: String = names[..count].iter().map(proposal).collect();
        let list = format!("IPSec_ProposalRefs=\"{}\"", names[..count].join(" "));
        let named = HOST.replacen(&format!("IPSec_ProposalRefs=\"{refs}\""), &list, 1);
        read("p.xml", &named.replacen("</AIX_VPN>", &format!("{all}</AIX_VPN>"), 1))
    };
    assert!(with(64).is_ok(), "{}", with(64).unwrap_err());
    let refused = with(65).expect_err("one too many");
    let error = refused.errors().next().expect("an error");
    assert_eq!((error.line, error.message.as_str()), (line, "65 proposals, more than 64"));
    assert_eq!(error.help.as_deref(), Some("remove some"));
}
