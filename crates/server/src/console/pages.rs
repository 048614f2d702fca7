//! The console's files, which the binary holds. They are served under the hash of all of them, so that a browser caches
//! them for ever and never mixes two versions; the page itself is asked for each time.

use std::{io::Write as _, sync::OnceLock};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

use crate::{request_checks::HttpRefusal, responses};

/// Names and contents of the files; see `build.rs`.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// The page that begins every screen.
const INDEX: &str = "index.html";
/// Where the page finds its files when it is opened without a server.
const DEVELOPMENT: &str = "/console/a/dev/";
/// The media types that a browser runs or shows.
const TYPES: [(&str, &str); 4] = [
    (".css", "text/css; charset=utf-8"),
    (".html", "text/html; charset=utf-8"),
    (".js", "text/javascript; charset=utf-8"),
    (".svg", "image/svg+xml"),
];

/// The pages of a server.
pub(super) struct Pages {
    /// The public path of the console, without a slash at its end.
    root: String,
    hash: String,
    index: Bytes,
    /// The compressed files, in the order of [`FILES`], each made when it is first asked for.
    compressed: Vec<OnceLock<Bytes>>,
}

impl Pages {
    pub(super) fn new(base_url: &str) -> Self {
        let mut all = Sha256::new();
        for (name, bytes) in FILES {
            all = all.chain_update(name).chain_update([0]).chain_update(Sha256::digest(bytes));
        }
        let hash = BASE64_URL_SAFE_NO_PAD.encode(&all.finalize()[..12]);
        let root = format!("{}/console", path_of(base_url));
        let index =
            FILES.iter().find(|(name, _)| *name == INDEX).map(|(_, bytes)| *bytes).unwrap_or_default();
        let index = String::from_utf8_lossy(index).replace(DEVELOPMENT, &format!("{root}/a/{hash}/"));
        Self { root, hash, index: index.into(), compressed: FILES.iter().map(|_| OnceLock::new()).collect() }
    }

    /// Serves a file, or the page. `path` is the one below `/console`.
    pub(super) fn serve(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
        if method != Method::GET && method != Method::HEAD {
            let message = "pages are read with GET; the API is at /console/api/".to_owned();
            let mut response =
                responses::refuse(&HttpRefusal { status: StatusCode::METHOD_NOT_ALLOWED, message });
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if path.is_empty() {
            return self.redirect(StatusCode::PERMANENT_REDIRECT);
        }
        match path.strip_prefix("/a/") {
            Some(file) => self.file(file, headers),
            None => {
                let mut response = Response::new(Body::from(self.index.clone()));
                let fields = response.headers_mut();
                fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(INDEX)));
                fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                response
            }
        }
    }

    /// Leads to the page.
    pub(super) fn redirect(&self, status: StatusCode) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        let to = HeaderValue::from_str(&format!("{}/", self.root));
        response.headers_mut().insert(header::LOCATION, to.unwrap_or(HeaderValue::from_static("/console/")));
        response
    }

    fn file(&self, path: &str, headers: &HeaderMap) -> Response<Body> {
        let named = path.split_once('/').filter(|(hash, _)| *hash == self.hash);
        let found = named.and_then(|(_, name)| FILES.iter().position(|(known, _)| *known == name));
        let Some(index) = found else {
            let message = "there is no such file of the console in this version of the server".to_owned();
            return responses::refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message });
        };
        let (name, bytes) = FILES[index];
        let gzip = accepts_gzip(headers);
        let body = match gzip {
            true => self.compressed[index].get_or_init(|| compress(bytes)).clone(),
            false => Bytes::from_static(bytes),
        };
        let mut response = Response::new(Body::from(body));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
        fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if gzip {
            fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
        fields.insert(header::CACHE_CONTROL, for_ever);
        response
    }
}

/// The path of a URL, without a slash at its end.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |slash| rest[slash..].trim_end_matches('/'))
}

fn media_type(name: &str) -> &'static str {
    TYPES
        .iter()
        .find(|(ending, _)| name.ends_with(ending))
        .map_or("application/octet-stream", |(_, kind)| kind)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip")
            && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn compress(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail; a file that could not be written whole is sent as an empty one, never cut.
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A console that is slow to load is not opened. What counts most is the first list, whose goal is in
    /// `console/test/rules.test.mjs`; every other screen is loaded when it is first shown.
    #[test]
    fn all_scripts_and_styles_are_small() {
        let weight = |ending: &str| -> usize {
            FILES
                .iter()
                .filter(|(name, _)| name.ends_with(ending))
                .map(|(_, bytes)| compress(bytes).len())
                .sum()
        };
        let (scripts, styles) = (weight(".js"), weight(".css"));
        println!("gzip: {scripts} bytes of scripts, {styles} of styles");
        assert!(scripts <= 200 * 1024, "{scripts} bytes of scripts");
        assert!(styles <= 15 * 1024, "{styles} bytes of styles");
    }

    /// The comments of the sources are not served, and what is served is still what was written.
    #[test]
    fn comments_are_left_out_and_lines_stay_in_place() {
        let app = FILES.iter().find(|(name, _)| *name == "app.js").map(|(_, bytes)| *bytes).unwrap();
        let (app, source) = (std::str::from_utf8(app).unwrap(), include_str!("../../../../console/app.js"));
        assert_eq!(app.lines().count(), source.lines().count());
        let is_commented = |text: &str| text.lines().any(|line| line.trim_start().starts_with("/**"));
        assert!(is_commented(source) && !is_commented(app));
        let line = |text: &str| text.lines().position(|line| line.starts_with("customElements.define("));
        assert!(line(app).is_some());
        assert_eq!(line(app), line(source));
    }

    #[test]
    fn the_public_path_is_that_of_the_url() {
        let check = |url: &str, path: &str| assert_eq!(path_of(url), path, "{url}");
        check("http://127.0.0.1:4400", "");
        check("http://127.0.0.1:4400/", "");
        check("https://agents.example.org/base/", "/base");
        check("https://agents.example.org/a/b", "/a/b");
    }

    #[test]
    fn gzip_is_sent_to_those_that_take_it() {
        let check = |accepted: &str, gzip: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accepted.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), gzip, "{accepted}");
        };
        check("gzip", true);
        check("br, gzip;q=0.5", true);
        check("gzip;q=0", false);
        check("br", false);
    }
}
