//! The gpu adapter: asked for in the process that functions would get, since drivers are not always what their files promise.

use fanfold_executor::gpu::{Adapter, Gpu, Settings};
use fanfold_protocol::Error;

use super::Check;
use crate::up;

pub fn checks() -> Vec<Check> {
    vec![judge(find())]
}

fn find() -> Result<Adapter, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::internal(format!("cannot start a thread: {e}")))?;
    runtime.block_on(async {
        let gpu = Gpu::new(Settings::new(up::gpu_worker(), 1));
        let found = gpu.adapter().await;
        gpu.stop().await;
        found
    })
}

fn judge(found: Result<Adapter, Error>) -> Check {
    match found {
        Ok(Adapter { name, driver, software, .. }) => {
            let kind = if software { "in software: correct, slow" } else { "hardware" };
            Check::ok("gpu adapter", format!("{name}, {driver}; {kind}"))
        }
        Err(error) => Check::warn(
            "gpu adapter",
            format!("none: {error}"),
            "for one in software (Debian and Ubuntu): apt install libvulkan1 mesa-vulkan-drivers",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_driver_that_does_not_start_is_no_adapter() {
        let check = judge(Err(Error::internal("the driver died")));
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.contains("the driver died"));
    }
}
