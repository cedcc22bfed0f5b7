//! The GPU adapter: looked for among Vulkan's drivers, without loading any.

use std::{fs, path::Path};

use super::Check;

/// Where Vulkan's loader looks for drivers.
const DRIVER_FOLDERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

pub fn checks() -> Vec<Check> {
    let drivers: Vec<String> = DRIVER_FOLDERS.iter().flat_map(|folder| names(Path::new(folder))).collect();
    let device = ["/dev/dri", "/dev/nvidia0", "/dev/dxg"].iter().any(|path| Path::new(path).exists());
    vec![judge(&drivers, device)]
}

fn judge(drivers: &[String], device: bool) -> Check {
    let software = drivers.iter().any(|name| is_software(name));
    let hardware = device && drivers.iter().any(|name| !is_software(name));
    match (hardware, software) {
        (true, _) => Check::ok("gpu adapter", format!("hardware: {}", drivers.join(", "))),
        (false, true) => Check::ok("gpu adapter", "software only (Mesa lavapipe): correct, slow"),
        (false, false) => Check::warn(
            "gpu adapter",
            "none: gpu functions will not run here",
            "for a software adapter: apt install mesa-vulkan-drivers",
        ),
    }
}

fn is_software(name: &str) -> bool {
    name.starts_with("lvp_")
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    entries.filter_map(|entry| name(entry.ok()?)).filter(|name| name.ends_with(".json")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_driver_without_a_device_is_no_adapter() {
        let drivers = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(judge(&[], true).status, Status::Warn);
        assert_eq!(judge(&drivers(&["radeon_icd.json"]), false).status, Status::Warn);
        assert!(
            judge(&drivers(&["radeon_icd.json", "lvp_icd.x86_64.json"]), false).found.starts_with("software")
        );
        assert!(judge(&drivers(&["nvidia_icd.json"]), true).found.starts_with("hardware"));
    }
}
