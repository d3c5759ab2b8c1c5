//! Memory that is still available to a process.

use std::fs::read_to_string;

/// Bytes of memory that this process can still allocate: the minimum of the machine's available memory and the
/// remaining address space (`ulimit -v`). `None` if the system reports neither.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let machine = kibibytes(&read("/proc/meminfo"), "MemAvailable:");
    let limit = address_limit(&read("/proc/self/limits"));
    let left = limit.map(|limit| {
        let taken = kibibytes(&read("/proc/self/status"), "VmSize:").unwrap_or(0);
        limit.saturating_sub(taken)
    });
    machine.into_iter().chain(left).min()
}

/// The number of a line such as `VmSize:     1234 kB`, in bytes.
fn kibibytes(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of a process's address space; `None` if it has none.
fn address_limit(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_system_are_read() {
        assert_eq!(kibibytes("VmPeak:  9 kB\nVmSize:\t    12 kB\n", "VmSize:"), Some(12 << 10));
        assert_eq!(kibibytes("VmSize:\t    12 MB\n", "VmSize:"), None);
        let limits = "Limit   Soft Limit   Hard Limit   Units\nMax address space         4096000000           unlimited            bytes\n";
        assert_eq!(address_limit(limits), Some(4_096_000_000));
        assert_eq!(address_limit(&limits.replace("4096000000", "unlimited")), None);
        assert_eq!(address_limit(""), None);
    }
}
