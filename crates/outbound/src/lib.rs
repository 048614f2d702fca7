//! The one way out over HTTP, below every crate that sends requests: the address filter for URLs that callers
//! name, and the backoff between attempts to reach a server.

mod address;
mod backoff;
mod filtered;

pub use url::Url;

pub use self::{
    address::{AddressPolicy, RefusedAddress},
    backoff::Backoff,
    filtered::{
        HostLookup, Outbound, OutboundError, OutboundOptions, OutboundResponse, SystemHostLookup, USER_AGENT,
    },
};
