use super::*;

fn ip(id: &str, port: Option<&str>, description: &str) -> FloatingIp {
    FloatingIp {
        id: id.to_owned(),
        floating_ip_address: address(id.len() as u8),
        port_id: port.map(str::to_owned),
        description: description.to_owned(),
    }
}

/// Ids of different lengths have different ones.
fn address(number: u8) -> IpAddr {
    [198, 51, 100, number].into()
}

fn desired(requested: Option<u8>) -> Desired {
    Desired {
        marker: "ours".to_owned(),
        port: "vip".to_owned(),
        requested: requested.map(address),
    }
}

fn attached(ips: &[FloatingIp]) -> Found {
    Found {
        attached: ips.to_vec(),
        ..Found::default()
    }
}

#[test]
fn one_that_is_there_is_kept() {
    assert_eq!(
        plan(&desired(None), &attached(&[ip("a", Some("vip"), "theirs")])),
        Ok(Vec::new())
    );
    assert_eq!(
        plan(
            &desired(Some(1)),
            &attached(&[ip("a", Some("vip"), "theirs")])
        ),
        Ok(Vec::new())
    );
}

#[test]
fn one_is_created_unless_one_was_left() {
    assert_eq!(
        plan(&desired(None), &Found::default()),
        Ok(vec![Step::Create(None)])
    );
    let left = Found {
        marked: vec![ip("a", None, "ours")],
        ..Found::default()
    };
    assert_eq!(
        plan(&desired(None), &left),
        Ok(vec![Step::Attach("a".to_owned())])
    );
    let left = Found {
        marked: vec![ip("a", Some("gone"), "ours"), ip("bb", None, "ours")],
        ..Found::default()
    };
    assert_eq!(
        plan(&desired(None), &left),
        Ok(vec![Step::Attach("bb".to_owned())])
    );
}

#[test]
fn a_requested_one_takes_the_place_of_another() {
    let requested = Some(ip("wanted", None, "theirs"));
    let found = Found {
        requested,
        ..attached(&[ip("a", Some("vip"), "ours")])
    };
    let expected = vec![
        Step::Delete("a".to_owned()),
        Step::Attach("wanted".to_owned()),
    ];
    assert_eq!(plan(&desired(Some(6)), &found), Ok(expected));
    // The floating IP is not attached yet.
    let found = attached(&[ip("a", Some("vip"), "theirs")]);
    assert_eq!(
        plan(&desired(Some(6)), &found),
        Ok(vec![
            Step::Detach("a".to_owned()),
            Step::Create(Some(address(6)))
        ])
    );
}

#[test]
fn what_somebody_else_uses_is_not_taken() {
    let found = Found {
        requested: Some(ip("wanted", Some("other"), "")),
        ..Found::default()
    };
    let error = plan(&desired(Some(6)), &found).unwrap_err();
    assert!(
        matches!(
            error,
            ProviderError::Refused {
                reason: "AddressInUse",
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn an_internal_one_has_none_but_what_others_gave_it() {
    let ips = [
        ip("a", Some("vip"), "ours"),
        ip("bb", Some("vip"), "theirs"),
        ip("ccc", Some("vip"), "theirs"),
    ];
    let steps = plan_none("ours", &ips, &[address(2)]);
    assert_eq!(
        steps,
        [Step::Delete("a".to_owned()), Step::Detach("bb".to_owned())]
    );
}

#[test]
fn only_marked_ones_are_deleted_in_the_end() {
    let found = Found {
        attached: vec![
            ip("a", Some("vip"), "ours"),
            ip("bb", Some("vip"), "theirs"),
        ],
        marked: vec![ip("a", Some("vip"), "ours"), ip("ccc", None, "ours")],
        requested: None,
    };
    let (delete, detach) = (
        |id: &str| Step::Delete(id.to_owned()),
        |id: &str| Step::Detach(id.to_owned()),
    );
    assert_eq!(
        plan_end("ours", false, &found),
        [delete("a"), detach("bb"), delete("ccc")]
    );
    assert_eq!(plan_end("ours", true, &found), [detach("a"), detach("bb")]);
}
