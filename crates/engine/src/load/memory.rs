//! How much memory there is to have.

use std::fs::read_to_string;

/// Where neither the system nor a container says anything.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Bytes that can be taken without pushing others out: what the system has available, and
/// what the container's limit leaves.
pub(super) fn available_bytes() -> u64 {
    let system = read_to_string("/proc/meminfo").ok();
    let system = system.as_deref().and_then(parse_available);
    let limit = read_number("/sys/fs/cgroup/memory.max");
    let used = read_number("/sys/fs/cgroup/memory.current").unwrap_or(0);
    let container = limit.map(|limit| limit.saturating_sub(used));
    let known = system.into_iter().chain(container).min();
    known.unwrap_or(UNKNOWN_BYTES)
}

/// A file of one number; `max` stands for none.
fn read_number(path: &str) -> Option<u64> {
    read_to_string(path).ok()?.trim().parse().ok()
}

/// The line `MemAvailable:  123 kB`.
fn parse_available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let value = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read_in_bytes() {
        let meminfo = "MemTotal:       100 kB\nMemAvailable:     12 kB\n";
        assert_eq!(parse_available(meminfo), Some(12 * 1024));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
        assert!(available_bytes() > 0);
    }
}
