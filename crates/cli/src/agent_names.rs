//! The names of a server's agents, for the error about one that it does not have.

use std::time::Duration;

use http::{HeaderValue, header};
use nuncio_client::a2a::A2aHttpOptions;
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, OutboundError, ProxyRule, RedirectRule,
};
use serde_json::Value;
use url::Url;

use super::config;

/// The deadline of the list. It only makes an error clearer, so it is short.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the list.
const MAX_LIST: usize = 4 * 1024 * 1024;
/// The names that an error shows of those that the server has.
const SHOWN_NAMES: usize = 20;

/// An agent that a server does not have.
#[derive(Debug)]
pub(crate) struct UnknownAgent {
    agent: String,
    server: String,
    known: Vec<String>,
}

impl UnknownAgent {
    pub(crate) fn new(agent: &str, server: String, known: Vec<String>) -> Self {
        Self { agent: agent.to_owned(), server, known }
    }

    /// What is wrong, with the name that is most similar.
    pub(crate) fn message(&self) -> String {
        let nearest = config::nearest(&self.agent, self.known.iter().map(String::as_str));
        let meant = nearest.map(|name| format!(": did you mean {name:?}?")).unwrap_or_default();
        format!("there is no agent {:?} at {}{meant}", self.agent, self.server)
    }

    /// The agents that there are.
    pub(crate) fn hint(&self) -> String {
        let shown: Vec<&str> = self.known.iter().take(SHOWN_NAMES).map(String::as_str).collect();
        let more = match self.known.len().saturating_sub(SHOWN_NAMES) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!("its agents are {}{more}", shown.join(", "))
    }
}

/// The names of the agents that a server lists at its address.
pub(crate) async fn list_agents(
    server: &str,
    http: &A2aHttpOptions,
    bearer: Option<&str>,
) -> Result<Vec<String>, OutboundError> {
    let url = Url::parse(&format!("{server}/")).map_err(|error| OutboundError::Url(error.to_string()))?;
    let client = HttpClient::new(HttpClientOptions {
        timeout: Some(PATIENCE),
        tls: http.tls.for_url(&url),
        ..HttpClientOptions::new(HttpDestination::Chosen {
            redirects: RedirectRule::Return,
            proxy: ProxyRule::unless_loopback(&url),
            any_certificate: http.insecure,
        })
    })?;
    let mut request =
        HttpRequest::get(url).header(header::ACCEPT, HeaderValue::from_static("application/json"));
    let bearer = bearer.map(|bearer| HeaderValue::try_from(format!("Bearer {bearer}")));
    if let Some(Ok(mut bearer)) = bearer {
        bearer.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, bearer);
    }
    let mut response = client.send(request).await?;
    if !response.status().is_success() {
        return Ok(vec![]);
    }
    let body = response.read_to_end(MAX_LIST).await?;
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    let agents = list["agents"].as_array().into_iter().flatten();
    Ok(agents.filter_map(|agent| agent["name"].as_str()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_nearest_agent_and_the_others() {
        let known = ["echo", "travel_agent", "research_agent"].map(str::to_owned).to_vec();
        let unknown = |name: &str| UnknownAgent::new(name, "http://here".into(), known.clone());
        let near = unknown("travel-agnet");
        assert_eq!(
            near.message(),
            r#"there is no agent "travel-agnet" at http://here: did you mean "travel_agent"?"#
        );
        assert_eq!(near.hint(), "its agents are echo, travel_agent, research_agent");
        assert_eq!(unknown("xyz").message(), r#"there is no agent "xyz" at http://here"#);
        let many = (0..25).map(|n| format!("a{n}")).collect();
        assert!(UnknownAgent::new("b", "s".into(), many).hint().ends_with("a19, and 5 more"));
    }
}
