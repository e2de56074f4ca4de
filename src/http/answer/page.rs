//! Lists in pages. A list is sorted by a key, and the key of the last element sent is where the next page begins.

use serde::Serialize;

use crate::http::answer::problem::{Code, Problem};

/// One page of a list.
pub(in crate::http) struct Page<T> {
    /// Its elements, in the order of the list.
    pub(in crate::http) elements: Vec<T>,
    /// The fields beside them.
    pub(in crate::http) beside: Beside,
}

/// Where the next page begins; absent when the sender asked for no pages.
#[derive(Serialize)]
pub(in crate::http) struct Beside {
    /// Send it as `cursor` to go on; null at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Option<String>>,
}

impl Beside {
    /// Where the next page begins, if any pages were asked for, and if there is one.
    pub(in crate::http) fn new(next: Option<Option<String>>) -> Self {
        Self { next }
    }
}

/// How many elements a page has at most: `limit`, and never more than `most`.
///
/// # Errors
/// `invalid` for a limit of 0.
pub(in crate::http) fn span(limit: Option<usize>, most: usize) -> Result<usize, Problem> {
    match limit {
        Some(0) => Err(Problem::invalid("`limit` is 1 or more")),
        None => Ok(most),
        Some(limit) => Ok(limit.min(most)),
    }
}

/// Cuts one page out of `elements`, which are sorted by `key`.
///
/// Without `limit` and `cursor` the page is the whole list, which may have `most` elements.
///
/// # Errors
/// `invalid` for a limit of 0; `too_large` for a whole list beyond `most`.
pub(in crate::http) fn cut<T>(
    mut elements: Vec<T>,
    key: impl Fn(&T) -> &str,
    limit: Option<usize>,
    cursor: Option<&str>,
    most: usize,
) -> Result<Page<T>, Problem> {
    let span = span(limit, most)?;
    if limit.is_none() && cursor.is_none() {
        if elements.len() > most {
            let message = format!("the list has more than {most} elements: send `limit`");
            return Err(Problem::new(Code::TooLarge, message).with("limit_entries", most));
        }
        return Ok(Page { elements, beside: Beside { next: None } });
    }
    if let Some(cursor) = cursor {
        let seen = elements.partition_point(|element| key(element) <= cursor);
        elements.drain(..seen);
    }
    let is_last = elements.len() <= span;
    elements.truncate(span);
    let next = if is_last { None } else { elements.last().map(|element| key(element).to_owned()) };
    Ok(Page { elements, beside: Beside { next: Some(next) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_list_whatever_is_removed_in_between() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let page = |names: &[&str], cursor| {
            let page = cut(list(names), String::as_str, Some(2), cursor, 100).unwrap();
            (page.elements, page.beside.next.unwrap())
        };
        assert_eq!(page(&["a", "b", "中"], None), (list(&["a", "b"]), Some("b".to_owned())));
        assert_eq!(page(&["a", "b", "中"], Some("b")), (list(&["中"]), None));
        assert_eq!(page(&["a", "中"], Some("b")), (list(&["中"]), None));
        assert_eq!(page(&["a", "b"], None), (list(&["a", "b"]), None));
        let all = list(&["a", "b", "c"]);
        assert!(cut(all.clone(), String::as_str, None, None, 2).is_err());
        let rest = cut(all.clone(), String::as_str, None, Some("a"), 9).unwrap();
        assert_eq!((rest.elements, rest.beside.next), (list(&["b", "c"]), Some(None)));
        assert!(cut(all, String::as_str, Some(0), None, 9).is_err());
    }
}
