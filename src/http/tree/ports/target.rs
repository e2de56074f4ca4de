//! [`Target`]: the port and the path that a request names, as they are spelled in it.

use axum::extract::{MatchedPath, Request};
use axum::http::uri::PathAndQuery;

use crate::http::answer::problem::Problem;

/// What a request to a port is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The path up to and without the slash behind the port, or behind the token of a link.
    pub(super) prefix: String,
    /// The last segment of the prefix: the port or the token.
    pub(super) name: String,
    /// The rest, which begins with a slash, with the query: byte for byte as it came.
    pub(super) rest: PathAndQuery,
}

impl Target {
    /// Divides the target of a request behind the segment that its route calls `{port}` or `{token}`.
    ///
    /// # Errors
    /// `invalid`, which the router rules out.
    pub(super) fn of(request: &Request) -> Result<Self, Problem> {
        let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        template
            .and_then(|template| Self::divided(template, request.uri().path(), request.uri().query()))
            .ok_or_else(|| Problem::invalid("the path names no port"))
    }

    fn divided(template: &str, path: &str, query: Option<&str>) -> Option<Self> {
        let named = ["{port}", "{token}"].into_iter().find_map(|name| template.find(name))?;
        let slashes = template.get(..named)?.matches('/').count();
        // Percent-encoding hides no slash: as many as in the template divide the path.
        let at = path.match_indices('/').nth(slashes)?.0;
        let (prefix, rest) = path.split_at_checked(at)?;
        let name = prefix.rsplit('/').next()?.to_owned();
        let rest = query.map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
        Some(Self { prefix: prefix.to_owned(), name, rest: rest.parse().ok()? })
    }

    /// Reads the name as a port.
    ///
    /// # Errors
    /// `invalid`: it is no number from 1 to 65535.
    pub(super) fn port(&self) -> Result<u16, Problem> {
        let digits = Some(self.name.as_str()).filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let port = digits.and_then(|digits| digits.parse().ok()).filter(|port| *port != 0);
        port.ok_or_else(|| Problem::invalid("a port is a number from 1 to 65535, as `GET ports` lists it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_TREE: &str = "/v1/sandbox/{u}/{a}/ports/{port}/{*path}";

    #[test]
    fn the_rest_is_passed_on_as_it_was_spelled() {
        for (template, path, query, expected) in [
            (OF_TREE, "/v1/sandbox/u/a/ports/8000/", None, ("/v1/sandbox/u/a/ports/8000", "8000", "/")),
            (
                OF_TREE,
                "/v1/sandbox/%E5%BC%A0%2F/a/ports/80/a%2Fb//../%2e%2e/c",
                Some("x=%20&y=/"),
                ("/v1/sandbox/%E5%BC%A0%2F/a/ports/80", "80", "/a%2Fb//../%2e%2e/c?x=%20&y=/"),
            ),
            (
                "/v1/skills/{u}/{a}/{s}/ports/{port}/",
                "/v1/skills/u/a/ports/ports/1/",
                Some(""),
                ("/v1/skills/u/a/ports/ports/1", "1", "/?"),
            ),
            (
                "/v1/ports/{token}/{*path}",
                "/v1/ports/t.o/ports/9/x",
                None,
                ("/v1/ports/t.o", "t.o", "/ports/9/x"),
            ),
        ] {
            let (prefix, name, rest) = expected;
            let target = Target::divided(template, path, query).unwrap();
            let found = (target.prefix.as_str(), target.name.as_str(), target.rest.as_str());
            assert_eq!(found, (prefix, name, rest), "{path}");
        }
    }

    #[test]
    fn only_a_number_of_a_port_is_one() {
        let of = |name: &str| {
            let path = format!("/v1/sandbox/u/a/ports/{name}/");
            Target::divided(OF_TREE, &path, None).unwrap().port().ok()
        };
        assert_eq!([of("1"), of("65535"), of("08000")], [Some(1), Some(65535), Some(8000)]);
        for other in ["0", "65536", "+80", "-1", "80x", "8%30", "localhost", "80:80", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
