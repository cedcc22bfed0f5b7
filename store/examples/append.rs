//! How fast the journal acknowledges: `cargo run --release -p fanfold-store --example append [DIR]`.
//!
//! Prints JSON lines for each number of concurrent appenders: appends per second, latencies, puts per append, and how
//! long it takes to read them all back. Beside them stands the machine's own limit: one file of one segment's size written, fsynced and linked at a time.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fanfold_protocol::{
    Digest, Error, JobId,
    record::{Accepted, Input, Record},
};
use fanfold_store::{Journal, Store};
use futures::future::join_all;

/// How long each measurement runs.
const TIME: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let temporary = tempfile::tempdir().map_err(|e| Error::internal(e.to_string()))?;
    let dir = std::env::args().nth(1).map_or(temporary.path().to_owned(), Into::into).join("append");
    println!(
        "{{\"bench\":\"fsync\",\"us\":{:.0}}}",
        fsync_us(&dir).map_err(|e| Error::internal(e.to_string()))?
    );
    for (name, store) in [("directory", Store::open_dir(&dir).await?), ("memory", Store::in_memory())] {
        for appenders in [1, 16, 256, 2048] {
            measure(name, &store, appenders).await?;
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

async fn measure(name: &str, store: &Store, appenders: usize) -> Result<(), Error> {
    let shard = format!("bench-{appenders}");
    let (journal, _) = Journal::open(store, &shard).await?;
    let (puts, started) = (store.requests().put, Instant::now());
    let append = |journal: Journal| async move {
        let mut latencies = Vec::new();
        while started.elapsed() < TIME {
            let asked = Instant::now();
            journal.append(accepted()).await?;
            latencies.push(asked.elapsed());
        }
        Ok::<_, Error>(latencies)
    };
    let mut latencies = Vec::new();
    for appender in join_all((0..appenders).map(|_| append(journal.clone()))).await {
        latencies.extend(appender?);
    }
    let seconds = started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let us = |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_micros();
    println!(
        "{{\"bench\":\"append\",\"store\":\"{name}\",\"appenders\":{appenders},\"per_second\":{:.0},\"p50_us\":{},\
         \"p99_us\":{},\"puts_per_append\":{:.4}}}",
        latencies.len() as f64 / seconds,
        us(0.5),
        us(0.99),
        (store.requests().put - puts) as f64 / latencies.len() as f64,
    );
    let bytes = journal.bytes_since_checkpoint();
    journal.close().await?;
    let started = Instant::now();
    let (journal, records) = Journal::open(store, &shard).await?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{{\"bench\":\"replay\",\"store\":\"{name}\",\"records\":{},\"bytes\":{bytes},\"seconds\":{seconds:.3}}}",
        records.len(),
    );
    journal.close().await
}

/// An accepted invocation with a kilobyte of input.
fn accepted() -> Record {
    let digest = Digest::of(b"version");
    Record::Accepted(Box::new(Accepted {
        job: JobId(uuid::Uuid::now_v7()),
        name: "echo".parse().unwrap_or_else(|e| unreachable!("{e}")),
        version: digest,
        entry: String::new(),
        input: Input::Inline { body: bytes::Bytes::from(vec![7; 1024]).into(), content_type: String::new() },
        idempotency: None,
        traceparent: None,
        at_ms: 0,
        retried_from: None,
        batch: false,
        fired: None,
    }))
}

/// Microseconds of one durable file with nothing else going on.
fn fsync_us(dir: &Path) -> std::io::Result<f64> {
    const FILES: u32 = 50;
    std::fs::create_dir_all(dir)?;
    let bytes = Arc::new(vec![7; 64 << 10]);
    let started = Instant::now();
    for n in 0..FILES {
        let (temporary, file) = (dir.join("temporary"), dir.join(n.to_string()));
        std::fs::write(&temporary, &*bytes)?;
        std::fs::File::open(&temporary)?.sync_all()?;
        std::fs::rename(&temporary, &file)?;
        std::fs::File::open(dir)?.sync_all()?;
    }
    let us = started.elapsed().as_secs_f64() * 1e6 / f64::from(FILES);
    for n in 0..FILES {
        std::fs::remove_file(dir.join(n.to_string()))?;
    }
    Ok(us)
}
