//! The address filter, as somebody who wants past it would try it: a listener on loopback stands for
//! everything that must not be reached, and sees no connection.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use nuncio_outbound::{
    AddressPolicy, HostLookup, Outbound, OutboundError, OutboundOptions, OutboundResponse, Url,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Hosts that must be refused, by how they are spelled. `check_url` refuses them, and so does a request that
/// never saw `check_url`.
const REFUSED_HOSTS: &[&str] = &[
    // Loopback.
    "127.0.0.1",
    "127.0.0.2",
    "127.1.2.3",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "0x7f.0.0.1",
    "0x7f.0x0.0x0.0x1",
    "0x7f.1",
    "0177.1",
    "127.0x0.00.1",
    "00000177.0.0.1",
    "127.0.0.1.",
    "0x7f000001.",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "127.0.0.%31",
    "127。0。0。1",
    "\u{ff11}\u{ff12}\u{ff17}.\u{ff10}.\u{ff10}.\u{ff11}",
    "①②⑦.⓪.⓪.①",
    "1\t27.0.0.1",
    "127.0.\n0.1",
    "localhost",
    "LOCALHOST",
    "LocalHost",
    "localhost.",
    "LOCALHOST.",
    "api.localhost",
    "a.b.localhost.",
    "\u{ff4c}\u{ff4f}\u{ff43}\u{ff41}\u{ff4c}\u{ff48}\u{ff4f}\u{ff53}\u{ff54}",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "%6cocalhost",
    "loc\u{ad}alhost",
    // "This network", which Linux takes for this machine.
    "0.0.0.0",
    "0",
    "0.0",
    "0x0",
    "00",
    "0.0.0.0.",
    "0.1.2.3",
    // Private networks.
    "10.0.0.1",
    "10.255.255.255",
    "10.1",
    "167772161",
    "0x0a000001",
    "012.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "172.16.1",
    "0xac100001",
    "192.168.0.1",
    "192.168.1",
    "3232235521",
    "0xc0a80001",
    "0300.0250.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "1681915905",
    // Link-local, and the metadata services of clouds.
    "169.254.169.254",
    "169.254.169.254.",
    "169.254.0.1",
    "2852039166",
    "0xa9fea9fe",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "0251.254.169.254",
    "169.254.43518",
    "169.16689662",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    // Ranges that no server lives in.
    "192.0.0.1",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "4294967295",
    "0xffffffff",
    "0377.0377.0377.0377",
    // IPv6 of its own.
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::0.0.0.1]",
    "[fc00::1]",
    "[fd00::1]",
    "[fdff:ffff::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[ff0e::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "[4000::1]",
    // IPv4 inside IPv6.
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::FFFF:127.0.0.1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:0.0.0.0]",
    "[::ffff:10.0.0.1]",
    "[::ffff:192.168.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:100.64.0.1]",
    "[::127.0.0.1]",
    "[::10.0.0.1]",
    "[::169.254.169.254]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::127.0.0.1]",
    "[64:ff9b:1::8.8.8.8]",
    "[64:ff9b:1:a9fe:a9:fe00::]",
    "[2002:7f00:1::]",
    "[2002:7f00:0001::1]",
    "[2002:a00:1::]",
    "[2002:c0a8:1::]",
    "[2002:a9fe:a9fe::]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[2001::1]",
    "[2001:2::1]",
    "[2001:10::1]",
    "[2001:20::1]",
];

/// URLs that must be refused for other reasons than the address that they name.
const REFUSED_URLS: &[&str] = &[
    "",
    " ",
    "example.com",
    "/hook",
    "//example.com/hook",
    "http:",
    "http://",
    "http:///",
    "http://:80/",
    "http://?x",
    "http://#x",
    "https://",
    "http://.",
    "http://../",
    "http://.example.com/",
    "http://a..example.com/",
    "http://example.com../",
    "http://127.0.0.1../",
    "http://localhost../",
    "http://exa mple.com/",
    "http://exa%00mple.com/",
    "http://exa%0d%0ample.com/",
    "http://exam<ple.com/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:http/",
    "http://256.0.0.1/",
    "http://1.2.3.4.5/",
    "http://0x100000000/",
    "http://4294967296/",
    "http://127.0.0.1.5/",
    "http://999999999999/",
    "http://[::1/",
    "http://::1/",
    "http://[::1%25lo]/",
    "http://[::1%lo]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[::127.0.0]/",
    "http://[v1.fe80::1]/",
    "http://[1.2.3.4]/",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://:password@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/",
    "http://example.com:80@127.0.0.1:80/",
    "http:\\\\user@example.com\\",
    "ftp://example.com/",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://example.com/",
    "dict://example.com:11211/",
    "ldap://example.com/",
    "ws://example.com/",
    "wss://example.com/",
    "data:text/plain,x",
    "javascript:alert(1)",
    "unix:/run/docker.sock",
    "blob:http://example.com/x",
    "jar:http://example.com!/",
    "mailto:a@example.com",
    "about:blank",
];

