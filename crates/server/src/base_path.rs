//! The path below which a server is also served, for clients and proxies that reach it there.

use http::{Request, Uri, uri::PathAndQuery};

/// A path with a leading slash and without a trailing one.
#[derive(Debug)]
pub(crate) struct BasePath(String);

impl BasePath {
    /// `None` for the root, which is the base path of every server.
    pub(crate) fn new(path: &str) -> Option<Self> {
        let path = path.trim_matches('/');
        (!path.is_empty()).then(|| Self(format!("/{path}")))
    }

    /// Removes the base path, so that all that follows (routes, permissions, logs) sees one path for one thing.
    pub(crate) fn remove_from<B>(&self, request: &mut Request<B>) {
        let Some(rest) = request.uri().path_and_query().and_then(|path| self.rest_of(path.as_str())) else {
            return;
        };
        let Ok(rest) = PathAndQuery::try_from(rest) else { return };
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(rest);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }

    /// What follows the base path in a path with its query.
    fn rest_of(&self, path: &str) -> Option<String> {
        match path.strip_prefix(&self.0)? {
            rest if rest.starts_with('/') => Some(rest.to_owned()),
            rest if rest.is_empty() || rest.starts_with('?') => Some(format!("/{rest}")),
            // Another path that begins with the same letters.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_removed_where_it_is_whole() {
        let check = |uri: &str, expected: &str| {
            let mut request = Request::builder().uri(uri).body(()).unwrap();
            BasePath::new("/a2a/v1/").unwrap().remove_from(&mut request);
            assert_eq!(request.uri().to_string(), expected);
        };
        check("/a2a/v1", "/");
        check("/a2a/v1/", "/");
        check("/a2a/v1?x=/a2a/v1", "/?x=/a2a/v1");
        check("/a2a/v1/tasks/1:cancel?x", "/tasks/1:cancel?x");
        check("http://a.example/a2a/v1/tasks", "http://a.example/tasks");
        for other in ["/", "/a2a", "/a2a/v10", "/x/a2a/v1", "/tasks"] {
            check(other, other);
        }
        assert!(BasePath::new("/").is_none() && BasePath::new("").is_none());
    }
}
