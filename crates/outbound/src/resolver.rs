//! The resolver of clients for addresses that a caller named: it returns only the addresses that the policy allows.
//!
//! The verdict and the connection use the same lookup, so DNS rebinding between a check and a connection gains
//! nothing.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{address::AddressPolicy, error::OutboundError};

/// Resolves host names. Injected, so that tests control it.
#[async_trait]
pub trait HostLookup: Send + Sync + 'static {
    /// The addresses of a host, in the order in which to try them.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemHostLookup;

#[async_trait]
impl HostLookup for SystemHostLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// The resolver behind every connection; it returns only allowed addresses.
pub(crate) struct PolicyResolver {
    pub(crate) policy: AddressPolicy,
    pub(crate) lookup: Arc<dyn HostLookup>,
}

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (self.policy, Arc::clone(&self.lookup));
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await;
            let found = found.map_err(|error| unresolved(name.as_str(), format!("no address: {error}")))?;
            let allowed = allowed(policy, name.as_str(), &found)?;
            // Port 0 is replaced by the URL's.
            Ok(Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// The addresses that may be connected to, without the refused ones. If none is left, the error names one of
/// them.
fn allowed(policy: AddressPolicy, host: &str, found: &[IpAddr]) -> Result<Vec<IpAddr>, OutboundError> {
    let (mut allowed, mut first_refused) = (Vec::with_capacity(found.len()), None);
    for address in found {
        match policy.check(*address) {
            Ok(()) => allowed.push(*address),
            Err(refused) => first_refused = first_refused.or(Some(refused)),
        }
    }
    match first_refused {
        _ if !allowed.is_empty() => Ok(allowed),
        Some(refused) => Err(OutboundError::Refused { host: host.to_owned(), refused }),
        None => Err(unresolved(host, "no address".to_owned())),
    }
}

fn unresolved(host: &str, why: String) -> OutboundError {
    OutboundError::Unreachable { to: host.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: &[&str], expected: &[&str]) {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let got = allowed(AddressPolicy::default(), "host.example", &parse(found));
        assert_eq!(got.unwrap_or_default(), parse(expected), "{found:?}");
    }

    #[test]
    fn only_allowed_addresses_are_handed_out() {
        check(&["8.8.8.8"], &["8.8.8.8"]);
        check(&["127.0.0.1", "8.8.8.8", "::1"], &["8.8.8.8"]);
        check(&["2606:4700::1111", "fe80::1", "1.1.1.1"], &["2606:4700::1111", "1.1.1.1"]);
        check(&["10.0.0.1", "::ffff:10.0.0.1"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn a_refused_host_says_why() {
        let error = allowed(AddressPolicy::default(), "host.example", &[IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "host.example is refused: 127.0.0.1 is a loopback address: \
             start the server with --allow-private-webhooks to allow it"
        );
    }

    #[test]
    fn a_refused_address_is_named_once() {
        for (host, address) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("::1", "::1")] {
            let error = allowed(AddressPolicy::default(), host, &[address.parse().unwrap()]);
            assert_eq!(
                error.unwrap_err().to_string(),
                format!(
                    "{host} is refused: it is a loopback address: start the server with --allow-private-webhooks to allow it"
                )
            );
        }
    }
}
