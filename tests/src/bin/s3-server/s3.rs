//! The operations of S3 that a store needs, over [`Storage`]. What is not here answers `NotImplemented`.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    ops::Range as Bytes64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, dto::*, s3_error};

use crate::storage::{Condition, Object, Refused, Storage, Unfinished};

/// Bytes of an object that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Keys on one page of a listing, as in S3.
const PAGE_KEYS: i32 = 1000;

/// The S3 of one server.
pub struct Server {
    storage: Arc<Storage>,
    uploads: Mutex<HashMap<String, Upload>>,
    lifecycles: Mutex<HashMap<String, LifecycleRules>>,
}

struct Upload {
    key: String,
    parts: BTreeMap<i32, Unfinished>,
}

impl Server {
    pub fn new(storage: Arc<Storage>) -> Self {
        Self { storage, uploads: Mutex::default(), lifecycles: Mutex::default() }
    }

    fn object(&self, bucket: &str, key: &str) -> S3Result<Arc<Object>> {
        let found = self.storage.with(bucket, |objects| objects.get(key).cloned());
        found.ok_or_else(|| s3_error!(NoSuchBucket))?.ok_or_else(|| s3_error!(NoSuchKey))
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.storage.with(bucket, |_| ()).ok_or_else(|| s3_error!(NoSuchBucket))
    }

    fn uploads(&self) -> MutexGuard<'_, HashMap<String, Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: io::Error) -> S3Error {
    S3Error::internal_error(error)
}

fn refused(refused: Refused) -> S3Error {
    match refused {
        Refused::NoBucket => s3_error!(NoSuchBucket),
        Refused::Condition => s3_error!(PreconditionFailed),
        Refused::Io(error) => failed(error),
    }
}

fn condition(if_none_match: Option<&ETagCondition>, if_match: Option<&ETagCondition>) -> Condition {
    match (if_none_match, if_match.and_then(ETagCondition::as_etag)) {
        (Some(_), _) => Condition::Absent,
        (None, Some(etag)) => Condition::Etag(etag.value().to_owned()),
        (None, None) => Condition::Always,
    }
}

/// The bytes that are asked for, cut at the object's end.
fn range(asked: Option<Range>, bytes: u64) -> S3Result<Bytes64<u64>> {
    match asked {
        None => Ok(0..bytes),
        Some(Range::Int { first, last }) if first < bytes => {
            Ok(first..last.map_or(bytes, |last| bytes.min(last.saturating_add(1))))
        }
        Some(Range::Suffix { length }) if length > 0 && bytes > 0 => Ok(bytes.saturating_sub(length)..bytes),
        Some(_) => Err(s3_error!(InvalidRange)),
    }
}

/// An object's bytes in pieces.
fn pieces(object: Arc<Object>, range: Bytes64<u64>) -> impl futures::Stream<Item = io::Result<Bytes>> {
    futures::stream::try_unfold(range, move |left| {
        let object = object.clone();
        async move {
            if left.is_empty() {
                return Ok(None);
            }
            let (at, length) = (left.start, PIECE_BYTES.min(left.end - left.start) as usize);
            let read = tokio::task::spawn_blocking(move || object.read(at, length));
            let piece = read.await.unwrap_or_else(|e| Err(io::Error::other(e)))?;
            let next = at + piece.len() as u64..left.end;
            Ok(Some((piece, next)))
        }
    })
}

