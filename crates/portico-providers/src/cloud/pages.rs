//! Lists that come in pages.

use super::error::{CallError, Problem};

/// More than any account has; a list that does not end is a mistake of the server.
const MOST: usize = 1000;

#[derive(Clone, Debug)]
pub(crate) struct Page<T, N = String> {
    pub items: Vec<T>,
    /// What the next page is asked for with; `None` after the last.
    pub next: Option<N>,
}

/// All items of all pages.
pub(crate) async fn all_pages<T, N, F>(
    mut page: impl FnMut(Option<N>) -> F,
) -> Result<Vec<T>, CallError>
where
    F: Future<Output = Result<Page<T, N>, CallError>>,
{
    let (mut items, mut next) = (Vec::new(), None);
    for _ in 0..MOST {
        let page = page(next).await?;
        items.extend(page.items);
        match page.next {
            Some(token) => next = Some(token),
            None => return Ok(items),
        }
    }
    Err(CallError::new(
        "list",
        Problem::Request(format!("the list has no end after {MOST} pages")),
    ))
}
