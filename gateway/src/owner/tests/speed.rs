//! How fast the loop is. Figures are printed, not asserted beyond what would be a defect on any machine; run with
//! `cargo nextest run --release -p fanfold-gateway --run-ignored all owner::tests::speed --no-capture`.

use std::time::Instant;

use fanfold_store::Store;

use super::{
    bed::{Bed, job},
    driver, function, version,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn jobs_a_second() {
    for store in ["memory", "directory"] {
        let dir = tempfile::tempdir().unwrap();
        let backend = match store {
            "memory" => Store::in_memory(),
            _ => Store::open_dir(dir.path()).await.unwrap(),
        };
        let f = version("f", false, |manifest| manifest.concurrency.max = 64);
        let bed = Bed::over(backend, &[&f]).await;
        let (jobs, callers) = (50_000, 64);
        let since = Instant::now();
        let calls = (0..callers).map(|_| {
            let (owner, f) = (bed.owner.clone(), f.clone());
            tokio::spawn(async move {
                for _ in 0..jobs / callers {
                    owner.accept(job(&f, "noop", "")).await.unwrap();
                }
            })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            call.await.unwrap();
        }
        let accepted = since.elapsed();
        while bed.owner.metrics().await.unwrap().kept < jobs / callers * callers {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let ended = since.elapsed();
        println!(
            "{store}: {jobs} jobs accepted at {:.0}/s by {callers} callers, ended at {:.0}/s",
            jobs as f64 / accepted.as_secs_f64(),
            jobs as f64 / ended.as_secs_f64()
        );
        bed.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn child_tasks_a_second() {
    let f = driver("f");
    let bed = Bed::new(&[&f]).await;
    for recorded in [false, true, false, true] {
        let tasks = 90_000;
        let since = Instant::now();
        bed.owner.run(job(&f, "fan", &tasks.to_string()), recorded).await.unwrap();
        let rate = tasks as f64 / since.elapsed().as_secs_f64();
        println!("recorded {recorded}: {tasks} no-op children of one driver at {rate:.0}/s");
    }
    let since = Instant::now();
    let f = function("g");
    for _ in 0..2_000 {
        bed.owner.run(job(&f, "noop", ""), false).await.unwrap();
    }
    println!("a lone synchronous job: {:.0} us", since.elapsed().as_secs_f64() * 1e6 / 2_000.0);
}
