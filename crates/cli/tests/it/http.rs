//! Plain HTTP, for what the commands do not do.

use serde_json::{Value, json};

/// A client that reaches this machine whatever its proxies are.
pub(crate) fn client() -> reqwest::Client {
    // An error means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Without certificates: nothing here is encrypted, and to parse the system's takes longer than most requests.
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

/// A request of A2A 1.0 and its whole response, for tests that are not async.
pub(crate) fn rpc(url: &str, method: &str, params: &Value) -> Value {
    rpc_with(url, method, params, &[])
}

/// The same, with further headers.
pub(crate) fn rpc_with(url: &str, method: &str, params: &Value, headers: &[(&str, &str)]) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request =
            client().post(url).header("A2A-Version", "1.0").header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body).send().await.unwrap().text().await.unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    })
}
