//! Requests to authorization servers: metadata, registration, tokens. Secrets appear in no error and no log.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderValue, header};
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, OutboundError, ProxyRule,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use sha2::{Digest, Sha256};
use url::Url;

use super::{OAuthClient, OAuthGrant, discovery::OAuthEndpoints, now};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Bytes of a response.
const MAX_ANSWER: usize = 1024 * 1024;

/// The HTTP client for these requests.
pub(super) struct OAuthHttp {
    client: HttpClient,
}

/// The response of a token endpoint.
#[derive(Deserialize)]
pub(super) struct OAuthTokenResponse {
    pub(super) access_token: String,
    token_type: String,
    pub(super) expires_in: Option<u64>,
    pub(super) refresh_token: Option<String>,
    scope: Option<String>,
    id_token: Option<String>,
}

impl OAuthTokenResponse {
    /// The grant that this token makes.
    pub(super) fn granted(self, found: &OAuthEndpoints, asked: BTreeSet<String>) -> OAuthGrant {
        let mut scopes = asked;
        scopes.extend(self.scope.iter().flat_map(|scope| scope.split_whitespace()).map(str::to_owned));
        OAuthGrant {
            issuer: found.issuer.clone(),
            token_endpoint: found.token_endpoint.clone(),
            resource: found.resource.clone(),
            access_token: self.access_token,
            refresh_token: self.refresh_token,
            expires_at: self.expires_in.map(|seconds| now().saturating_add(seconds)),
            scopes,
            subject: None,
            id_token: self.id_token,
        }
    }
}

#[derive(Deserialize)]
struct OAuthRegistration {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

impl OAuthHttp {
    pub(super) fn new(timeout: Duration) -> Result<Self, String> {
        let client = HttpClient::new(HttpClientOptions {
            timeout: Some(timeout),
            ..HttpClientOptions::new(HttpDestination::chosen(ProxyRule::Environment))
        });
        Ok(Self { client: client.map_err(|error| error.to_string())? })
    }

    /// Fetches a document; `None` if there is none.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, String> {
        let request = HttpRequest::get(url.clone()).header(header::ACCEPT, JSON);
        let (status, body) = self.answer(url, request).await?;
        match status {
            200 => read(url, &body).map(Some),
            // Some servers answer 401 or 405 for an unknown path.
            400..=499 => Ok(None),
            status => Err(format!("{url} answered HTTP {status}")),
        }
    }

    /// Registers this client (RFC 7591).
    pub(super) async fn register(
        &self,
        endpoint: &Url,
        name: &str,
        redirect_uri: &str,
        found: &OAuthEndpoints,
    ) -> Result<OAuthClient, String> {
        let methods = &found.auth_methods;
        let wanted = ["none", "client_secret_basic", "client_secret_post"];
        let method = wanted.into_iter().find(|method| methods.iter().any(|known| known == method));
        let body = json!({
            "client_name": name,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method.unwrap_or("none"),
            "application_type": "native",
        });
        let request = HttpRequest::post(endpoint.clone()).json(body.to_string());
        let (status, body) = self.answer(endpoint, request).await?;
        if !(200..300).contains(&status) {
            return Err(format!(
                "{endpoint} did not register this client: {}",
                describe_error(status, &body)
            ));
        }
        let registered: OAuthRegistration = read(endpoint, &body)?;
        Ok(OAuthClient {
            id: registered.client_id,
            secret: registered.client_secret.filter(|secret| !secret.is_empty()),
            method: registered.token_endpoint_auth_method,
            redirect_uri: Some(redirect_uri.to_owned()),
        })
    }

    /// Requests a token.
    pub(super) async fn token(
        &self,
        endpoint: &Url,
        client: &OAuthClient,
        methods: &[String],
        parameters: &[(&str, &str)],
    ) -> Result<OAuthTokenResponse, String> {
        self.try_token(endpoint, client, methods, parameters).await.map_err(|refusal| refusal.why)
    }

