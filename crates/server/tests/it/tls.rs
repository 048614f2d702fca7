//! TLS on the server's port: both versions of HTTP, a certificate that changes, clients that misbehave, and callers
//! that certificates name.

use std::time::Duration;

use http::{Method, Request};
use nuncio_server::{ServerTls, TlsOptions};
use nuncio_testkit::certificates::{
    PemPair, TestAuthority,
    rcgen::{DnType, SanType},
    valid_for,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    guests,
    site::{Site, message, request},
    socket::{Answer, Events, Socket, get, post, within},
    tls_client::{TlsClient, TlsFolder, der, shown},
};

const SHORT: Duration = Duration::from_millis(300);

async fn site(files: &TlsFolder) -> Site {
    Site::with(|setup| files.install(setup, false)).await
}

/// A server whose callers show tokens or certificates.
async fn mutual_site(files: &TlsFolder) -> Site {
    guests::site_with(|setup| files.install(setup, true)).await
}

fn send_request(text: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers = [&[("a2a-version", "1.0")], headers].concat();
    post("/", &headers, request("SendMessage", &json!({ "message": message(text) })))
}

async fn ask(socket: &mut Socket, request: Vec<u8>) -> Answer {
    socket.send(request).await;
    socket.answer().await
}

#[tokio::test]
async fn a_message_is_answered_over_the_version_of_http_that_the_handshake_agrees_on() {
    let files = TlsFolder::new();
    let site = site(&files).await;
    for client in [files.client(), files.client().tls_1_2()] {
        let stream = client.clone().alpn(&["http/1.1"]).connect(&site).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let sent = ask(&mut Socket::over(stream), send_request("say hello", &[])).await;
        assert_eq!(
            sent.json()["result"]["task"]["status"]["state"],
            "TASK_STATE_COMPLETED",
            "{}",
            sent.text()
        );

        let stream = client.alpn(&["h2", "http/1.1"]).connect(&site).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let asked =
            Request::builder().method(Method::GET).uri("https://localhost/.well-known/agent-card.json");
        let (answer, _) = requests.send_request(asked.body(()).unwrap(), true).unwrap();
        let mut body = within("an answer", answer).await.unwrap().into_body();
        let mut card = vec![];
        while let Some(piece) = within("a piece", body.data()).await {
            card.extend_from_slice(&piece.unwrap());
        }
        let card: Value = serde_json::from_slice(&card).unwrap();
        let url = card["supportedInterfaces"][0]["url"].as_str().unwrap();
        assert_eq!(url, format!("https://{}/", site.address));
    }
    // Without ALPN the first bytes decide, as they do without TLS.
    let mut socket = files.client().socket(&site).await;
    assert_eq!(ask(&mut socket, get("/healthz", &[])).await.status, 200);
    // A page that came without TLS is another program's.
    let origin = format!("http://localhost:{}", site.address.port());
    let host = format!("localhost:{}", site.address.port());
    let page = [("host", &*host), ("origin", &*origin)];
    assert_eq!(ask(&mut socket, get("/healthz", &page)).await.status, 403);
}

#[tokio::test]
async fn a_changed_pair_is_for_new_connections_and_a_broken_one_changes_nothing() {
    let files = TlsFolder::new();
    let first = files.authority.issue(&["localhost"]);
    files.write_pair(&first);
    let site = site(&files).await;
    let stream = files.client().connect(&site).await;
    assert_eq!(shown(&stream), der(&first));
    let mut open = Socket::over(stream);
    assert_eq!(ask(&mut open, get("/healthz", &[])).await.status, 200);

    // The key of another pair: nothing changes, however often the files are read.
    files.write("key.pem", &files.authority.issue(&["localhost"]).key);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(shown(&files.client().connect(&site).await), der(&first));
    }
    let second = files.authority.issue(&["localhost"]);
    files.write_pair(&second);
    within("the new certificate", async {
        while shown(&files.client().connect(&site).await) != der(&second) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(ask(&mut open, send_request("say on", &[])).await.status, 200, "an open connection goes on");
}

#[tokio::test]
async fn a_slow_handshake_is_cut_and_others_are_served_meanwhile() {
    let files = TlsFolder::new();
    let site = Site::with(|setup| {
        files.install(setup, false);
        setup.server.limits.handshake_timeout = SHORT;
    })
    .await;
    let mut slow = vec![];
    for beginning in [&b""[..], &[22], &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]] {
        let mut socket = site.socket().await;
        socket.send(beginning).await;
        slow.push(socket);
    }
    let mut socket = files.client().socket(&site).await;
    assert_eq!(ask(&mut socket, get("/healthz", &[])).await.status, 200);
    for mut socket in slow {
        assert!(socket.ended().await, "a handshake that does not go on");
    }
    // The limit is for the handshake alone: this connection is as old, and open.
    assert_eq!(ask(&mut socket, get("/healthz", &[])).await.status, 200);
}

