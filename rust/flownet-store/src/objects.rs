//! Object stores: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder`.
//!
//! Credentials, region and endpoint are those of the environment, by the names that the crate `object_store` knows:
//! `AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, `GOOGLE_APPLICATION_CREDENTIALS`,
//! `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY` and others. Every process of the job needs them.
//!
//! What the store does not answer, or refuses for being busy, is asked again for a while.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore, RetryConfig};

use crate::url::Bucket;

/// How long a request is tried; a checkpoint that it was for has failed then.
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
