//! How errors are told to people: what happened, and below it each cause, once.

use std::error::Error;

/// The text of an error and those of its causes: `cannot reach the API server: connection refused`.
///
/// The errors of Portico have their cause in `source()` and not in their text. Those of libraries
/// may have it in both: a cause that has been said already is left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("cannot read the list")]
        Quiet(#[source] io::Error),
        #[error("cannot read the list: {0}")]
        Loud(#[source] io::Error),
    }

    #[test]
    fn every_cause_is_told_once() {
        let cause = || io::Error::other("the disk is gone");
        let told = "cannot read the list: the disk is gone";
        assert_eq!(chain(&Outer::Quiet(cause())), told);
        assert_eq!(chain(&Outer::Loud(cause())), told);
    }
}
