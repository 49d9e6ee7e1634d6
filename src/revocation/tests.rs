use super::*;
use policy::DistinguishedName;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, PublicKeyData, SerialNumber, date_time_ymd,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// An authority, as far as its lists go.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    key_info: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let key_info = key.subject_public_key_info();
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: Issuer::new(params, key), key_info }
    }

    /// A list whose next issue comes in a year.
    fn list(&self, next: i32) -> Vec<u8> {
        self.list_of(Duration::from_secs(1_577_836_800), next)
    }

    /// A list that was made at a time since 1970.
    fn list_of(&self, made: Duration, next: i32) -> Vec<u8> {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(1970, 1, 1) + made,
            next_update: date_time_ymd(next, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("signs").der().to_vec()
    }

    fn wanted(&self, urls: &[&str]) -> Wanted {
        let name: DistinguishedName = "CN=root".parse().expect("a name");
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        Wanted { issuer: name, issuer_key: self.key_info.clone(), urls, fetch: true }
    }

    fn source(&self, url: &str) -> Source {
        Source { url: url.to_owned(), key: self.key_info.clone() }
    }
}

/// Serves octets to everybody; its URL, and how often it was asked.
async fn server(body: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let (url, _, asked) = changing_server(body).await;
    (url, asked)
}

/// Serves octets that can be replaced.
async fn changing_server(body: Vec<u8>) -> (String, Arc<Mutex<Vec<u8>>>, Arc<AtomicUsize>) {
    let body = Arc::new(Mutex::new(body));
    let served = Arc::clone(&body);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/list.crl", listener.local_addr().expect("bound"));
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.expect("a whole request"));
            }
            let body = body.lock().expect("no panic").clone();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let answer = [head.as_bytes(), &body].concat();
            stream.write_all(&answer).await.expect("taken");
        }
    });
    (url, served, asked)
}

/// Lists that may come from this machine.
fn lists(settings: Settings) -> Arc<Lists> {
    Arc::new(Lists::new(Settings { hosts: vec!["127.0.0.1".into()], ..settings }))
}

/// Lets the time come at which everything is asked for again.
fn time_passes(lists: &Lists) {
    lists.with_entries(|entries| {
        entries.values_mut().for_each(|entry| entry.ask_again = Duration::ZERO);
    });
}