#[tokio::test]
async fn what_is_no_tls_gets_an_answer_that_any_client_can_read_or_is_closed() {
    let files = TlsFolder::new();
    let site = site(&files).await;
    let refused = site.get("/healthz", &[]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("speaks HTTPS"), "{}", refused.text());
    for garbage in [vec![22; 300], vec![0; 300], vec![22, 3, 1, 255, 255, 1], vec![255; 70_000]] {
        let mut socket = site.socket().await;
        socket.send(&garbage).await;
        socket.finish().await;
        while !socket.ended().await {
            // An alert, or the answer in plain text.
            if socket.take(1).await.is_none() {
                break;
            }
        }
    }
    let mut socket = files.client().socket(&site).await;
    assert_eq!(ask(&mut socket, get("/healthz", &[])).await.status, 200);
}

#[tokio::test]
async fn a_client_that_vanishes_in_the_handshake_or_after_it_harms_nobody() {
    let files = TlsFolder::new();
    let site = site(&files).await;
    for _ in 0..20 {
        let mut stream = files.client().connect(&site).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
        drop(stream);
    }
    let mut socket = files.client().socket(&site).await;
    assert_eq!(ask(&mut socket, get("/healthz", &[])).await.status, 200);
}

#[test]
fn wrong_files_at_the_start_are_named_with_what_is_wrong() {
    let files = TlsFolder::new();
    let check = |options: TlsOptions, words: &[&str]| {
        let Err(error) = ServerTls::load(options) else { panic!("loaded: {words:?}") };
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}: {words:?}");
    };
    let (certificate, key) = (files.path("cert.pem"), files.path("key.pem"));
    files.write("empty.pem", "");
    files.write("other-key.pem", &files.authority.issue(&["localhost"]).key);
    files.write("broken.pem", "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n");
    files.write(
        "encrypted.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    files.write("large.pem", &" ".repeat(1024 * 1024 + 1));
    let with = |name: &str| TlsOptions::new(files.path(name), &key);
    check(with("none.pem"), &["tls-cert", "none.pem", "No such file", "nuncio cert self-signed"]);
    check(with("empty.pem"), &["tls-cert", "empty.pem", "holds no certificate"]);
    check(with("key.pem"), &["tls-cert", "key.pem", "holds no certificate"]);
    check(with("broken.pem"), &["tls-cert", "broken.pem"]);
    check(with("large.pem"), &["tls-cert", "large.pem", "larger than"]);
    let with = |name: &str| TlsOptions::new(&certificate, files.path(name));
    check(with("none.pem"), &["tls-key", "none.pem", "No such file"]);
    check(with("cert.pem"), &["tls-key", "cert.pem", "holds no private key"]);
    check(with("other-key.pem"), &["tls-key", "other-key.pem", "not the key of the certificate"]);
    check(with("encrypted.pem"), &["tls-key", "encrypted.pem", "passphrase"]);
    let with = |name: &str| TlsOptions { client_ca: Some(files.path(name)), ..files.options() };
    check(with("none.pem"), &["tls-client-ca", "none.pem", "No such file"]);
    check(with("key.pem"), &["tls-client-ca", "key.pem", "holds no certificate"]);
}

