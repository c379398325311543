//! Which addresses are public: the only ones that a page may come from.
//!
//! Invariant: an IPv6 address that has an IPv4 address inside is refused if that address is, in
//! each of the forms that systems and gateways translate.
//!
//! The ranges are those of IANA's registries of special-purpose addresses, together with Azure's
//! host address, which has a public number. The prefix of a gateway that a network has chosen
//! itself for NAT64 cannot be known here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An IPv4 range and the length of its prefix.
type Range4 = ([u8; 4], u32);

/// IPv4 ranges that are not public.
const REFUSED_4: &[Range4] = &[
    ([0, 0, 0, 0], 8),        // this network
    ([10, 0, 0, 0], 8),       // private
    ([100, 64, 0, 0], 10),    // shared by customers of a provider
    ([127, 0, 0, 0], 8),      // loopback
    ([168, 63, 129, 16], 32), // the host of a machine of Azure
    ([169, 254, 0, 0], 16),   // link-local, with the metadata of clouds
    ([172, 16, 0, 0], 12),    // private
    ([192, 0, 0, 0], 24),     // protocols
    ([192, 0, 2, 0], 24),     // documentation
    ([192, 88, 99, 0], 24),   // relays of 6to4
    ([192, 168, 0, 0], 16),   // private
    ([198, 18, 0, 0], 15),    // benchmarks
    ([198, 51, 100, 0], 24),  // documentation
    ([203, 0, 113, 0], 24),   // documentation
    ([224, 0, 0, 0], 4),      // multicast
    ([240, 0, 0, 0], 4),      // reserved, with broadcast
];

/// An IPv6 range by its first four segments, and the length of its prefix.
type Range6 = ([u16; 4], u32);

/// The only IPv6 range of public addresses, apart from those with an IPv4 address inside.
const GLOBAL_6: Range6 = ([0x2000, 0, 0, 0], 3);

/// IPv6 ranges inside [`GLOBAL_6`] that are not public.
const REFUSED_6: &[Range6] = &[
    ([0x2001, 0, 0, 0], 23),     // protocols
    ([0x2001, 0xdb8, 0, 0], 32), // documentation
    ([0x3fff, 0, 0, 0], 20),     // documentation
];

/// Whether a page may come from this address: a public one without a zone.
pub(crate) fn is_public(address: &SocketAddr) -> bool {
    match address {
        SocketAddr::V4(address) => is_public_4(*address.ip()),
        SocketAddr::V6(address) => address.scope_id() == 0 && is_public_6(*address.ip()),
    }
}

/// The address that a text shows: IPv4 inside IPv6 as the system uses it.
pub(crate) fn shown(address: &SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

fn is_public_4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let contains = |(start, length): &Range4| {
        let start = Ipv4Addr::from(*start).to_bits();
        (bits ^ start).leading_zeros() >= *length
    };
    !REFUSED_4.iter().any(contains)
}

fn is_public_6(address: Ipv6Addr) -> bool {
    let inner = embedded(address);
    if !inner.iter().flatten().all(|inner| is_public_4(*inner)) {
        return false;
    }
    if is_translated(address) {
        return true;
    }
    is_in(address, &GLOBAL_6) && !REFUSED_6.iter().any(|range| is_in(address, range))
}

fn is_in(address: Ipv6Addr, (start, length): &Range6) -> bool {
    let [a, b, c, d] = *start;
    let start = Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_bits();
    (address.to_bits() ^ start).leading_zeros() >= *length
}

/// Whether the address is nothing but an IPv4 address, or a way to one.
fn is_translated(address: Ipv6Addr) -> bool {
    let teredo = ([0x2001, 0, 0, 0], 32);
    let six_to_four = ([0x2002, 0, 0, 0], 16);
    is_last(address) || is_in(address, &teredo) || is_in(address, &six_to_four)
}

/// Whether the last 32 bits are an IPv4 address: `::a`, `::ffff:a`, `::ffff:0:a`, `64:ff9b::a`.
fn is_last(address: Ipv6Addr) -> bool {
    matches!(
        address.segments(),
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _]
            | [0, 0, 0, 0, 0xffff, 0, _, _]
            | [0x64, 0xff9b, 0, 0, 0, 0, _, _]
    )
}

