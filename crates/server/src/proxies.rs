//! Requests through proxies: the headers that reveal one, the proxies that are trusted to name the client, and
//! the client's address.
//!
//! Any sender can forge these headers. They are used for the audit only if the connection comes from a proxy
//! that the operator named. Otherwise they are a sign that others than the operator can reach the server.

use std::{fmt, net::IpAddr, str::FromStr};

use axum::http::{HeaderMap, HeaderName, header};

use crate::auth::ConnectionPeer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// The prefix of headers that proxies add and no client needs.
const FORWARDED_PREFIX: &str = "x-forwarded-";
/// Addresses of a proxy chain that are read, from its end.
const MAX_HOPS: usize = 32;

/// A proxy that the operator trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustedProxy {
    /// A proxy at any of these addresses.
    Network(Network),
    /// Any process that may open the Unix socket.
    Socket,
}

impl TrustedProxy {
    fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Network(network) if network.contains(address))
    }

    fn is(&self, peer: &ConnectionPeer) -> bool {
        match self {
            Self::Socket => peer.is_socket(),
            Self::Network(network) => peer.ip().is_some_and(|address| network.contains(address)),
        }
    }
}

impl FromStr for TrustedProxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unix" => Ok(Self::Socket),
            text => text.parse().map(Self::Network),
        }
    }
}

impl fmt::Display for TrustedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Socket => f.write_str("unix"),
        }
    }
}

/// A range of addresses, such as `10.0.0.0/8`; a single address is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether the network includes the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected addresses such as 127.0.0.1 or 10.0.0.0/8, or unix, not {text:?}");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        match self.bits == whole {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

/// The first header that shows that a proxy forwarded the request.
pub(crate) fn forwarding_header(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| {
        **name == header::FORWARDED
            || **name == header::VIA
            || **name == REAL_IP
            || name.as_str().starts_with(FORWARDED_PREFIX)
    })
}

/// Whether the peer is one of the proxies that the operator named.
pub(crate) fn is_trusted(proxies: &[TrustedProxy], peer: &ConnectionPeer) -> bool {
    proxies.iter().any(|proxy| proxy.is(peer))
}

/// The client behind a trusted proxy: the last address of the chain that is not itself a trusted proxy. The
/// client could have forged the addresses before it.
pub(crate) fn client_of(
    proxies: &[TrustedProxy],
    peer: &ConnectionPeer,
    headers: &HeaderMap,
) -> Option<ConnectionPeer> {
    if proxies.is_empty() || !is_trusted(proxies, peer) {
        return None;
    }
    let chain = match headers.contains_key(FORWARDED_FOR) {
        true => listed(headers, &FORWARDED_FOR, parse_address),
        false if headers.contains_key(header::FORWARDED) => {
            listed(headers, &header::FORWARDED, forwarded_for)
        }
        false => listed(headers, &REAL_IP, parse_address),
    };
    let mut client = None;
    for hop in chain {
        // An unreadable address was not written by a trusted proxy: the previous one is the client.
        let Some(address) = hop else { break };
        client = Some(address);
        if !proxies.iter().any(|proxy| proxy.has_address(address)) {
            break;
        }
    }
    client.map(ConnectionPeer::of_client)
}

/// The elements of a list that may span several headers, from its end.
fn listed(headers: &HeaderMap, name: &HeaderName, read: fn(&str) -> Option<IpAddr>) -> Vec<Option<IpAddr>> {
    let values: Vec<&str> = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    let elements = values.iter().rev().flat_map(|value| value.rsplit(','));
    elements.take(MAX_HOPS).map(|element| read(element.trim())).collect()
}

/// Parses an address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let address = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if text.matches(':').count() == 1 => text.split_once(':')?.0,
        None => text,
    };
    address.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The `for` of one element of `Forwarded` (RFC 7239).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then(|| parse_address(value.trim_matches('"')))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_network_holds_the_addresses_of_its_prefix() {
        let check = |network: &str, address: &str, holds: bool| {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), holds, "{network} {address}");
        };
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("127.0.0.1", "127.0.0.1", true);
        check("127.0.0.1", "::ffff:127.0.0.1", true);
        check("127.0.0.1", "127.0.0.2", false);
        check("0.0.0.0/0", "8.8.8.8", true);
        check("0.0.0.0/0", "::1", false);
        check("fd00::/8", "fdff::1", true);
        check("::1", "::2", false);
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.0/x", "example.org", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
        assert_eq!("::1".parse::<Network>().unwrap().to_string(), "::1");
    }

    #[test]
    fn every_header_that_a_proxy_adds_is_noticed() {
        for name in
            ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-new"]
        {
            assert!(forwarding_header(&headers(&[(name, "x")])).is_some(), "{name}");
        }
        assert!(forwarding_header(&headers(&[("host", "x"), ("x-forward", "x")])).is_none());
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        let proxies: Vec<TrustedProxy> = ["127.0.0.1", "10.0.0.0/8"].map(|text| text.parse().unwrap()).into();
        let check = |peer: &str, list: &[(&'static str, &str)], client: Option<&str>| {
            let peer = ConnectionPeer::new(format!("{peer}:1").parse().unwrap());
            let found = client_of(&proxies, &peer, &headers(list)).and_then(|peer| peer.ip());
            assert_eq!(found.map(|ip| ip.to_string()).as_deref(), client, "{list:?}");
        };
        check("127.0.0.1", &[("x-forwarded-for", "203.0.113.9")], Some("203.0.113.9"));
        // The client itself wrote the addresses before.
        check("127.0.0.1", &[("x-forwarded-for", "1.2.3.4, 203.0.113.9, 10.0.0.7")], Some("203.0.113.9"));
        check(
            "127.0.0.1",
            &[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "203.0.113.9")],
            Some("203.0.113.9"),
        );
        check("127.0.0.1", &[("x-forwarded-for", "garbage, 10.0.0.7")], Some("10.0.0.7"));
        check("127.0.0.1", &[("x-forwarded-for", "garbage")], None);
        check("127.0.0.1", &[("x-forwarded-for", "[2001:db8::1]:443")], Some("2001:db8::1"));
        check("127.0.0.1", &[("x-forwarded-for", "203.0.113.9:5000")], Some("203.0.113.9"));
        let both = [("forwarded", "for=1.2.3.4"), ("x-forwarded-for", "203.0.113.9")];
        check("127.0.0.1", &both, Some("203.0.113.9"));
        check("127.0.0.1", &[("forwarded", "proto=https;For=\"[2001:db8::1]:9\"")], Some("2001:db8::1"));
        check("127.0.0.1", &[("x-real-ip", "203.0.113.9")], Some("203.0.113.9"));
        check("127.0.0.1", &[], None);
        // The operator did not name this proxy.
        check("192.0.2.1", &[("x-forwarded-for", "203.0.113.9")], None);
    }
}
