use super::*;
use std::collections::BTreeSet;

#[test]
fn port_ranges_are_read() {
    for (text, size, shown) in [
        ("30000-32767", 2768, "30000-32767"),
        ("30000+2767", 2768, "30000-32767"),
        ("30000", 1, "30000-30000"),
        ("30000-32767, 10000-20000", 12769, "10000-20000,30000-32767"),
        ("1-65535", 65535, "1-65535"),
        ("0-0", 0, "0-0"),
    ] {
        let ranges: PortRanges = text.parse().unwrap();
        assert_eq!(
            (ranges.size(), ranges.to_string().as_str()),
            (size, shown),
            "{text}"
        );
        let all: BTreeSet<u16> = (0..size).filter_map(|index| ranges.port(index)).collect();
        assert_eq!(all.len() as u128, size, "{text}");
        assert!(all.iter().all(|&port| ranges.has(port)));
        assert_eq!(ranges.port(size), None);
    }
    for text in [
        "", "a", "0-10", "5-4", "1-65536", "65535+1", "1-5,5-9", "1-2-3", "-1", "0-0,5", "1,",
    ] {
        assert_eq!(
            text.parse::<PortRanges>(),
            Err(RangeError::NotPorts(text.to_owned()))
        );
    }
}

#[test]
fn network_and_broadcast_addresses_are_not_usable() {
    for (text, size, first, last, bad) in [
        (
            "10.0.0.0/30",
            2,
            "10.0.0.1",
            "10.0.0.2",
            ["10.0.0.0", "10.0.0.3"],
        ),
        (
            "10.96.0.0/16",
            65534,
            "10.96.0.1",
            "10.96.255.254",
            ["10.96.255.255", "10.97.0.1"],
        ),
        ("fd00::/126", 3, "fd00::1", "fd00::3", ["fd00::", "fd00::4"]),
        (
            "fd00::/64",
            u128::from(u64::MAX),
            "fd00::1",
            "fd00::ffff:ffff:ffff:ffff",
            ["fd00::", "10.0.0.1"],
        ),
    ] {
        let cidr: Cidr = text.parse().unwrap();
        assert_eq!(cidr.size(), size, "{text}");
        assert_eq!(cidr.address(0).to_string(), first);
        assert_eq!(cidr.address(size - 1).to_string(), last);
        assert!(
            cidr.has(first.parse().unwrap()) && cidr.has(last.parse().unwrap()),
            "{text}"
        );
        assert!(
            !bad.iter().any(|bad| cidr.has(bad.parse().unwrap())),
            "{text}"
        );
        assert_eq!(cidr.to_string(), text);
    }
}

#[test]
fn address_ranges_that_cannot_work_are_refused() {
    for text in [
        "10.0.0.0",
        "10.0.0.0/33",
        "x/8",
        "10.0.0.1/24",
        "fd00::/63",
        "10.0.0.0/31",
        "10.0.0.0/32",
        "fd00::/128",
    ] {
        assert!(text.parse::<Cidr>().is_err(), "{text}");
    }
    assert!(Ranges::parse("10.0.0.0/24,10.1.0.0/24", "1-9").is_err());
    assert!(Ranges::parse("10.0.0.0/24,fd00::/112,fd01::/112", "1-9").is_err());
    assert_eq!(
        Ranges::parse("fd00::/112,10.0.0.0/24", "1-9")
            .unwrap()
            .primary_family(),
        IPV6
    );
}

#[test]
fn the_band_is_used_last() {
    for (size, band) in [(100u128, 16u128), (10, 0), (5, 9)] {
        for random in [0, 3, u64::MAX] {
            let mut taken = BTreeSet::new();
            while let Some(index) = pick(size, band, random, |index| !taken.contains(&index)) {
                let upper = size - band.min(size);
                assert_eq!(
                    index >= band.min(size),
                    (taken.len() as u128) < upper,
                    "{index}"
                );
                taken.insert(index);
            }
            assert_eq!(taken.len() as u128, size);
        }
    }
}

#[test]
fn bands_have_the_sizes_people_know() {
    for (text, band) in [
        ("10.0.0.0/28", 0),
        ("10.0.0.0/27", 16),
        ("10.0.0.0/24", 16),
        ("10.96.0.0/16", 256),
        ("10.0.0.0/22", 64),
    ] {
        assert_eq!(text.parse::<Cidr>().unwrap().band(), band, "{text}");
    }
    assert_eq!("30000-32767".parse::<PortRanges>().unwrap().band(), 86);
}