/// The IPv4 addresses inside an IPv6 address.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        // Teredo: the server, and the client with its bits inverted.
        [0x2001, 0, ..] => [Some(join(c, d)), Some(join(!g, !h))],
        [0x2002, ..] => [Some(join(b, c)), isatap([e, f], join(g, h))],
        _ if is_last(address) => [Some(join(g, h)), None],
        _ => [isatap([e, f], join(g, h)), None],
    }
}

/// `last`, if an interface identifier with these first segments has an IPv4 address as its last.
fn isatap([high, low]: [u16; 2], last: Ipv4Addr) -> Option<Ipv4Addr> {
    (high & !0x0200 == 0 && low == 0x5efe).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddrV6;

    fn check(rows: &str, expected: bool) {
        for text in rows.split_whitespace() {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(is_public(&SocketAddr::new(ip, 80)), expected, "{text}");
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        check(
            "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255
             127.0.0.1 127.255.255.254 168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1
             172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1
             192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1
             239.255.255.255 240.0.0.1 255.255.255.255",
            false,
        );
        check(
            ":: ::1 ::2 ::7f00:1 ::10.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1
             64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::1.1.1.1 100::1 2001::1
             2001:0:4136:e378:8000:63bf:80ff:fffe 2001:0:a00:1:0:0:f7f7:f7f7 2001:2::1 2001:10::1
             2001:20::1 2001:1ff::1 2001:db8::1 2002:7f00:1::1 2002:a9fe:a9fe::1
             2606:4700::5efe:10.0.0.1 2606:4700::200:5efe:192.168.1.1 3fff::1 3fff:fff::1 4000::1
             5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::a9fe:a9fe febf::1 fec0::1 ff02::1 ff0e::1",
            false,
        );
    }

    #[test]
    fn public_addresses_are_allowed() {
        check(
            "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255
             128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255
             172.32.0.0 192.0.1.1 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
             223.255.255.255",
            true,
        );
        check(
            "2606:4700::1111 2001:200::1 2001:4860:4860::8888 2a00:1450::1 3ffe::1 ::ffff:8.8.8.8
             64:ff9b::8.8.8.8 2002:808:808::1 2001:0:808:808:8000:63bf:f7f7:f7f7
             2606:4700::5efe:8.8.8.8",
            true,
        );
    }

    #[test]
    fn an_address_with_a_zone_is_refused() {
        let address: Ipv6Addr = "2606:4700::1111".parse().unwrap();
        let zoned = |zone| SocketAddr::V6(SocketAddrV6::new(address, 80, 0, zone));
        assert!(is_public(&zoned(0)) && !is_public(&zoned(2)));
    }

    /// The IPv6 addresses that have an IPv4 address inside, with `free` bits where any may stand.
    fn forms(address: Ipv4Addr, free: u16) -> [Ipv6Addr; 9] {
        let [high, low] = [(address.to_bits() >> 16) as u16, address.to_bits() as u16];
        [
            address.to_ipv6_mapped(),
            address.to_ipv6_compatible(),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, free, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, 0x808, 0x808, free, free, !high, !low),
            Ipv6Addr::new(0x2001, 0, high, low, free, free, !0x808, !0x808),
            Ipv6Addr::new(0x2606, 0x4700, free, free, 0, 0x5efe, high, low),
            Ipv6Addr::new(0x2606, 0x4700, free, free, 0x200, 0x5efe, high, low),
        ]
    }

    /// Addresses of which about half are not public.
    fn any_address() -> impl Strategy<Value = Ipv4Addr> {
        let refused = prop::sample::select(REFUSED_4).prop_flat_map(|(start, length)| {
            let start = Ipv4Addr::from(start).to_bits();
            let mask = u32::MAX.checked_shr(length).unwrap_or(0);
            any::<u32>().prop_map(move |bits| Ipv4Addr::from_bits(start | bits & mask))
        });
        prop_oneof![any::<u32>().prop_map(Ipv4Addr::from_bits), refused]
    }

    proptest! {
        #[test]
        fn an_embedded_address_is_refused_exactly_when_it_is_refused_itself(
            address in any_address(), free in any::<u16>(),
        ) {
            let expected = is_public(&SocketAddr::new(address.into(), 443));
            for form in forms(address, free) {
                let found = is_public(&SocketAddr::new(form.into(), 443));
                prop_assert_eq!(found, expected, "{}", form);
            }
        }
    }
}
