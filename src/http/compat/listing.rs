//! Parameters of requests, pages, and texts that stand for versions.

use std::collections::HashMap;

use axum::extract::Query;
use axum::http::Uri;
use storage::Version;

use crate::http::answer::problem::Problem;
use crate::ops::shown::ShownName;

/// The prefix of the ids of versions.
const VERSION: &str = "skillver_";

/// The parameters of a request. Unknown ones mean nothing here: clients send such.
pub(super) struct Parameters(HashMap<String, String>);

impl Parameters {
    pub(super) fn of(uri: &Uri) -> Result<Self, Problem> {
        let Query(read) = Query::try_from_uri(uri)
            .map_err(|_| Problem::invalid("the parameters of the request cannot be read"))?;
        Ok(Self(read))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// How many elements a page has: `limit`, at most `most`.
    pub(super) fn limit(&self, most: usize) -> Result<usize, Problem> {
        /// Elements of a page of a client that does not say.
        const UNASKED: usize = 20;
        let Some(text) = self.get("limit") else { return Ok(UNASKED) };
        let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| Problem::invalid(format!("`limit` is a number from 1 to {most}")))
    }
}

/// The elements behind the one with the id `after`, at most `limit`, and whether there are more.
pub(super) fn page<T>(
    mut elements: Vec<T>,
    id: impl Fn(&T) -> String,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<T>, bool), Problem> {
    if let Some(after) = after {
        let at = elements.iter().position(|element| id(element) == after);
        let at = at.ok_or_else(|| {
            Problem::invalid("the page follows an element that is not there any more: begin anew")
        })?;
        elements.drain(..=at);
    }
    let has_more = elements.len() > limit;
    elements.truncate(limit);
    Ok((elements, has_more))
}

/// The id of a version.
pub(super) fn version_id(version: &Version) -> String {
    format!("{VERSION}{version}")
}

/// The version that an id names: `skillver_…`, or its digits.
pub(super) fn version_of(text: &str) -> Option<ShownName> {
    Version::parse(text.strip_prefix(VERSION).unwrap_or(text)).map(ShownName::Version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_list() {
        let list = || vec!["c".to_owned(), "b".to_owned(), "a".to_owned()];
        let page = |after| page(list(), String::clone, after, 2).ok();
        assert_eq!(page(None), Some((vec!["c".to_owned(), "b".to_owned()], true)));
        assert_eq!(page(Some("b")), Some((vec!["a".to_owned()], false)));
        assert_eq!(page(Some("a")), Some((vec![], false)));
        assert_eq!(page(Some("x")), None);
    }

    #[test]
    fn a_version_is_named_with_its_prefix_or_without() {
        let digits = "0123456789abcdef0123456789abcdef";
        let expected = Version::parse(digits).map(ShownName::Version);
        assert_eq!(version_of(digits), expected);
        assert_eq!(version_of(&format!("skillver_{digits}")), expected);
        assert_eq!((version_of("skillver_1"), version_of("1")), (None, None));
    }
}
