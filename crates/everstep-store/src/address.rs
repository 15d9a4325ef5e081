//! Where a repository is. An address is taken as the text it is: nothing is URL-decoded, so `%20`, `+`, `#` and `?` are
//! themselves, and another client sees in its listing exactly what was typed here.

use std::fmt;
use std::path::PathBuf;

use everstep_format::key::{Key, Prefix};

use crate::cloud::{Cloud, CloudLocation};
use crate::{StoreError, StoreErrorKind};

/// Bytes of a prefix: an S3 key has at most 1,024, our longest below a prefix needs under 200.
pub const ROOT_BYTES: usize = 800;

/// The place of a repository in its store: an empty text, or segments joined by `/` with no slash at either end. So
/// `exp`, `exp/` and `exp//` are one place, and none of `""` and `/` puts a slash before the keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root(String);

/// A parsed repository address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A directory.
    Local(PathBuf),
    /// This process's memory, by name.
    Memory(Root),
    /// A prefix in an S3 bucket.
    S3 {
        /// The bucket.
        bucket: String,
        /// The prefix.
        root: Root,
    },
    /// A prefix in a bucket of Google or in a container of Azure.
    Cloud(CloudLocation),
}

impl Root {
    /// Parses a prefix.
    ///
    /// # Errors
    /// What is wrong with it, in words: `.`, `..` or empty segments, control characters, too many bytes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim_matches('/');
        if trimmed.len() > ROOT_BYTES {
            return Err(format!("the prefix has {} bytes, at most {ROOT_BYTES} fit", trimmed.len()));
        }
        if trimmed.chars().any(char::is_control) {
            return Err("the prefix has a control character".to_owned());
        }
        if !trimmed.is_empty() {
            trimmed.split('/').try_for_each(acceptable_segment)?;
        }
        Ok(Self(trimmed.to_owned()))
    }

    /// The text, without a slash at either end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The raw key of `key` in the store.
    pub fn key(&self, key: &Key) -> String {
        self.below(key.as_str())
    }

    /// The raw prefix of `prefix` in the store: empty or ending with `/`.
    pub fn prefix(&self, prefix: &Prefix) -> String {
        self.below(prefix.as_str())
    }

    /// The part of a raw key below this root; `None` for a key that is not below it.
    pub fn strip<'a>(&self, raw: &'a str) -> Option<&'a str> {
        if self.0.is_empty() { Some(raw) } else { raw.strip_prefix(&self.0)?.strip_prefix('/') }
    }

    fn below(&self, name: &str) -> String {
        if self.0.is_empty() { name.to_owned() } else { format!("{}/{name}", self.0) }
    }
}

impl Address {
    /// Parses `file:///abs`, `file:relative`, a plain path, `memory://name`, `s3://bucket/prefix`, `gs://bucket/prefix`
    /// or `az://container/prefix`.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`], saying what is wrong.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = |why: String| StoreError::new(StoreErrorKind::Invalid, "open", hide_secret(text), why);
        let parsed = match scheme(text) {
            Some(("file", rest)) => file_url(rest),
            Some(("memory", rest)) => slashes("memory", rest).and_then(memory),
            Some(("s3", rest)) => slashes("s3", rest).and_then(s3),
            Some(("gs", rest)) => slashes("gs", rest).and_then(|rest| cloud(Cloud::Google, rest)),
            Some(("az", rest)) => slashes("az", rest).and_then(|rest| cloud(Cloud::Azure, rest)),
            Some((other, _)) => Err(format!(
                "unknown scheme {other:?}: use a path, file://, memory://, s3://bucket/prefix, gs://bucket/prefix or \
                 az://container/prefix"
            )),
            None => path(text),
        };
        parsed.map_err(invalid)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "file://{}", path.display()),
            Self::Memory(root) => write!(f, "memory://{}", root.as_str()),
            Self::S3 { bucket, root } => write!(f, "s3://{bucket}/{}", root.as_str()),
            Self::Cloud(location) => f.write_str(&location.url()),
        }
    }
}

/// The known scheme before the first `:`, or an unknown one before `://`; a path may have a `:` otherwise.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let known = ["file", "memory", "s3", "gs", "az"].contains(&scheme);
    let looks_like_one =
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (known || (looks_like_one && rest.starts_with("//"))).then_some((scheme, rest))
}

fn slashes<'a>(scheme: &str, rest: &'a str) -> Result<&'a str, String> {
    rest.strip_prefix("//").ok_or_else(|| format!("write {scheme}:// with two slashes"))
}

fn file_url(rest: &str) -> Result<Address, String> {
    match rest.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => path(absolute),
        Some(_) => {
            Err("file:// takes an absolute path, as in file:///data/ckpt; for a relative one write file:ckpt"
                .into())
        }
        None => path(rest),
    }
}

/// `.` segments are dropped, since people type `./ckpt`. `..` is refused: where it leads depends on links, and a later
/// change of one would move the repository.
fn path(text: &str) -> Result<Address, String> {
    if text.is_empty() {
        return Err("the address is empty".to_owned());
    }
    if text.contains('\0') {
        return Err("the path has a NUL byte".to_owned());
    }
    if text.split('/').any(|segment| segment == "..") {
        return Err("`..` is not accepted: write the path without it".to_owned());
    }
    let kept: PathBuf = text.split('/').filter(|segment| !segment.is_empty() && *segment != ".").collect();
    let path = match (text.starts_with('/'), kept.as_os_str().is_empty()) {
        (true, _) => PathBuf::from("/").join(kept),
        (false, true) => PathBuf::from("."),
        (false, false) => kept,
    };
    Ok(Address::Local(path))
}

fn memory(rest: &str) -> Result<Address, String> {
    Ok(Address::Memory(Root::parse(rest)?))
}

fn s3(rest: &str) -> Result<Address, String> {
    let (bucket, root) = bucket_and_root("s3", rest)?;
    Ok(Address::S3 { bucket, root })
}

fn cloud(cloud: Cloud, rest: &str) -> Result<Address, String> {
    let scheme = if cloud == Cloud::Google { "gs" } else { "az" };
    let (bucket, root) = bucket_and_root(scheme, rest)?;
    Ok(Address::Cloud(CloudLocation { cloud, bucket, root }))
}

fn bucket_and_root(scheme: &str, rest: &str) -> Result<(String, Root), String> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        return Err(
            "credentials do not belong into an address: use a profile or environment variables".to_owned()
        );
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if bucket.is_empty() || !bucket.chars().all(allowed) {
        return Err(format!("{bucket:?} is no bucket name: write {scheme}://bucket/prefix"));
    }
    Ok((bucket.to_owned(), Root::parse(prefix)?))
}

fn acceptable_segment(segment: &str) -> Result<(), String> {
    match segment {
        "" => Err("the prefix has an empty segment (`//`): remove one slash".to_owned()),
        "." | ".." => {
            Err(format!("`{segment}` is not accepted in a prefix: stores take it literally, tools do not"))
        }
        _ => Ok(()),
    }
}

/// Somebody may have typed `s3://key:secret@bucket`; errors end in logs.
fn hide_secret(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(start), Some(end)) if start < end => format!("{}://***{}", &text[..start], &text[end..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