/// URLs that may be kept.
const KEPT_URLS: &[&str] = &[
    "http://example.com",
    "https://example.com/hook",
    "https://example.com./hook",
    "https://example.com:8443/hook?token=x#f",
    "HTTPS://EXAMPLE.COM/HOOK",
    "https://bücher.example/",
    "https://localhost.example.com/",
    "https://notlocalhost/",
    "https://10.example.com/",
    "https://127.0.0.1.nip.io/",
    "https://8.8.8.8/",
    "https://172.32.0.1/",
    "https://134744072/",
    "https://[2606:4700:4700::1111]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[64:ff9b::8.8.8.8]/",
    "https://[2002:808:808::1]/",
];

/// A resolver that gives one answer after another; the last stays.
struct Script(Mutex<VecDeque<Vec<IpAddr>>>);

impl Script {
    fn new(answers: &[&[IpAddr]]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(answers.iter().map(|answer| answer.to_vec()).collect())))
    }
}

#[async_trait]
impl HostLookup for Script {
    async fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"))
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));

fn client(allow_private: bool, lookup: Arc<dyn HostLookup>) -> Outbound {
    let policy = AddressPolicy { allow_private };
    Outbound::with_lookup(OutboundOptions { policy, ..OutboundOptions::default() }, lookup).unwrap()
}

async fn get(client: &Outbound, url: &str) -> Result<OutboundResponse, OutboundError> {
    client.send(Method::GET, &Url::parse(url).unwrap(), HeaderMap::new(), Bytes::new()).await
}

