use super::*;

fn config(more: &str) -> Config {
    Config::parse(&format!(
        "[Global]\nauth-url=http://k\nusername=u\npassword=p\n[LoadBalancer]\n{more}"
    ))
    .unwrap()
}

fn of(annotations: &[(&str, &str)], more: &str) -> Result<Options, ProviderError> {
    let annotations = annotations.iter().map(|(name, value)| {
        let name = if name.contains('/') {
            (*name).to_owned()
        } else {
            format!("{PREFIX}{name}")
        };
        (name, (*value).to_owned())
    });
    Options::of(
        &Request {
            annotations: annotations.collect(),
            ..Request::default()
        },
        &config(more),
    )
}

#[test]
fn what_a_service_says_comes_before_the_configuration() {
    let options = of(
        &[("subnet-id", "mine"), ("lb-method", "SOURCE_IP")],
        "subnet-id=a\nmember-subnet-id=b",
    )
    .unwrap();
    assert_eq!(options.networks.subnet.as_deref(), Some("mine"));
    assert_eq!(options.networks.member_subnet.as_deref(), Some("b"));
    assert_eq!(options.method, "SOURCE_IP");
    // The general subnet is of another network.
    let options = of(&[("network-id", "mine")], "subnet-id=a").unwrap();
    assert_eq!(
        (options.networks.subnet, options.networks.network.as_deref()),
        (None, Some("mine"))
    );
}

#[test]
fn a_class_comes_before_what_a_service_says() {
    let classes = "subnet-id=a\n[LoadBalancerClass \"dmz\"]\nsubnet-id=b\nfloating-network-id=c";
    let options = of(&[("class", "DMZ"), ("floating-network-id", "d")], classes).unwrap();
    let networks = options.networks;
    assert_eq!(
        (
            networks.subnet.as_deref(),
            networks.floating_network.as_deref()
        ),
        (Some("b"), Some("c"))
    );
    let error = of(&[("class", "none")], classes).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no [LoadBalancerClass \"none\"], only [\"dmz\"]"
    );
}

#[test]
fn whatever_the_balancer_adds_is_not_to_be_gone_past() {
    assert!(!of(&[], "").unwrap().alters_traffic());
    for annotation in [
        ("proxy-protocol", "v2"),
        ("x-forwarded-for", "true"),
        ("default-tls-container-ref", "x"),
    ] {
        assert!(
            of(&[annotation], "").unwrap().alters_traffic(),
            "{annotation:?}"
        );
    }
    assert_eq!(
        of(&[("proxy-protocol", "true")], "").unwrap().proxy,
        Some("PROXY")
    );
    assert_eq!(of(&[("proxy-protocol", "false")], "").unwrap().proxy, None);
}

#[test]
fn mistakes_are_refused() {
    for (annotation, message) in [
        (
            ("proxy-protocol", "v3"),
            "annotation loadbalancer.openstack.org/proxy-protocol: \"v3\" is not true, v1, v2 or \
             false",
        ),
        (
            ("keep-floatingip", "maybe"),
            "annotation loadbalancer.openstack.org/keep-floatingip: \"maybe\" is not true or false",
        ),
        (
            ("connection-limit", "many"),
            "annotation loadbalancer.openstack.org/connection-limit: \"many\" is not a number \
             that fits",
        ),
        (
            (INTERNAL, "?"),
            "annotation service.beta.kubernetes.io/openstack-internal-load-balancer: \"?\" is not \
             true or false",
        ),
    ] {
        assert_eq!(
            of(&[annotation], "").unwrap_err(),
            refused("InvalidAnnotation", message.to_owned())
        );
    }
    let both = of(&[("proxy-protocol", "v1"), ("x-forwarded-for", "true")], "").unwrap_err();
    assert_eq!(
        both.to_string(),
        "proxy-protocol and x-forwarded-for exclude each other"
    );
    assert!(of(&[("proxy-protocol", "v1")], "lb-provider=ovn").is_err());
}

#[test]
fn addresses_are_kept_when_in_doubt() {
    let keeps = |value: Option<&str>| {
        let annotations = value
            .map(|value| (format!("{PREFIX}{KEEP}"), value.to_owned()))
            .into_iter()
            .collect();
        keeps_floating_ip(&Request {
            annotations,
            ..Request::default()
        })
    };
    assert_eq!(
        [
            keeps(None),
            keeps(Some("false")),
            keeps(Some("True")),
            keeps(Some("ja"))
        ],
        [false, false, true, true]
    );
}
