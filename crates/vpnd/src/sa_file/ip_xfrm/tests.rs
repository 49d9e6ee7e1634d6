use super::*;
use crate::config::Sa;
use crate::sa_file;
use std::path::Path;

/// The commands of "Tips and Tricks for IPsec on Intel 10 Gbe NICs" for one of the two hosts.
const DOCUMENT: &str = "\
ip xfrm policy add dir out src 14.0.0.52/24 dst 14.0.0.70/24 proto tcp tmpl proto esp src 14.0.0.52 dst 14.0.0.70 \\
   spi 0x07 mode transport reqid 0x07
ip xfrm policy add dir in src 14.0.0.70/24 dst 14.0.0.52/24 proto tcp tmpl proto esp dst 14.0.0.52 src 14.0.0.70 \\
   spi 0x07 mode transport reqid 0x07
ip xfrm state add proto esp src 14.0.0.52 dst 14.0.0.70 spi 0x07 mode transport reqid 0x07 replay-window 32 \\
   aead 'rfc4106(gcm(aes))' 0x44434241343332312423222114131211f4f3f2f1 128 \\
   sel src 14.0.0.52/24 dst 14.0.0.70/24 proto tcp offload dev eth4 dir out
ip xfrm state add proto esp dst 14.0.0.52 src 14.0.0.70 spi 0x07 mode transport reqid 0x07 replay-window 32 \\
   aead 'rfc4106(gcm(aes))' 0x44434241343332312423222114131211f4f3f2f1 128 \\
   sel src 14.0.0.70/24 dst 14.0.0.52/24 proto tcp offload dev eth4 dir in
";

fn read(text: &str) -> Result<Vec<Sa>, String> {
    let tables = tables(text, true).map_err(|error| error.to_string())?;
    sa_file::tables(Path::new("lines"), &tables).map_err(|error| error.to_string())
}

#[test]
fn the_document_s_commands_are_read_as_printed() {
    assert!(are_lines(DOCUMENT));
    let sas = read(DOCUMENT).expect("tables");
    let told: Vec<_> = sas
        .iter()
        .map(|sa| {
            let sa = sa.manual(64);
            let sides = [&sa.selectors.local[0], &sa.selectors.remote[0]].map(ToString::to_string);
            (sa.name, sa.direction.name(), sa.spi.0, sa.reqid, sa.replay_window, sides)
        })
        .collect();
    let sides = ["14.0.0.0/24[tcp]", "14.0.0.0/24[tcp]"].map(str::to_owned);
    assert_eq!(
        told,
        ["out", "in"].map(|way| ("reqid_7".to_owned(), way, 7, Some(7), 32, sides.clone()))
    );
    assert_eq!(sas[0].offload_device(), Some("eth4"));
}

#[test]
fn quotes_and_prompts_of_a_typesetter_are_understood() {
    let text = DOCUMENT.replace("'rfc4106(gcm(aes))'", "\u{2018}rfc4106(gcm(aes))\u{2019}");
    let text =
        text.replace("ip xfrm state", "$ ip x s").replace("ip xfrm policy", "sudo ip xfrm p");
    assert_eq!(read(&text), read(DOCUMENT));
}

#[test]
fn a_policy_says_direction_and_traffic_where_the_state_does_not() {
    let text = DOCUMENT
        .replace("sel src 14.0.0.52/24 dst 14.0.0.70/24 proto tcp offload dev eth4 dir out", "");
    let sas = read(&text).expect("tables");
    assert_eq!(sas[0].manual(0).selectors, read(DOCUMENT).expect("tables")[0].manual(0).selectors);
    let without: String = text.lines().skip(2).map(|line| format!("{line}\n")).collect();
    let error = read(&without).expect_err("no policy");
    assert!(error.starts_with("line 3: neither \"offload dev"), "{error}");
}

#[test]
fn what_a_table_cannot_say_is_refused() {
    let state = "ip xfrm state add src 14.0.0.52 dst 14.0.0.70 proto esp spi 7 mode transport offload dev eth4 dir out";
    let mac = "enc 'cbc(aes)' 0x00112233445566778899aabbccddeeff";
    let key = "0x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    assert_eq!(
        read(&format!("{state} {mac} auth-trunc 'hmac(sha256)' {key} 128")).map(|sas| sas.len()),
        Ok(1)
    );
    for (line, why) in [
        (format!("{state} {mac} auth 'hmac(sha256)' {key}"), "has an ICV of 96 bits"),
        (format!("{state} aead 'rfc4106(gcm(aes))' {key} 64"), "has an ICV of 64 bits"),
        (format!("{state} if_id 7"), "if_id of a state has no counterpart"),
        (state.to_owned(), "its algorithms are missing"),
        ("ip xfrm state flush".to_owned(), "not \"ip xfrm state add\""),
        ("ip route add default via 192.0.2.1".to_owned(), "not \"ip xfrm state add\""),
        (
            DOCUMENT.replace("sel src 14.0.0.52/24", "sel src 14.0.0.0/8"),
            "its selector is not that of its policy",
        ),
        (
            DOCUMENT.lines().take(2).collect::<Vec<_>>().join("\n"),
            "there is no \"ip xfrm state add\"",
        ),
    ] {
        let error = read(&line).expect_err(&line);
        assert!(error.contains(why), "{line}: {error}");
    }
    assert!(!are_lines("[[sa]]\nname = \"lab\"\n") && !are_lines(""));
}
