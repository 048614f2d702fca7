//! The name that was probably meant by one that does not exist.

/// How similar two names have to be, from 0 to 1.
const SIMILAR: f64 = 0.75;
/// A longer name is no typing error, and would be slow to compare.
const MAX_NAME: usize = 64;

/// The known name that is most similar to an unknown one.
pub(crate) fn similar_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let name = name.to_lowercase();
    known
        .map(|candidate| (strsim::jaro_winkler(&name, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognized_and_another_word_is_not() {
        let known = ["echo", "travel_agent", "writer"];
        let check = |name: &str, meant: Option<&str>| {
            assert_eq!(similar_name(name, known.into_iter()), meant, "{name}");
        };
        check("wrtier", Some("writer"));
        check("Writer", Some("writer"));
        check("travel-agent", Some("travel_agent"));
        check("billing", None);
        check(&"writer".repeat(20), None);
    }
}