    /// Requests a token; a refusal has the server's own code.
    pub(super) async fn try_token(
        &self,
        endpoint: &Url,
        client: &OAuthClient,
        methods: &[String],
        parameters: &[(&str, &str)],
    ) -> Result<OAuthTokenResponse, TokenRefusal> {
        let mut form = parameters.to_vec();
        let mut request = HttpRequest::post(endpoint.clone())
            .header(header::ACCEPT, JSON)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        match (&client.secret, shown_by(client, methods)) {
            (Some(secret), ClientAuthMethod::Header) => {
                let encode =
                    |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let both = format!("{}:{}", encode(&client.id), encode(secret));
                let both = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(both)));
                let mut both = both.map_err(|error| TokenRefusal::from(error.to_string()))?;
                both.set_sensitive(true);
                request = request.header(header::AUTHORIZATION, both);
            }
            (Some(secret), ClientAuthMethod::Body) => {
                form.extend([("client_id", client.id.as_str()), ("client_secret", secret)]);
            }
            _ => form.push(("client_id", &client.id)),
        }
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let (status, body) = self.answer(endpoint, request.body(form)).await?;
        if status != 200 {
            let why = format!("{endpoint} gave no token: {}", describe_error(status, &body));
            let code = serde_json::from_slice::<OAuthErrorBody>(&body).ok().map(|said| said.error);
            return Err(TokenRefusal { code, why });
        }
        let token: OAuthTokenResponse = read(endpoint, &body)?;
        if !token.token_type.eq_ignore_ascii_case("bearer") {
            let why = format!(
                "{endpoint} gave a token of the type {:?}, which is not understood",
                token.token_type
            );
            return Err(why.into());
        }
        Ok(token)
    }

    /// Posts a form without the client's secret.
    pub(super) async fn post_form<T: DeserializeOwned>(
        &self,
        url: &Url,
        form: &[(&str, &str)],
    ) -> Result<T, String> {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = HttpRequest::post(url.clone())
            .header(header::ACCEPT, JSON)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let (status, body) = self.answer(url, request.body(form)).await?;
        match status {
            200 => read(url, &body),
            status => Err(format!("{url} refused: {}", describe_error(status, &body))),
        }
    }

    async fn answer(&self, url: &Url, request: HttpRequest) -> Result<(u16, Vec<u8>), String> {
        let failed = |error: OutboundError| match error {
            OutboundError::TooLarge { max, .. } => format!("{url} answered more than {max} bytes"),
            error => format!("the request to {url} failed: {}", error.reason()),
        };
        let mut answered = self.client.send(request).await.map_err(failed)?;
        let status = answered.status().as_u16();
        Ok((status, answered.read_to_end(MAX_ANSWER).await.map_err(failed)?))
    }
}

/// How a client authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientAuthMethod {
    Header,
    Body,
    Not,
}

/// The method that was agreed on; otherwise the server's first supported one.
fn shown_by(client: &OAuthClient, methods: &[String]) -> ClientAuthMethod {
    if client.secret.is_none() {
        return ClientAuthMethod::Not;
    }
    let known = |name: &str| match name {
        "client_secret_basic" => Some(ClientAuthMethod::Header),
        "client_secret_post" => Some(ClientAuthMethod::Body),
        "none" => Some(ClientAuthMethod::Not),
        _ => None,
    };
    if let Some(agreed) = client.method.as_deref().and_then(known) {
        return agreed;
    }
    match methods.iter().filter_map(|method| known(method)).find(|way| *way != ClientAuthMethod::Not) {
        Some(way) => way,
        None => ClientAuthMethod::Header,
    }
}

fn read<T: DeserializeOwned>(url: &Url, body: &[u8]) -> Result<T, String> {
    // The position of the error only, not the content: it may be a token.
    serde_json::from_slice(body).map_err(|error| {
        format!(
            "{url} answered something that is not understood (line {}, column {})",
            error.line(),
            error.column()
        )
    })
}

#[derive(Deserialize)]
struct OAuthErrorBody {
    error: String,
    #[serde(default)]
    error_description: String,
}

/// Why there is no token.
pub(super) struct TokenRefusal {
    /// The server's code, such as `authorization_pending`.
    pub(super) code: Option<String>,
    pub(super) why: String,
}

impl From<String> for TokenRefusal {
    fn from(why: String) -> Self {
        Self { code: None, why }
    }
}

/// The text of an authorization server's error.
fn describe_error(status: u16, body: &[u8]) -> String {
    match serde_json::from_slice::<OAuthErrorBody>(body) {
        Ok(said) => format!("{} {}", said.error, said.error_description).trim_end().to_owned(),
        Err(_) => format!("HTTP {status}"),
    }
}

/// An unguessable random string, for the state and PKCE's verifier.
pub(super) fn secret() -> Result<String, String> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| "this machine has no randomness".to_owned())?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// The S256 challenge of a verifier.
pub(super) fn challenge_of(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_the_one_of_the_rfc() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge_of(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_ne!(secret().unwrap(), secret().unwrap());
    }

    #[test]
    fn a_secret_is_shown_as_agreed_else_as_the_server_prefers() {
        let client = |secret: Option<&str>, method: Option<&str>| OAuthClient {
            id: "c".into(),
            secret: secret.map(str::to_owned),
            method: method.map(str::to_owned),
            redirect_uri: None,
        };
        let post = ["client_secret_post".to_owned()];
        assert_eq!(shown_by(&client(None, None), &post), ClientAuthMethod::Not);
        assert_eq!(shown_by(&client(Some("s"), None), &post), ClientAuthMethod::Body);
        assert_eq!(shown_by(&client(Some("s"), None), &[]), ClientAuthMethod::Header);
        assert_eq!(
            shown_by(&client(Some("s"), Some("client_secret_basic")), &post),
            ClientAuthMethod::Header
        );
        assert_eq!(shown_by(&client(Some("s"), Some("none")), &post), ClientAuthMethod::Not);
    }
}
