//! Opens remote object stores: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder`.
//!
//! Credentials, region and endpoint come from environment variables, by the names of the crate `object_store`:
//! `AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, `GOOGLE_APPLICATION_CREDENTIALS`,
//! `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY` and others. Every process of the job needs them.
//!
//! Requests that the store does not answer, or refuses because it is busy, are retried for a while.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore, RetryConfig};

use crate::url::Bucket;

/// Time limit for the retries of a request. Its checkpoint fails afterwards.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn open(bucket: &Bucket) -> Result<Arc<dyn ObjectStore>, Error> {
    let Bucket { scheme, name, folder } = bucket;
    let retry = RetryConfig { retry_timeout: PATIENCE, ..RetryConfig::default() };
    Ok(match &**scheme {
        "gs" => {
            let store = GoogleCloudStorageBuilder::from_env().with_bucket_name(name).with_retry(retry);
            Arc::new(PrefixStore::new(store.build()?, &**folder))
        }
        "az" => {
            let store = MicrosoftAzureBuilder::from_env().with_container_name(name).with_retry(retry);
            Arc::new(PrefixStore::new(store.build()?, &**folder))
        }
        _ => {
            let store = AmazonS3Builder::from_env().with_bucket_name(name).with_retry(retry);
            Arc::new(PrefixStore::new(store.build()?, &**folder))
        }
    })
}