async fn find(lists: &Arc<Lists>, wanted: Wanted) -> Result<Arc<Crl>, String> {
    let mut found = lists.find(vec![wanted], &Arc::default()).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn count(asked: &AtomicUsize) -> usize {
    asked.load(Ordering::Relaxed)
}

#[tokio::test]
async fn many_who_want_a_list_at_once_have_it_fetched_once() {
    let root = Authority::new("root");
    let (url, asked) = server(root.list(2900)).await;
    let lists = lists(Settings::default());
    let found = lists.find(vec![root.wanted(&[&url]); 5], &Arc::default()).await;
    assert_eq!(found.iter().filter(|result| result.is_ok()).count(), 5);
    find(&lists, root.wanted(&[&url])).await.expect("it is kept");
    assert_eq!(count(&asked), 1);
    assert_eq!(lists.listing().len(), 1);
}

#[tokio::test]
async fn a_list_may_come_as_pem() {
    use base64ct::{Base64, Encoding};
    let root = Authority::new("root");
    let text = Base64::encode_string(&root.list(2900));
    let text = format!("-----BEGIN X509 CRL-----\n{text}\n-----END X509 CRL-----\n");
    let (url, _) = server(text.into_bytes()).await;
    find(&lists(Settings::default()), root.wanted(&[&url])).await.expect("it is read");
}

#[tokio::test]
async fn a_kept_list_is_not_given_to_an_issuer_with_another_key() {
    let (root, alike) = (Authority::new("root"), Authority::new("root"));
    let (url, _) = server(root.list(2900)).await;
    let lists = lists(Settings::default());
    find(&lists, root.wanted(&[&url])).await.expect("fetched");
    let why = find(&lists, alike.wanted(&[&url])).await.expect_err("another's");
    assert!(why.contains("its issuer has not signed it"), "{why}");
    find(&lists, root.wanted(&[&url])).await.expect("what was good stays so");
}

#[tokio::test]
async fn a_list_that_its_issuer_has_not_signed_is_not_kept_and_another_address_is_asked() {
    let (root, forger) = (Authority::new("root"), Authority::new("root"));
    let (forged, forged_asked) = server(forger.list(2900)).await;
    let (other, _) = server(Authority::new("other").list(2900)).await;
    let (right, _) = server(root.list(2900)).await;
    let lists = lists(Settings::default());
    let why = find(&lists, root.wanted(&[&forged, &other])).await.expect_err("neither is right");
    assert!(why.contains("its issuer has not signed it; "), "{why}");
    assert!(why.contains("it is the list of CN=other"), "{why}");
    find(&lists, root.wanted(&[&forged, &right])).await.expect("the second is right");
    assert_eq!(count(&forged_asked), 1, "an address that failed is left alone for a while");
    assert_eq!(lists.listing().len(), 1);
}

#[tokio::test]
async fn outdated_lists_are_not_taken_and_failures_can_be_forgotten() {
    let root = Authority::new("root");
    let (url, asked) = server(root.list(2021)).await;
    let lists = lists(Settings::default());
    for expected in [1, 1] {
        let why = find(&lists, root.wanted(&[&url])).await.expect_err("its time is over");
        assert!(why.contains("it is outdated"), "{why}");
        assert_eq!(count(&asked), expected);
    }
    lists.retry();
    find(&lists, root.wanted(&[&url])).await.expect_err("still");
    assert_eq!(count(&asked), 2);
}

#[tokio::test]
async fn a_list_serves_until_its_end_where_the_next_is_not_to_be_had() {
    let root = Authority::new("root");
    let (url, asked) = server(b"no list".to_vec()).await;
    let lists = lists(Settings::default());
    let crl = Arc::new(Crl::read(&root.list(2900)).expect("a list"));
    lists.keep(&root.source(&url), crl, unix_time()).expect("the only one");
    time_passes(&lists);
    find(&lists, root.wanted(&[&url])).await.expect("the old one");
    assert_eq!(count(&asked), 1, "a newer one was asked for");
}

/// Settings with a directory where lists are kept.
fn keeping(directory: &tempfile::TempDir) -> Settings {
    Settings { cache: Some(directory.path().join("cache")), ..Settings::default() }
}

#[tokio::test]
async fn lists_outlive_the_process_in_their_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = keeping(&directory);
    let root = Authority::new("root");
    let (url, asked) = server(root.list_of(unix_time(), 2900)).await;
    find(&lists(settings.clone()), root.wanted(&[&url])).await.expect("fetched");
    find(&lists(settings.clone()), root.wanted(&[&url])).await.expect("stored");
    assert_eq!(count(&asked), 1);
    // A stored list is checked like one that was downloaded.
    let file = directory.path().join("cache").join(file_name(&root.source(&url)));
    let forged = Authority::new("root").list_of(unix_time(), 2900);
    std::fs::write(file, forged).expect("writable");
    find(&lists(settings), root.wanted(&[&url])).await.expect("fetched again");
    assert_eq!(count(&asked), 2);
}

#[tokio::test]
async fn a_stored_list_is_asked_for_again_when_a_day_has_passed_since_it_was_made() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = keeping(&directory);
    let root = Authority::new("root");
    let hours = |hours: u64| unix_time() - Duration::from_secs(hours * 3600);
    for (made, expected) in [(hours(23), 1), (hours(25), 2)] {
        let (url, asked) = server(root.list_of(made, 2900)).await;
        find(&lists(settings.clone()), root.wanted(&[&url])).await.expect("fetched");
        let second = lists(settings.clone());
        find(&second, root.wanted(&[&url])).await.expect("stored, or fetched again");
        assert_eq!(count(&asked), expected);
        find(&second, root.wanted(&[&url])).await.expect("in memory");
        assert_eq!(count(&asked), expected, "a day has not passed since it was fetched");
    }
}

#[tokio::test]
async fn a_stored_list_serves_where_the_server_does_not() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = keeping(&directory);
    let root = Authority::new("root");
    let (url, served, asked) = changing_server(root.list(2900)).await;
    find(&lists(settings.clone()), root.wanted(&[&url])).await.expect("fetched");
    *served.lock().expect("no panic") = b"no list".to_vec();
    find(&lists(settings), root.wanted(&[&url])).await.expect("the stored one");
    assert_eq!(count(&asked), 2, "a newer one was asked for");
}