/// A server on loopback that counts its connections and answers each with the same bytes.
struct Target {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Target {
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer.into())
    }

    fn on(listener: TcpListener, answer: Vec<u8>) -> Self {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answer.clone()));
            }
        });
        Self { address, connections }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, answer: Vec<u8>) -> io::Result<()> {
    let mut request = Vec::new();
    // Until the client leaves: an answer that says too little leaves it waiting.
    while stream.read_buf(&mut request).await? > 0 {
        if request.ends_with(b"\r\n\r\n") {
            stream.write_all(&answer).await?;
            request.clear();
        }
    }
    Ok(())
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn no_spelling_gets_through() {
    let target = Target::answering(OK).await;
    // The ports of both families, so that an answer on `::1` would be seen as well.
    let port = target.address.port();
    let target_v6 = TcpListener::bind(("::1", port)).await.ok().map(|six| Target::on(six, OK.into()));
    let client = client(false, Script::new(&[&[LOOPBACK]]));
    assert!(REFUSED_HOSTS.len() + REFUSED_URLS.len() >= 200);

    for host in REFUSED_HOSTS {
        let url = format!("http://{host}:{port}/");
        let checked = client.check_url(&url);
        assert!(checked.is_err(), "{host:?} was kept as {checked:?}");
        let sent = get(&client, &url).await;
        assert!(sent.is_err(), "{host:?} was sent to: {sent:?}");
    }
    for url in REFUSED_URLS {
        let checked = client.check_url(url);
        assert!(checked.is_err(), "{url:?} was kept as {checked:?}");
        if Url::parse(url).is_ok() {
            let sent = get(&client, url).await;
            assert!(sent.is_err(), "{url:?} was sent to: {sent:?}");
        }
    }
    assert_eq!(target.connections(), 0);
    assert_eq!(target_v6.map_or(0, |target| target.connections()), 0);
}

#[tokio::test]
async fn what_is_public_may_be_kept() {
    let client = client(false, Script::new(&[]));
    for url in KEPT_URLS {
        let checked = client.check_url(url);
        assert!(checked.is_ok(), "{url}: {checked:?}");
    }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_that_is_connected_to() {
    let target = Target::answering(OK).await;
    let port = target.address.port();
    let forbidden =
        ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "fe80::1"];
    for address in forbidden {
        let client = client(false, Script::new(&[&[address.parse().unwrap()]]));
        let url = format!("http://innocent.example:{port}/");
        client.check_url(&url).unwrap();
        let error = get(&client, &url).await.unwrap_err();
        assert!(matches!(error, OutboundError::Refused { .. }), "{address}: {error}");
        assert!(error.is_permanent());
        assert!(
            error.to_string().contains(&format!("innocent.example is refused: {address} is ")),
            "{error}"
        );
    }
    assert_eq!(target.connections(), 0);
}

/// A name that is public when somebody looks and loopback when the connection is opened.
#[tokio::test]
async fn rebinding_gains_nothing() {
    let target = Target::answering(OK).await;
    let script = Script::new(&[&[PUBLIC], &[LOOPBACK]]);
    let client = client(false, Arc::clone(&script) as Arc<dyn HostLookup>);
    let url = format!("http://rebind.example:{}/", target.address.port());

    client.check_url(&url).unwrap();
    let look = script.lookup("rebind.example").await.unwrap();
    assert!(
        look.iter().all(|address| AddressPolicy::default().check(*address).is_ok()),
        "a check would pass"
    );
    for _ in 0..3 {
        let error = get(&client, &url).await.unwrap_err();
        assert!(matches!(error, OutboundError::Refused { .. }), "{error}");
    }
    assert_eq!(target.connections(), 0);
}

/// Every connection is judged, not every name: the second lookup of a name that passed is judged again.
#[tokio::test]
async fn rebinding_between_two_requests_gains_nothing() {
    // Closes after each answer, so that the second request needs a second connection.
    let close = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let target = Target::answering(close).await;
    let metadata: IpAddr = [169, 254, 169, 254].into();
    let client = client(true, Script::new(&[&[LOOPBACK], &[metadata]]));
    let url = format!("http://rebind.example:{}/", target.address.port());
    assert_eq!(get(&client, &url).await.unwrap().status, StatusCode::OK);
    let error = get(&client, &url).await.unwrap_err();
    assert!(error.to_string().contains("metadata service"), "{error}");
    assert_eq!(target.connections(), 1);
}

#[tokio::test]
async fn private_addresses_pass_when_they_are_allowed() {
    let target = Target::answering(OK).await;
    let client = client(true, Script::new(&[&[LOOPBACK]]));
    let port = target.address.port();
    for host in ["127.0.0.1", "localhost", "hook.internal", "[::ffff:127.0.0.1]", "2130706433"] {
        let url = format!("http://{host}:{port}/");
        client.check_url(&url).unwrap();
        let answer = get(&client, &url).await.unwrap();
        assert_eq!((answer.status, &answer.body[..], answer.complete), (StatusCode::OK, &b"ok"[..], true));
    }
    for host in ["169.254.169.254", "[fe80::1]", "0.0.0.0", "255.255.255.255", "224.0.0.1", "168.63.129.16"] {
        let error = client.check_url(&format!("http://{host}/")).unwrap_err();
        assert!(error.to_string().contains("never"), "{error}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let inside = Target::answering(OK).await;
    let location = inside.url();
    let redirect =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
    let target = Target::answering(redirect).await;
    let client = client(true, Script::new(&[]));
    let answer = get(&client, &target.url()).await.unwrap();
    assert_eq!(answer.status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(inside.connections(), 0);
}

/// Runs a test of this binary again, in a process whose environment names a proxy.
#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    let proxy = Target::answering(OK).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "filter::private_addresses_pass_when_they_are_allowed"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, proxy.url());
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    assert_eq!(proxy.connections(), 0);
}

#[tokio::test]
async fn a_long_answer_is_cut() {
    let body = vec![b'x'; 300 * 1024];
    let mut long = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    long.extend(&body);
    let target = Target::answering(long).await;
    let answer = get(&client(true, Script::new(&[])), &target.url()).await.unwrap();
    assert_eq!((answer.body.len(), answer.complete), (64 * 1024, false));
}

#[tokio::test]
async fn time_is_capped_and_a_status_that_came_counts() {
    let options = OutboundOptions {
        policy: AddressPolicy { allow_private: true },
        timeout: Duration::from_millis(200),
        ..OutboundOptions::default()
    };
    let client = Outbound::with_lookup(options, Script::new(&[])).unwrap();
    let silent = Target::answering("").await;
    let error = get(&client, &silent.url()).await.unwrap_err();
    assert!(matches!(error, OutboundError::Timeout { .. }), "{error}");

    let endless = Target::answering("HTTP/1.1 202 Accepted\r\ncontent-length: 10\r\n\r\nhalf").await;
    let answer = get(&client, &endless.url()).await.unwrap();
    assert_eq!(
        (answer.status, &answer.body[..], answer.complete),
        (StatusCode::ACCEPTED, &b"half"[..], false)
    );
}

#[tokio::test]
async fn an_error_shows_the_host_and_nothing_more_of_the_url() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client(true, Script::new(&[]));
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer s3cret"));
    for url in [format!("http://{closed}/s3cret?s3cret"), "http://nowhere.example/s3cret".to_owned()] {
        let url = Url::parse(&url).unwrap();
        let error =
            client.send(Method::POST, &url, headers.clone(), Bytes::from("s3cret")).await.unwrap_err();
        assert!(matches!(error, OutboundError::Unreachable { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}
