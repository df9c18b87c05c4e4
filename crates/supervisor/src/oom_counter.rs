//! How many processes the kernel has killed in our control group for want of memory. A
//! SIGKILL alone does not tell who sent it; this does.
//!
//! Version 2 counts in `memory.events`, version 1 in `memory.oom_control`, both as a line
//! `oom_kill NUMBER` (Linux, `admin-guide/cgroup-v2` and `admin-guide/cgroup-v1/memory`).

use std::path::{Path, PathBuf};

/// Where control groups are mounted, as every distribution has it.
const MOUNT: &str = "/sys/fs/cgroup";

/// The file that counts.
#[derive(Debug)]
pub(crate) struct OomCounter {
    file: Option<PathBuf>,
}

impl OomCounter {
    /// Looks for the counter of this process's group. Without one, no kill is ever seen as
    /// the kernel's.
    pub(crate) fn find() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let file = candidates(&groups, Path::new(MOUNT))
            .into_iter()
            .find(|file| count_in(file).is_some());
        if file.is_none() {
            tracing::debug!("no counter of kills for want of memory");
        }
        Self { file }
    }

    /// The count so far.
    pub(crate) fn count(&self) -> Option<u64> {
        count_in(self.file.as_deref()?)
    }
}

fn count_in(file: &Path) -> Option<u64> {
    parse_count(&std::fs::read_to_string(file).ok()?)
}

/// The number in the line `oom_kill NUMBER`.
fn parse_count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let number = line.strip_prefix("oom_kill ")?;
        number.trim().parse().ok()
    })
}

/// Files that may hold the counter, by `/proc/self/cgroup`, the best first. Within a
/// container the paths may be those of the host, while the mount shows the group itself.
fn candidates(groups: &str, mount: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|name| name == "memory") {
            let root = mount.join("memory");
            files.push(root.join(path).join("memory.oom_control"));
            files.push(root.join("memory.oom_control"));
        } else if controllers.is_empty() {
            files.push(mount.join(path).join("memory.events"));
            files.push(mount.join("memory.events"));
        }
    }
    files
}

#[cfg(test)]
mod tests;
