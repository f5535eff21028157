use super::*;

fn subnet(id: &str, zone: &str, tags: &[&str]) -> Subnet {
    let tags = tags
        .iter()
        .map(|tag| tag.split_once('=').unwrap_or((tag, "")));
    let tags = tags
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Subnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        tags,
    }
}

const DESIRED: Desired<'_> = Desired {
    region: "eu-west-1",
    cluster: "shop",
    internal: false,
    named: &[],
    own: None,
};
const OURS: &str = "kubernetes.io/cluster/shop";

fn public() -> Vec<RouteTable> {
    vec![RouteTable {
        main: true,
        internet: true,
        subnets: Vec::new(),
    }]
}

#[test]
fn one_of_each_zone_by_role_then_cluster_then_id() {
    let subnets = [
        subnet("s-1", "eu-west-1a", &[]),
        subnet("s-2", "eu-west-1a", &[OURS]),
        subnet("s-3", "eu-west-1a", &["kubernetes.io/role/elb=1"]),
        subnet("s-5", "eu-west-1b", &[OURS]),
        subnet("s-4", "eu-west-1b", &[OURS]),
        subnet("s-0", "eu-west-1c", &["kubernetes.io/cluster/other=owned"]),
    ];
    assert_eq!(
        choose(&DESIRED, &subnets, &public()).unwrap(),
        ["s-3", "s-4"]
    );
    // The role of public balancers says nothing about internal ones.
    assert_eq!(
        choose(
            &Desired {
                internal: true,
                ..DESIRED
            },
            &subnets,
            &[]
        )
        .unwrap(),
        ["s-2", "s-4"]
    );
}

#[test]
fn a_public_balancer_is_only_where_the_internet_is() {
    let subnets = [
        subnet("s-1", "eu-west-1a", &[OURS]),
        subnet("s-2", "eu-west-1b", &[OURS]),
    ];
    let private = RouteTable {
        main: false,
        internet: false,
        subnets: vec!["s-1".to_owned()],
    };
    let tables = [public().remove(0), private];
    assert_eq!(choose(&DESIRED, &subnets, &tables).unwrap(), ["s-2"]);
    assert_eq!(
        choose(
            &Desired {
                internal: true,
                ..DESIRED
            },
            &subnets,
            &tables
        )
        .unwrap(),
        ["s-1", "s-2"]
    );
    let error = choose(&DESIRED, &subnets, &tables[1..]).unwrap_err();
    assert!(
        error.starts_with("no subnet with a route to an internet gateway is tagged"),
        "{error}"
    );
    assert_eq!(
        choose(
            &Desired {
                own: Some("s-9"),
                ..DESIRED
            },
            &subnets,
            &tables[1..]
        )
        .unwrap(),
        ["s-9"]
    );
}

#[test]
fn zones_at_the_edge_are_left_out() {
    let subnets = [
        subnet("s-1", "eu-west-1-lax-1a", &[OURS]),
        subnet("s-2", "eu-west-1-wl1-ber-wlz-1", &[OURS]),
    ];
    assert!(choose(&DESIRED, &subnets, &public()).is_err());
}

#[test]
fn those_that_a_service_names_are_taken_all_or_none() {
    let subnets = [
        subnet("s-1", "eu-west-1a", &["Name=front"]),
        subnet("s-2", "eu-west-1b", &[]),
    ];
    let named = ["front".to_owned(), "s-2".to_owned()];
    assert_eq!(
        choose(
            &Desired {
                named: &named,
                ..DESIRED
            },
            &subnets,
            &[]
        )
        .unwrap(),
        ["s-1", "s-2"]
    );
    let named = ["front".to_owned(), "rear".to_owned()];
    assert_eq!(
        choose(
            &Desired {
                named: &named,
                ..DESIRED
            },
            &subnets,
            &[]
        )
        .unwrap_err(),
        "there is no subnet rear"
    );
}