/// Sends a message on a connection of its own; the status, and the id of the task.
async fn begin(site: &Site, client: &TlsClient, headers: &[(&str, &str)]) -> (u16, String) {
    let sent = ask(&mut client.socket(site).await, send_request("say hello", headers)).await;
    let id = sent.json()["result"]["task"]["id"].as_str().unwrap_or_default().to_owned();
    (sent.status, id)
}

async fn may_read(site: &Site, client: &TlsClient, headers: &[(&str, &str)], task: &str) -> bool {
    let headers = [&[("a2a-version", "1.0")], headers].concat();
    let asked = post("/", &headers, request("GetTask", &json!({ "id": task })));
    let read = ask(&mut client.socket(site).await, asked).await;
    assert_eq!(read.status, 200, "{}", read.text());
    read.json().get("result").is_some()
}

#[tokio::test]
async fn a_certificate_names_the_caller_and_is_never_a_token_of_its_name() {
    let files = TlsFolder::new();
    let site = mutual_site(&files).await;
    let plain = files.client();
    let ada = plain.showing(&files.clients.issue(&["ada.example"]));
    let bob = plain.showing(&files.clients.issue(&["bob.example"]));
    assert_eq!(begin(&site, &plain, &[]).await.0, 401, "neither certificate nor token");

    let (status, task) = begin(&site, &ada, &[]).await;
    assert_eq!(status, 200);
    let operator = [("authorization", "Bearer operator")];
    let seen = ask(&mut plain.socket(&site).await, get(&format!("/admin/tasks/{task}"), &operator)).await;
    assert!(seen.text().contains("\"cert:dns:ada.example\""), "{}", seen.text());
    assert!(may_read(&site, &ada, &[], &task).await);
    assert!(!may_read(&site, &bob, &[], &task).await, "another certificate");
    for token in ["ada.example", "dns:ada.example"] {
        let authorization = format!("Bearer {token}");
        let shown = [("authorization", &*authorization)];
        assert!(!may_read(&site, &plain, &shown, &task).await, "a token of the same name");
        assert!(!may_read(&site, &ada, &shown, &task).await, "the token decides where both are shown");
    }
    let bad = [("authorization", "Bearer bad")];
    assert_eq!(begin(&site, &ada, &bad).await.0, 401, "a token that is not good is not replaced");
    // A proxy's certificate is not that of its clients.
    for header in [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1"), ("via", "1.1 proxy")] {
        assert_eq!(begin(&site, &ada, &[header]).await.0, 401, "{header:?}");
    }
}

