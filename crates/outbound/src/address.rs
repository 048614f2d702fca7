//! The policy for addresses that the server connects to on behalf of a caller.
//!
//! A caller names webhooks, cards and key sets, but the server connects from inside the firewall, next to
//! the metadata service of its cloud (SSRF). So an address is classified by what it reaches, however it is
//! spelled. `resolver.rs` and `http.rs` apply the policy to every connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses may be connected to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Whether loopback and private networks are allowed. Addresses that no webhook can have stay refused:
    /// link-local (with the metadata services of clouds), multicast, reserved ranges.
    pub allow_private: bool,
}

impl AddressPolicy {
    /// Whether a connection to this address may be opened.
    pub fn check(self, address: IpAddr) -> Result<(), RefusedAddress> {
        let (what, allowable) = match classify(address) {
            Public => return Ok(()),
            Local(_) if self.allow_private => return Ok(()),
            Local(what) => (what, true),
            Never(what) => (what, false),
        };
        Err(RefusedAddress { address, what, allowable })
    }
}

/// An address that the policy refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}{}", hint(*.allowable))]
pub struct RefusedAddress {
    /// The refused address.
    pub address: IpAddr,
    /// Its address range, for display.
    pub what: &'static str,
    /// Whether `allow_private` would permit it.
    pub allowable: bool,
}

fn hint(allowable: bool) -> &'static str {
    if allowable {
        ": start the server with --allow-private-webhooks to allow it"
    } else {
        "; such addresses are never connected to"
    }
}

/// What an address reaches, as far as the policy cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressClass {
    /// A host on the internet.
    Public,
    /// This machine, or a host on its networks.
    Local(&'static str),
    /// No webhook can have such an address.
    Never(&'static str),
}

use AddressClass::{Local, Never, Public};

const METADATA: AddressClass = Never("a cloud's metadata service");
const DOCUMENTATION: AddressClass = Never("an address for documentation");

/// The special ranges of IPv4 (IANA's registry, and the clouds' own). The first match wins.
const V4: &[([u8; 4], u32, AddressClass)] = &[
    ([169, 254, 169, 254], 32, METADATA),
    ([168, 63, 129, 16], 32, METADATA),
    ([100, 100, 100, 200], 32, METADATA),
    ([192, 0, 0, 192], 32, METADATA),
    ([0, 0, 0, 0], 8, Never("an unspecified address")),
    ([10, 0, 0, 0], 8, Local("a private address")),
    ([100, 64, 0, 0], 10, Local("a carrier's private address")),
    ([127, 0, 0, 0], 8, Local("a loopback address")),
    ([169, 254, 0, 0], 16, Never("a link-local address")),
    ([172, 16, 0, 0], 12, Local("a private address")),
    ([192, 0, 0, 0], 24, Never("a protocol's own address")),
    ([192, 0, 2, 0], 24, DOCUMENTATION),
    ([192, 88, 99, 0], 24, Never("a 6to4 relay")),
    ([192, 168, 0, 0], 16, Local("a private address")),
    ([198, 18, 0, 0], 15, Local("a benchmarking address")),
    ([198, 51, 100, 0], 24, DOCUMENTATION),
    ([203, 0, 113, 0], 24, DOCUMENTATION),
    ([224, 0, 0, 0], 4, Never("a multicast address")),
    ([255, 255, 255, 255], 32, Never("the broadcast address")),
    ([240, 0, 0, 0], 4, Never("a reserved address")),
];

/// The special ranges of IPv6; the first match wins. An address outside of them is public only within
/// 2000::/3, the only range that was ever allocated. Ranges that embed an IPv4 address are handled before
/// this table.
const V6: &[([u16; 8], u32, AddressClass)] = &[
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, METADATA),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, METADATA),
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Never("an unspecified address")),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Local("a loopback address")),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Local("a private address")),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Never("a link-local address")),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Local("a site-local address")),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Never("a multicast address")),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Never("a Teredo address")),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Never("a protocol's own address")),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, DOCUMENTATION),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, DOCUMENTATION),
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, Public),
];

fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => place_v4(v4),
        IpAddr::V6(v6) => place_v6(v6),
    }
}

fn place_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    let within = |net: [u8; 4], length: u32| (bits ^ u32::from_be_bytes(net)) >> (32 - length) == 0;
    V4.iter().find(|(net, length, _)| within(*net, *length)).map_or(Public, |(.., place)| *place)
}

