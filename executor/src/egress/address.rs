//! Which addresses a function may never reach: everything that is not public unicast.
//!
//! After the IANA special-purpose registries (RFC 6890 and its updates). Addresses that embed an IPv4 address are
//! refused as a whole: nothing public needs them, and each is a way around the IPv4 rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `address` is public unicast.
pub(super) fn public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => public_v4(address),
        IpAddr::V6(address) => public_v6(address),
    }
}

fn public_v4(address: Ipv4Addr) -> bool {
    // (network, prefix length)
    const REFUSED: [([u8; 4], u32); 16] = [
        ([0, 0, 0, 0], 8),        // this network
        ([10, 0, 0, 0], 8),       // private
        ([100, 64, 0, 0], 10),    // carrier-grade NAT
        ([127, 0, 0, 0], 8),      // loopback
        ([168, 63, 129, 16], 32), // Azure's host agent
        ([169, 254, 0, 0], 16),   // link-local, cloud metadata
        ([172, 16, 0, 0], 12),    // private
        ([192, 0, 0, 0], 24),     // protocol assignments
        ([192, 0, 2, 0], 24),     // documentation
        ([192, 88, 99, 0], 24),   // 6to4 relays
        ([192, 168, 0, 0], 16),   // private
        ([198, 18, 0, 0], 15),    // benchmarks
        ([198, 51, 100, 0], 24),  // documentation
        ([203, 0, 113, 0], 24),   // documentation
        ([224, 0, 0, 0], 4),      // multicast
        ([240, 0, 0, 0], 4),      // reserved, broadcast
    ];
    let inside = |(network, length): &([u8; 4], u32)| {
        (u32::from(address) ^ u32::from_be_bytes(*network)).leading_zeros() >= *length
    };
    !REFUSED.iter().any(inside)
}

fn public_v6(address: Ipv6Addr) -> bool {
    // Only 2000::/3 is global unicast: loopback, mapped and compatible IPv4, NAT64, unique local, link-local and
    // multicast are all outside of it.
    const REFUSED: [(u128, u32); 4] = [
        (0x2001_0000 << 96, 23), // Teredo, ORCHID and other assignments
        (0x2001_0db8 << 96, 32), // documentation
        (0x2002_0000 << 96, 16), // 6to4
        (0x3fff_0000 << 96, 20), // documentation
    ];
    let bits = u128::from(address);
    bits >> 125 == 1 && !REFUSED.iter().any(|(network, length)| (bits ^ network).leading_zeros() >= *length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        for refused in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.0.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2002:808:808::1",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(!public(refused.parse().unwrap()), "{refused}");
        }
        for fine in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1"] {
            assert!(public(fine.parse().unwrap()), "{fine}");
        }
    }
}
