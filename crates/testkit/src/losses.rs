//! Losses that a busy host causes, and no tunnel.

/// Discards of a data plane that only the host's buffers cause: before a packet is protected, while it is sent, and
/// when it has come. They depend on how busy the host is.
pub const BUFFERS: [&str; 3] = ["esp.unread", "esp.unsent", "esp.unreceived"];

/// Most packets that the kernel carries, and drops, as one (UDP_MAX_SEGMENTS of linux/udp.h).
pub const TOGETHER: u64 = 128;

/// Packets, or what the kernel carries as one, that this host dropped on the way from one namespace to another: the
/// second column of each CPU's line. All namespaces have these queues in common.
pub fn backlog_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("every kernel has it");
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(column).sum()
}
