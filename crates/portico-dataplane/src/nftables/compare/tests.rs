use super::super::Nftables;
use super::super::fake::Fake;
use super::super::plan::Step;
use super::*;
use crate::Dataplane;
use crate::testing::{port, table, web};
use portico_model::table::Family;

/// Two Services, one of which is asked about; then another program changes the kernel without the
/// daemon's knowledge.
fn after(happening: impl Fn(&Fake)) -> Differences {
    let wanted = table(vec![port("web", 1, &[1, 2]), port("other", 2, &[3])]);
    let kernel = Fake::new();
    Nftables::new(kernel.clone()).replace(&wanted).unwrap();
    happening(&kernel);
    let before = kernel.commits();
    let told = Nftables::new(kernel.clone())
        .compare(&wanted, &web())
        .unwrap();
    assert_eq!(kernel.commits(), before, "looking changes nothing");
    told
}

fn without(kernel: &Fake, which: impl Fn(&Element) -> bool) {
    for element in kernel
        .elements(Family::V4)
        .iter()
        .filter(|element| which(element))
    {
        kernel.take_element(Family::V4, element);
    }
}

fn of_frontend(words: &[&str]) -> Differences {
    Differences {
        of_frontend: words.iter().map(|text| (*text).to_owned()).collect(),
        ..Differences::default()
    }
}

#[test]
fn what_nobody_touched_agrees() {
    assert_eq!(after(|_| {}), Differences::default());
}

#[test]
fn a_missing_element_is_named() {
    let endpoint = |last: u8| move |element: &Element| matches!(element, Element::Endpoint { target, .. } if target.address == IpAddr::from([10, 244, 0, last]));
    let lost = after(|kernel| without(kernel, endpoint(2)));
    assert_eq!(lost.of_frontend.len(), 1, "{lost:?}");
    assert!(
        lost.of_frontend[0].starts_with("the set endpoints lacks endpoint 10.244.0.2:8080"),
        "{lost:?}"
    );
    let place = at(&web());
    let frontend =
        |element: &Element| matches!(element, Element::Frontend { at, .. } if *at == place);
    let lost = after(|kernel| without(kernel, frontend));
    assert!(
        lost.of_frontend[0].starts_with("the set frontends lacks 10.96.0.1:80/tcp"),
        "{lost:?}"
    );
    assert_eq!(
        lost.of_frontend.len(),
        1,
        "its endpoints are not to blame: {lost:?}"
    );
    let others = after(|kernel| without(kernel, endpoint(3)));
    assert_eq!(
        others,
        Differences {
            of_others: 1,
            ..Differences::default()
        }
    );
}

#[test]
fn what_others_do_to_chains_is_everybodys() {
    let emptied =
        after(|kernel| kernel.interfere(&Step::EmptyChain(Family::V4, "services".into())));
    assert_eq!(emptied.of_all, ["ip: rules of chain services differ"]);
    let gone = after(|kernel| kernel.interfere(&Step::DeleteTable(Family::V4)));
    assert_eq!(
        gone,
        Differences {
            of_all: vec!["table ip portico is missing".to_owned()],
            ..Differences::default()
        }
    );
}

#[test]
fn a_daemon_that_is_behind_has_other_endpoints() {
    let kernel = Fake::new();
    Nftables::new(kernel.clone())
        .replace(&table(vec![port("web", 1, &[])]))
        .unwrap();
    let told = Nftables::new(kernel.clone())
        .compare(&table(vec![port("web", 1, &[4])]), &web())
        .unwrap();
    let refused = "the set refused has 10.96.0.1:80/tcp, which the table does not";
    assert!(told.of_frontend.contains(&refused.to_owned()), "{told:?}");
    assert!(
        told.of_frontend
            .iter()
            .any(|word| word.starts_with("the set frontends lacks")),
        "{told:?}"
    );
    let gone = Nftables::new(kernel)
        .compare(&table(Vec::new()), &web())
        .unwrap();
    let cluster_ip = "the set cluster-ips has 10.96.0.1, which the table does not";
    assert_eq!(gone, of_frontend(&[cluster_ip, refused]));
}
