//! Parses checkpoint URLs of users.

use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// Location of a checkpoint storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorageLocation {
    Folder(PathBuf),
    Objects(Bucket),
}

/// Folder of an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// `s3`, `gs` or `az`.
    pub(crate) scheme: String,
    pub(crate) name: String,
    /// Path without leading or trailing slashes; empty for the whole bucket.
    pub(crate) folder: String,
}

/// Parses a path, `file:` with an absolute path, or an object store with a bucket and a folder.
pub(crate) fn place(given: &str) -> Result<StorageLocation, StoreError> {
    let refuse = |why: String| Err(StoreError::Url { url: given.to_owned(), why });
    let path = match given.split_once(':') {
        Some(("file", rest)) => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if !path.starts_with('/') {
                return refuse("after file: comes an absolute path, as in file:///data/checkpoints".into());
            }
            path
        }
        Some((scheme @ ("s3" | "gs" | "az"), rest)) => {
            let path = rest.strip_prefix("//").unwrap_or_default();
            let (name, folder) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return refuse(format!(
                    "after {scheme}: come a bucket and a folder, as in {scheme}://bucket/checkpoints"
                ));
            }
            let (scheme, name) = (scheme.to_owned(), name.to_owned());
            return Ok(StorageLocation::Objects(Bucket { scheme, name, folder: folder.trim_matches('/').to_owned() }));
        }
        Some((scheme @ ("abfs" | "http" | "https" | "hdfs"), _)) => {
            return refuse(format!("{scheme}: is not supported, only folders, s3:, gs: and az:"));
        }
        Some((scheme, rest)) if rest.starts_with("//") => {
            return refuse(format!("the scheme {scheme}: is unknown; write file:///data/checkpoints"));
        }
        _ => given,
    };
    if path.is_empty() {
        return refuse("it names no folder".into());
    }
    std::path::absolute(Path::new(path)).map(StorageLocation::Folder).or_else(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_path_or_a_url_of_a_file() {
        for given in ["file:///data/c", "file:/data/c", "/data/c", "/data/./c"] {
            assert_eq!(place(given), Ok(StorageLocation::Folder(PathBuf::from("/data/c"))), "{given}");
        }
        let Ok(StorageLocation::Folder(relative)) = place("a:b") else { panic!("a name with a colon") };
        assert!(relative.is_absolute() && relative.ends_with("a:b"));
    }

    #[test]
    fn an_object_store_has_a_bucket_and_a_folder() {
        let bucket = |scheme: &str, name: &str, folder: &str| {
            Ok(StorageLocation::Objects(Bucket { scheme: scheme.into(), name: name.into(), folder: folder.into() }))
        };
        assert_eq!(place("s3://bucket/a/b/"), bucket("s3", "bucket", "a/b"));
        assert_eq!(place("gs://bucket"), bucket("gs", "bucket", ""));
        assert_eq!(place("az://container/"), bucket("az", "container", ""));
    }

    #[test]
    fn other_schemes_are_refused_by_name() {
        for (given, culprit) in [
            ("s3:bucket/c", "come a bucket and a folder, as in s3://bucket/checkpoints"),
            ("gs:///c", "come a bucket and a folder"),
            ("hdfs://host/c", "hdfs: is not supported"),
            ("ftp://host/c", "the scheme ftp: is unknown"),
            ("file://host/c/d", "absolute path"),
            ("", "no folder"),
        ] {
            let error = place(given).expect_err(given).to_string();
            assert!(error.contains(culprit), "{error}");
        }
    }
}
