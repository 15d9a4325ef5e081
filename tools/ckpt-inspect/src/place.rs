//! `URL REF`, where URL may come from the environment.

use crate::failure::Failure;

/// The variable that names the repository.
pub(crate) const VARIABLE: &str = "EVERSTEP_REPOSITORY";

/// A repository and, where given, what follows it on the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) rest: Option<String>,
}

impl Place {
    /// Of `given`, one or two arguments of which the second must be there in the end.
    pub(crate) fn with_second(given: &[String], second: &str) -> Result<(String, String), Failure> {
        match (given, default_url()) {
            ([url, rest], _) => Ok((url.clone(), rest.clone())),
            ([rest], Some(url)) => Ok((url, rest.clone())),
            _ => Err(Failure::usage(&format!(
                "give URL and {second}, or set {VARIABLE} and give {second} alone"
            ))),
        }
    }

    /// Of `given`, two or three arguments of which the last two must be there in the end.
    pub(crate) fn with_two(given: &[String], names: &str) -> Result<(String, [String; 2]), Failure> {
        match (given, default_url()) {
            ([url, one, two], _) => Ok((url.clone(), [one.clone(), two.clone()])),
            ([one, two], Some(url)) => Ok((url, [one.clone(), two.clone()])),
            _ => Err(Failure::usage(&format!("give URL {names}, or set {VARIABLE} and give {names} alone"))),
        }
    }

    /// Of `given`, up to two arguments that may all be left out.
    pub(crate) fn optional(given: &[String]) -> Result<Self, Failure> {
        Self::optional_with(given, default_url())
    }

    fn optional_with(given: &[String], default: Option<String>) -> Result<Self, Failure> {
        match (given, default) {
            ([url, rest], _) => Ok(Self { url: url.clone(), rest: Some(rest.clone()) }),
            ([url], None) => Ok(Self { url: url.clone(), rest: None }),
            ([one], Some(url)) if !looks_like_url(one) => Ok(Self { url, rest: Some(one.clone()) }),
            ([url], Some(_)) => Ok(Self { url: url.clone(), rest: None }),
            (_, Some(url)) => Ok(Self { url, rest: None }),
            (_, None) => Err(Failure::usage(&format!("give URL, or set {VARIABLE}"))),
        }
    }
}

fn default_url() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}

/// No reference has a slash.
fn looks_like_url(text: &str) -> bool {
    text.contains('/') || text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(given: &[&str], default: Option<&str>) -> Result<(String, Option<String>), ()> {
        let given: Vec<String> = given.iter().map(|&s| s.to_owned()).collect();
        let found = Place::optional_with(&given, default.map(str::to_owned)).map_err(|_| ())?;
        Ok((found.url, found.rest))
    }

    #[test]
    fn one_argument_is_a_reference_only_when_the_variable_names_the_repository() {
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(place(&["gpt"], Some("s3://b/p")), Ok(("s3://b/p".to_owned(), some("gpt"))));
        assert_eq!(place(&["gpt"], None), Ok(("gpt".to_owned(), None)));
        assert_eq!(place(&["./gpt"], Some("s3://b/p")), Ok(("./gpt".to_owned(), None)));
        assert_eq!(place(&["s3://x", "gpt"], Some("s3://b/p")), Ok(("s3://x".to_owned(), some("gpt"))));
        assert_eq!(place(&[], Some("s3://b/p")), Ok(("s3://b/p".to_owned(), None)));
        assert_eq!(place(&[], None), Err(()));
    }
}
