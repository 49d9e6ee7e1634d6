//! Whether a request is meant for this endpoint, or a page of somebody else has a browser send it.

use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use std::net::IpAddr;

/// Returns `true` if a request names an address, this host, or one of `hosts`, wherever it names a host.
pub(super) fn is_for_us(request: &Parts, hosts: &[String]) -> bool {
    let mut named = request.headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return false };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let of_target = request.uri.authority();
    host.is_some_and(|host| is_ours(&host, hosts)) && of_target.is_none_or(|a| is_ours(a, hosts))
}

fn is_ours(authority: &Authority, hosts: &[String]) -> bool {
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let known = bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|ours| host.eq_ignore_ascii_case(ours));
    known && !authority.as_str().contains('@')
}

/// Returns `true` if a browser says that a page of another site has caused the request. A link from elsewhere may lead
/// to the page, which has no numbers in it yet.
pub(super) fn is_cross_site(request: &Parts) -> bool {
    let said = |name: &str| request.headers.get(name).map(|value| value.as_bytes());
    let link = request.uri.path() == "/"
        && matches!(said("sec-fetch-mode"), Some(b"navigate"))
        && matches!(said("sec-fetch-dest"), Some(b"document"));
    match said("sec-fetch-site") {
        None | Some(b"same-origin" | b"none") => false,
        Some(_) => !link,
    }
}