/// Whether a connection with this certificate gets no answer at all.
async fn is_cut(site: &Site, client: &TlsClient) -> bool {
    match client.try_connect(site).await {
        Err(_) => true,
        Ok(mut stream) => {
            let _ = stream.write_all(&get("/healthz", &[("connection", "close")])).await;
            let mut answer = vec![];
            within("the end", stream.read_to_end(&mut answer)).await.is_err() && answer.is_empty()
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_good_ends_the_handshake() {
    let files = TlsFolder::new();
    let site = mutual_site(&files).await;
    let strangers = TestAuthority::new("clients");
    let expired = files.clients.issue_with(&["ada.example"], |params| valid_for(params, -60));
    for (what, pair) in [
        ("another authority of the same name", strangers.issue(&["ada.example"])),
        ("expired", expired),
        ("the server's authority", files.authority.issue(&["ada.example"])),
    ] {
        for client in [files.client(), files.client().tls_1_2()] {
            assert!(is_cut(&site, &client.showing(&pair)).await, "{what}");
        }
    }
    assert_eq!(
        begin(&site, &files.client().showing(&files.clients.issue(&["ada.example"])), &[]).await.0,
        200
    );
}

#[tokio::test]
async fn a_certificate_without_a_name_is_no_caller() {
    let files = TlsFolder::new();
    let site = mutual_site(&files).await;
    let nameless = |change: fn(&mut nuncio_testkit::certificates::rcgen::CertificateParams)| {
        files.clients.issue_with(&[], change)
    };
    let none = nameless(|params| params.distinguished_name.remove(DnType::CommonName).then_some(()).unwrap());
    assert_eq!(begin(&site, &files.client().showing(&none), &[]).await.0, 401);
    let only_address = nameless(|params| {
        params.distinguished_name.remove(DnType::CommonName);
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    });
    assert_eq!(begin(&site, &files.client().showing(&only_address), &[]).await.0, 401);
    // With a token it is still a client like any other.
    let shown = [("authorization", "Bearer ada")];
    assert_eq!(begin(&site, &files.client().showing(&none), &shown).await.0, 200);
}

#[tokio::test]
async fn a_stream_and_a_connection_end_being_the_callers_when_the_certificate_does() {
    let files = TlsFolder::new();
    let site = mutual_site(&files).await;
    let brief = |seconds| files.clients.issue_with(&["ada.example"], |params| valid_for(params, seconds));
    let client = files.client().showing(&brief(3));
    let steady = files.client().showing(&brief(3600));
    let open = async |client: &TlsClient| {
        let params = json!({ "message": message("wait") });
        let asked = post("/", &[("a2a-version", "1.0")], request("SendStreamingMessage", &params));
        Events::open(client.socket(&site).await, &asked).await
    };
    let (mut ending, mut going) = (open(&client).await, open(&steady).await);
    let mut connection = client.socket(&site).await;
    assert_eq!(ask(&mut connection, send_request("say hello", &[])).await.status, 200);
    within("the end of the stream", async { while ending.next().await.is_some() {} }).await;
    let refused = ask(&mut connection, send_request("say hello", &[])).await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    // The other stream goes on.
    let (_, first) = going.next().await.expect("an event");
    let id = &first["result"]["task"]["id"];
    let cancel = post("/", &[("a2a-version", "1.0")], request("CancelTask", &json!({ "id": id })));
    assert_eq!(ask(&mut steady.socket(&site).await, cancel).await.status, 200);
    let mut last = first;
    while let Some((_, event)) = going.next().await {
        last = event;
    }
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{last}");
}

#[tokio::test]
async fn an_open_connection_is_nobodys_when_its_authority_is_trusted_no_more() {
    let files = TlsFolder::new();
    let site = mutual_site(&files).await;
    let pair: PemPair = files.clients.issue(&["ada.example"]);
    let mut connection = files.client().showing(&pair).socket(&site).await;
    assert_eq!(ask(&mut connection, send_request("say hello", &[])).await.status, 200);
    let others = TestAuthority::new("others");
    // One more authority changes nothing for those of the first.
    files.write("clients.pem", &format!("{}{}", files.clients.pem(), others.pem()));
    within("the second authority", async {
        let client = files.client().showing(&others.issue(&["bob.example"]));
        while is_cut(&site, &client).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(ask(&mut connection, send_request("say hello", &[])).await.status, 200);
    files.write("clients.pem", &others.pem());
    within("the refusal", async {
        while ask(&mut connection, send_request("say hello", &[])).await.status != 401 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn cards_announce_certificates_beside_tokens() {
    let files = TlsFolder::new();
    let site = mutual_site(&files).await;
    let mut socket = files.client().socket(&site).await;
    let card = ask(&mut socket, get("/.well-known/agent-card.json", &[("a2a-version", "1.0")])).await.json();
    assert_eq!(card["securitySchemes"]["mtls"], json!({ "mtlsSecurityScheme": {} }), "{card}");
    let ways = card["securityRequirements"].as_array().unwrap();
    assert!(ways.contains(&json!({ "schemes": { "mtls": { "list": [] } } })), "{ways:?}");
    assert!(ways.contains(&json!({ "schemes": { "bearer": { "list": [] } } })), "{ways:?}");
    let card = ask(&mut socket, get("/.well-known/agent-card.json", &[("a2a-version", "0.3")])).await.json();
    assert_eq!(card["securitySchemes"]["mtls"]["type"], "mutualTLS", "{card}");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_handshakes() {
    let files = TlsFolder::new();
    let site = site(&files).await;
    let mut slow = site.socket().await;
    slow.send([22]).await;
    let mut socket = files.client().socket(&site).await;
    assert_eq!(ask(&mut socket, get("/healthz", &[])).await.status, 200);
    site.begin_stop().finish().await;
    assert!(slow.ended().await);
}