#[tokio::test]
async fn an_older_list_does_not_replace_a_newer_one_in_memory_or_in_the_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = keeping(&directory);
    let root = Authority::new("root");
    let [old, new] = [1, 2].map(|year| Duration::from_secs(1_577_836_800 + year * 31_536_000));
    let (url, served, asked) = changing_server(root.list_of(new, 2900)).await;
    let first = lists(settings.clone());
    find(&first, root.wanted(&[&url])).await.expect("fetched");
    // It is still current: anyone on the way can send it.
    *served.lock().expect("no panic") = root.list_of(old, 2900);
    for lists in [first, lists(settings.clone()), lists(settings.clone())] {
        time_passes(&lists);
        let before = count(&asked);
        let found = find(&lists, root.wanted(&[&url])).await.expect("the newer one");
        assert_eq!((found.this_update(), count(&asked)), (new, before + 1));
    }
    let newest = new + Duration::from_secs(1);
    *served.lock().expect("no panic") = root.list_of(newest, 2900);
    let found = find(&lists(settings), root.wanted(&[&url])).await.expect("the newest one");
    assert_eq!(found.this_update(), newest);
}

#[tokio::test]
async fn nobody_but_an_authority_replaces_its_list() {
    let [root, other] = [Authority::new("root"), Authority::new("other")];
    let (url, served, asked) = changing_server(root.list_of(unix_time(), 2900)).await;
    let lists = lists(Settings::default());
    find(&lists, root.wanted(&[&url])).await.expect("fetched");
    // A certificate of the other names the same address, where its list is now.
    *served.lock().expect("no panic") = other.list(2900);
    let theirs = Wanted { issuer: "CN=other".parse().expect("a name"), ..other.wanted(&[&url]) };
    find(&lists, theirs).await.expect("its own");
    *served.lock().expect("no panic") = root.list(2900);
    time_passes(&lists);
    let found = find(&lists, root.wanted(&[&url])).await.expect("that from before");
    assert_ne!(found.this_update(), Duration::from_secs(1_577_836_800));
    assert_eq!(count(&asked), 3);
}

#[tokio::test]
async fn a_list_that_is_not_to_be_fetched_is_found_if_it_was_fetched_before() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = keeping(&directory);
    let root = Authority::new("root");
    let (url, asked) = server(root.list(2900)).await;
    let here = |url| Wanted { fetch: false, ..root.wanted(&[url]) };
    let first = lists(settings.clone());
    let why = find(&first, here(url.as_str())).await.expect_err("there is none");
    assert!(why.contains("it was not fetched"), "{why}");
    assert_eq!(count(&asked), 0);
    find(&first, root.wanted(&[&url])).await.expect("fetched");
    find(&first, here(url.as_str())).await.expect("in memory");
    find(&lists(settings), here(url.as_str())).await.expect("in the directory");
    assert_eq!(count(&asked), 1);
}

#[tokio::test]
async fn a_server_of_this_machine_is_not_asked_unless_it_is_named() {
    let root = Authority::new("root");
    let (url, asked) = server(root.list(2900)).await;
    let lists = Arc::new(Lists::default());
    let why = find(&lists, root.wanted(&[&url])).await.expect_err("this machine's");
    assert!(why.contains("127.0.0.1 belongs to this machine or its link"), "{why}");
    assert!(why.contains("name 127.0.0.1 in [certificates] crl_hosts"), "{why}");
    assert_eq!(count(&asked), 0);
}

#[tokio::test]
async fn without_a_source_of_lists_the_cure_is_told() {
    let root = Authority::new("root");
    let off = lists(Settings { fetch: false, ..Settings::default() });
    let why = find(&off, root.wanted(&["http://a.example/"])).await.expect_err("it is off");
    assert!(why.contains("fetch_crls") && why.contains("crls)"), "{why}");
    let lists = lists(Settings::default());
    let why = find(&lists, root.wanted(&[])).await.expect_err("nowhere");
    assert!(why.contains("do not say where its revocation list is"), "{why}");
    let why = find(&lists, root.wanted(&["ldap://a.example/"])).await.expect_err("LDAP");
    assert!(why.contains("only http is fetched"), "{why}");
}
