//! Where checkpoints are kept, as users write it.

use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// The folder that `given` names: a path, or `file:` and an absolute one.
pub(crate) fn folder(given: &str) -> Result<PathBuf, StoreError> {
    let refuse = |why: String| Err(StoreError::Url { url: given.to_owned(), why });
    let path = match given.split_once(':') {
        Some(("file", rest)) => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if !path.starts_with('/') {
                return refuse("after file: comes an absolute path, as in file:///data/checkpoints".into());
            }
            path
        }
        Some((scheme @ ("s3" | "gs" | "az" | "abfs" | "http" | "https" | "hdfs"), _)) => {
            return refuse(format!("{scheme}: is not supported yet, only folders: file:///data/checkpoints"));
        }
        Some((scheme, rest)) if rest.starts_with("//") => {
            return refuse(format!("the scheme {scheme}: is unknown; write file:///data/checkpoints"));
        }
        _ => given,
    };
    if path.is_empty() {
        return refuse("it names no folder".into());
    }
    std::path::absolute(Path::new(path)).or_else(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_path_or_a_url_of_a_file() {
        for given in ["file:///data/c", "file:/data/c", "/data/c", "/data/./c"] {
            assert_eq!(folder(given), Ok(PathBuf::from("/data/c")), "{given}");
        }
        let relative = folder("a:b").expect("a name with a colon");
        assert!(relative.is_absolute() && relative.ends_with("a:b"));
    }

    #[test]
    fn other_schemes_are_refused_by_name() {
        for (given, culprit) in [
            ("s3://bucket/c", "s3: is not supported yet"),
            ("gs://bucket/c", "gs: is not supported yet"),
            ("ftp://host/c", "the scheme ftp: is unknown"),
            ("file://host/c/d", "absolute path"),
            ("", "no folder"),
        ] {
            let error = folder(given).expect_err(given).to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }
}