fn place_v6(address: Ipv6Addr) -> AddressClass {
    match address.segments() {
        // IPv4-mapped, and the well-known NAT64 prefix: the connection goes to the embedded address.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return place_v4(join(high, low));
        }
        // 6to4: the same, through a relay.
        [0x2002, high, low, ..] => return place_v4(join(high, low)),
        // A network's own NAT64 prefix leads through that network, whatever the embedded address is.
        [0x64, 0xff9b, 1, .., high, low] => {
            return match place_v4(join(high, low)) {
                Never(what) => Never(what),
                Local(_) | Public => Local("behind this network's own NAT64"),
            };
        }
        _ => {}
    }
    let bits = address.to_bits();
    let within = |net: [u16; 8], length: u32| (bits ^ Ipv6Addr::from(net).to_bits()) >> (128 - length) == 0;
    let found = V6.iter().find(|(net, length, _)| within(*net, *length));
    found.map_or(Never("not a public address"), |(.., place)| *place)
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, default: bool, with_private: bool) {
        let parsed: IpAddr = address.parse().unwrap();
        assert_eq!(AddressPolicy::default().check(parsed).is_ok(), default, "{address}");
        assert_eq!(
            AddressPolicy { allow_private: true }.check(parsed).is_ok(),
            with_private,
            "{address}, private"
        );
    }

    #[test]
    fn the_edges_of_every_range() {
        for (inside, outside) in [
            ("0.255.255.255", "1.0.0.0"),
            ("169.254.0.0", "169.253.255.255"),
            ("169.254.255.255", "169.255.0.0"),
            ("192.0.0.255", "192.0.1.0"),
            ("192.0.2.255", "192.0.3.0"),
            ("192.88.99.255", "192.88.100.0"),
            ("198.51.100.0", "198.51.99.255"),
            ("203.0.113.255", "203.0.114.0"),
            ("224.0.0.0", "223.255.255.255"),
            ("168.63.129.16", "168.63.129.17"),
            ("2001::1", "2001:200::1"),
            ("2001:db8:ffff::", "2001:db9::"),
            ("3fff:fff:ffff::", "3fff:1000::"),
            ("1fff::1", "2000::1"),
            ("4000::1", "3ffe::1"),
        ] {
            check(inside, false, false);
            check(outside, true, true);
        }
        for (inside, outside) in [
            ("10.255.255.255", "11.0.0.0"),
            ("10.0.0.0", "9.255.255.255"),
            ("100.64.0.0", "100.63.255.255"),
            ("100.127.255.255", "100.128.0.0"),
            ("127.0.0.0", "126.255.255.255"),
            ("127.255.255.255", "128.0.0.0"),
            ("172.16.0.0", "172.15.255.255"),
            ("172.31.255.255", "172.32.0.0"),
            ("192.168.0.0", "192.167.255.255"),
            ("192.168.255.255", "192.169.0.0"),
            ("198.18.0.0", "198.17.255.255"),
            ("198.19.255.255", "198.20.0.0"),
        ] {
            check(inside, false, true);
            check(outside, true, true);
        }
    }

    #[test]
    fn an_address_inside_an_address_counts() {
        for (carrier, default, with_private) in [
            ("::ffff:8.8.8.8", true, true),
            ("::ffff:127.0.0.1", false, true),
            ("::ffff:169.254.169.254", false, false),
            ("64:ff9b::8.8.8.8", true, true),
            ("64:ff9b::10.0.0.1", false, true),
            ("64:ff9b::169.254.169.254", false, false),
            ("64:ff9b:1::8.8.8.8", false, true),
            ("64:ff9b:1::169.254.169.254", false, false),
            ("2002:808:808::1", true, true),
            ("2002:7f00:1::", false, true),
            ("2002:a9fe:a9fe::", false, false),
            ("::127.0.0.1", false, false),
            ("::8.8.8.8", false, false),
        ] {
            check(carrier, default, with_private);
        }
    }

    #[test]
    fn the_refusal_says_which_address_and_what_to_do() {
        let refused = AddressPolicy::default().check(IpAddr::from([10, 0, 0, 7])).unwrap_err().to_string();
        assert_eq!(
            refused,
            "10.0.0.7 is a private address: start the server with --allow-private-webhooks to allow it"
        );
        let refused =
            AddressPolicy::default().check(IpAddr::from([169, 254, 169, 254])).unwrap_err().to_string();
        assert_eq!(
            refused,
            "169.254.169.254 is a cloud's metadata service; such addresses are never connected to"
        );
    }
}