#[async_trait::async_trait]
impl S3 for Server {
    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.check_bucket(&req.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_bucket(
        &self,
        req: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        match self.storage.create_bucket(&req.input.bucket).map_err(failed)? {
            true => Ok(S3Response::new(CreateBucketOutput::default())),
            false => Err(s3_error!(BucketAlreadyOwnedByYou)),
        }
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let PutObjectInput { bucket, key, body, if_none_match, if_match, .. } = req.input;
        self.check_bucket(&bucket)?;
        let body = body.ok_or_else(|| s3_error!(IncompleteBody))?;
        let received = self.storage.receive(&bucket, &key, body).await.map_err(failed)?;
        let condition = condition(if_none_match.as_ref(), if_match.as_ref());
        if let Err(e) = self.storage.commit(&bucket, &key, &received, &condition) {
            self.storage.drop_unfinished(&received);
            return Err(refused(e));
        }
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(received.etag)),
            ..PutObjectOutput::default()
        }))
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let object = self.object(&req.input.bucket, &req.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(object.bytes as i64),
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { bucket, key, range: asked, if_match, .. } = req.input;
        let object = self.object(&bucket, &key)?;
        if if_match.as_ref().and_then(ETagCondition::as_etag).is_some_and(|etag| etag.value() != object.etag)
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let range = range(asked, object.bytes)?;
        let content_range =
            asked.map(|_| format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), object.bytes));
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some((range.end - range.start) as i64),
            content_range,
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            body: Some(StreamingBlob::wrap(pieces(object, range))),
            ..GetObjectOutput::default()
        }))
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.storage.delete(&req.input.bucket, &req.input.key).map_err(refused)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let mut deleted = Vec::new();
        for object in req.input.delete.objects {
            self.storage.delete(&req.input.bucket, &object.key).map_err(refused)?;
            deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() });
        }
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), ..DeleteObjectsOutput::default() }))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let ListObjectsV2Input {
            bucket, prefix, start_after, continuation_token, delimiter, max_keys, ..
        } = req.input;
        let prefix = prefix.unwrap_or_default();
        let after = continuation_token.max(start_after).unwrap_or_default();
        let page = max_keys.unwrap_or(PAGE_KEYS).clamp(0, PAGE_KEYS) as usize;
        let listed = self.storage.with(&bucket, |objects| {
            let from = prefix.clone().max(after.clone());
            let found =
                objects.range(from..).take_while(|(key, _)| key.starts_with(&prefix) || **key < prefix);
            let found = found.filter(|(key, _)| **key > after && key.starts_with(&prefix));
            let mut listed: Vec<(String, Option<_>)> = Vec::new();
            for (key, object) in found {
                // A page that ended with a folder goes on after it.
                match folder(key, &prefix, delimiter.as_deref()) {
                    Some(folder)
                        if folder == after || listed.last().is_some_and(|(last, _)| last == folder) => {}
                    Some(folder) => listed.push((folder.to_owned(), None)),
                    None => listed.push((key.clone(), Some(object.clone()))),
                }
                // One more than asked for tells whether there is another page.
                if listed.len() > page {
                    break;
                }
            }
            listed
        });
        let mut listed = listed.ok_or_else(|| s3_error!(NoSuchBucket))?;
        let more = listed.len() > page;
        listed.truncate(page);
        let next = listed.last().filter(|_| more).map(|(key, _)| key.clone());
        let key_count = Some(listed.len() as i32);
        let (folders, listed): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|(_, object)| object.is_none());
        let folders = folders.into_iter().map(|(prefix, _)| CommonPrefix { prefix: Some(prefix) }).collect();
        let listed = listed.into_iter().filter_map(|(key, object)| Some((key, object?)));
        let contents = listed.map(|(key, object)| s3s::dto::Object {
            key: Some(key),
            size: Some(object.bytes as i64),
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(object.modified.into()),
            ..s3s::dto::Object::default()
        });
        let contents: Vec<_> = contents.collect();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(bucket),
            prefix: Some(prefix),
            key_count,
            common_prefixes: Some(folders),
            is_truncated: Some(more),
            next_continuation_token: next,
            contents: Some(contents),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let CreateMultipartUploadInput { bucket, key, .. } = req.input;
        self.check_bucket(&bucket)?;
        let id = uuid::Uuid::now_v7().to_string();
        self.uploads().insert(id.clone(), Upload { key: key.clone(), parts: BTreeMap::new() });
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let UploadPartInput { bucket, key, body, upload_id, part_number, .. } = req.input;
        let body = body.ok_or_else(|| s3_error!(IncompleteBody))?;
        let part = self.storage.receive(&bucket, &key, body).await.map_err(failed)?;
        let etag = part.etag.clone();
        let replaced = match self.uploads().get_mut(&upload_id) {
            Some(upload) if upload.key == key => upload.parts.insert(part_number, part),
            _ => {
                self.storage.drop_unfinished(&part);
                return Err(s3_error!(NoSuchUpload));
            }
        };
        if let Some(before) = replaced {
            self.storage.drop_unfinished(&before);
        }
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(etag)),
            ..UploadPartOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let CompleteMultipartUploadInput { bucket, key, upload_id, multipart_upload, if_none_match, .. } =
            req.input;
        let named = multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let upload = self.uploads().remove(&upload_id).ok_or_else(|| s3_error!(NoSuchUpload))?;
        let mut parts: Vec<&Unfinished> = Vec::new();
        for part in named {
            let found = part.part_number.and_then(|number| upload.parts.get(&number));
            let same =
                found.filter(|found| part.e_tag.as_ref().is_none_or(|etag| etag.value() == found.etag));
            let found = same.ok_or_else(|| s3_error!(InvalidPart))?;
            parts.push(found);
        }
        let received = self.storage.join(&bucket, parts.into_iter()).map_err(failed)?;
        // Those that were not named; the others are no more.
        upload.parts.values().for_each(|part| self.storage.drop_unfinished(part));
        let condition = condition(if_none_match.as_ref(), None);
        self.storage.commit(&bucket, &key, &received, &condition).map_err(refused)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            e_tag: Some(ETag::Strong(received.etag)),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let upload = self.uploads().remove(&req.input.upload_id).ok_or_else(|| s3_error!(NoSuchUpload))?;
        upload.parts.values().for_each(|part| self.storage.drop_unfinished(part));
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        req: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let rules = self.lifecycles.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = rules.get(&req.input.bucket).cloned();
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
            rules: Some(rules.ok_or_else(|| s3_error!(NoSuchLifecycleConfiguration))?),
            ..GetBucketLifecycleConfigurationOutput::default()
        }))
    }

    /// Rules are kept and given back; nothing here is old enough for them to apply.
    async fn put_bucket_lifecycle_configuration(
        &self,
        req: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        self.check_bucket(&req.input.bucket)?;
        let rules = req.input.lifecycle_configuration.map(|configuration| configuration.rules);
        let mut all = self.lifecycles.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(req.input.bucket, rules.unwrap_or_default());
        Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
    }
}

/// The folder below `prefix` that a key is in, as a listing by `delimiter` shows it.
fn folder<'a>(key: &'a str, prefix: &str, delimiter: Option<&str>) -> Option<&'a str> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let at = key[prefix.len()..].find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}
