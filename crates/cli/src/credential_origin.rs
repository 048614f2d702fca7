//! Where a command may send credentials: to the origin that the user named, and to those that a flag names.
//! The author of a card can name any address in it, and must not be able to redirect a token there.

use std::net::IpAddr;

use clap::Args;
use url::{Host, Url};

/// The flag that names further origins.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct CredentialFlags {
    /// A further origin that credentials may be sent to, such as https://agents.example.com; also required
    /// for plain http to another machine
    #[arg(long, global = true, value_name = "ORIGIN", value_parser = origin)]
    credentials_for: Vec<Url>,
}

impl CredentialFlags {
    /// Whether credentials may be sent to an address; an error says why not and what to do. `named`: the
    /// address that the user named, if there is one.
    pub(crate) fn check(&self, endpoint: &Url, named: Option<&Url>) -> Result<(), String> {
        let to = endpoint.origin();
        if self.credentials_for.iter().any(|origin| origin.origin() == to) {
            return Ok(());
        }
        let shown = to.ascii_serialization();
        if named.is_none_or(|named| named.origin() != to) {
            let whose = match named {
                Some(named) => format!("they are for {}", named.origin().ascii_serialization()),
                None => "a file names no address that they are for".to_owned(),
            };
            return Err(format!(
                "the card leads to {shown}, and credentials are not sent there: {whose}; \
                 --credentials-for {shown} sends them"
            ));
        }
        if endpoint.scheme() != "https" && !is_loopback(endpoint) {
            return Err(format!(
                "credentials are not sent to {shown} over plain http, where others can read them: use https, or \
                 --credentials-for {shown}"
            ));
        }
        Ok(())
    }
}

fn origin(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("expected https://HOST[:PORT]: {error}"))?;
    match matches!(url.scheme(), "http" | "https") && url.has_host() {
        true => Ok(url),
        false => Err("expected https://HOST[:PORT]".into()),
    }
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_to_one_origin_and_to_those_that_a_flag_names() {
        let url = |text: &str| Url::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let check = |endpoint: &str, named: Option<&str>, flags: &[&str], word: Option<&str>| {
            let flags = CredentialFlags { credentials_for: flags.iter().map(|text| url(text)).collect() };
            let checked = flags.check(&url(endpoint), named.map(url).as_ref());
            match word {
                None => assert_eq!(checked, Ok(())),
                Some(word) => assert!(checked.as_ref().is_err_and(|why| why.contains(word)), "{checked:?}"),
            }
        };
        check("https://a.example/x", Some("https://a.example/card"), &[], None);
        check(
            "https://b.example/x",
            Some("https://a.example/card"),
            &[],
            Some("--credentials-for https://b.example"),
        );
        check("https://b.example/x", Some("https://a.example"), &["https://b.example"], None);
        check("https://a.example:8443/", Some("https://a.example"), &[], Some("are not sent"));
        check("http://a.example/", Some("http://a.example"), &[], Some("plain http"));
        check("http://a.example/", Some("http://a.example"), &["http://a.example"], None);
        check("http://127.0.0.1:80/", Some("http://127.0.0.1:80"), &[], None);
        check("http://localhost:80/", Some("http://localhost:80"), &[], None);
        check("https://a.example/", None, &[], Some("a file names no address"));
    }
}
