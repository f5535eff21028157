//! One cloud, and everything that is tried on it, one after the other: to start it takes longer
//! than most of them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portico_providers::cloud::faults::Faulty;
use portico_providers::cloud::{
    CallMetrics, Http, HttpOptions, Pace, Poll, Sent, Transport, TransportError,
};
use portico_providers::conformance::{self, Case, FaultPlan, World};
use portico_providers::openstack::{Config, OpenStack, Parts};
use portico_providers::{Host, Ingress, IpMode, Provider, ProviderError, Request};
use serde_json::{Value, json};

use super::cloud::{Cloud, PASSWORD};
use super::raw::{Raw, settle_others};
use super::sample::{node, service};

/// A cloud with a project in it, whose user has no more rights than load balancers need.
struct Site {
    cloud: Cloud,
    transport: Arc<dyn Transport>,
    /// As that user.
    raw: Raw,
    external: String,
    subnet: String,
    /// That people reserved.
    reserved: String,
    user: String,
}

fn password(user: Value, project: Value) -> Value {
    let identity = json!({"methods": ["password"], "password": { "user": user }});
    json!({"auth": {"identity": identity, "scope": { "project": project }}})
}

impl Site {
    async fn build() -> Self {
        let cloud = Cloud::start();
        let transport: Arc<dyn Transport> = Arc::new(Http::new(&HttpOptions::default()).unwrap());
        let urls = [
            format!("http://127.0.0.1:{}/v3", cloud.keystone),
            format!("http://127.0.0.1:{}/v2.0", cloud.neutron),
            format!("http://127.0.0.1:{}/v2.0/lbaas", cloud.octavia),
        ];
        let as_user = |token| Raw::new(Arc::clone(&transport), token, urls.clone());
        let domain = json!({"id": "default"});
        let admin = json!({"name": "admin", "domain": domain, "password": PASSWORD});
        let token = as_user(None)
            .log_in(password(admin, json!({"name": "admin", "domain": domain})))
            .await;
        let admin = as_user(Some(token));
        fill_catalog(&admin, &cloud).await;
        let (user, project) = make_user(&admin).await;
        let external = make_external(&admin).await;
        let login = password(
            json!({"id": user, "password": PASSWORD}),
            json!({ "id": project }),
        );
        let raw = as_user(Some(as_user(None).log_in(login).await));
        let subnet = make_network(&raw, &external).await;
        let reserved = settle_others(&raw, &subnet, &external).await;
        Self {
            cloud,
            transport,
            raw,
            external,
            subnet,
            reserved,
            user,
        }
    }

    /// What a cloud.conf of that user says.
    fn by_password(&self) -> String {
        let keystone = format!("http://127.0.0.1:{}", self.cloud.keystone);
        format!(
            "[Global]\nauth-url={keystone}/v3\nusername=portico\npassword={PASSWORD}\ntenant-name=shop\ndomain-id=default\nregion=RegionOne\n{}",
            self.balancers()
        )
    }

    /// The same, with an application credential.
    async fn by_credential(&self) -> String {
        let url = format!(
            "{}/users/{}/application_credentials",
            self.raw.keystone, self.user
        );
        let made = self
            .raw
            .post(url, json!({"application_credential": {"name": "portico"}}))
            .await;
        let (id, secret) = (
            &made["application_credential"]["id"],
            &made["application_credential"]["secret"],
        );
        format!(
            "[Global]\nauth-url=http://127.0.0.1:{}\napplication-credential-id={id}\napplication-credential-secret={secret}\n{}",
            self.cloud.keystone,
            self.balancers()
        )
    }

    fn balancers(&self) -> String {
        format!(
            "[LoadBalancer]\nsubnet-id={}\nfloating-network-id={}\n",
            self.subnet, self.external
        )
    }

    /// A provider, and what it asks.
    fn provider(&self, config: &str) -> (OpenStack, Arc<FaultPlan>) {
        let plan = Arc::new(FaultPlan::default());
        let transport = Arc::new(Faulty::over(Arc::clone(&self.transport), Arc::clone(&plan)));
        (self.provider_over(transport, config), plan)
    }

    fn provider_over(&self, transport: Arc<dyn Transport>, config: &str) -> OpenStack {
        let poll = Poll {
            first: Duration::from_millis(100),
            last: Duration::from_millis(400),
            ..Poll::default()
        };
        let parts = Parts {
            transport,
            pace: Pace::default(),
            poll,
            metrics: CallMetrics::default(),
        };
        OpenStack::new(Config::parse(config).unwrap(), parts)
    }

    async fn owned(&self) -> Vec<String> {
        self.raw.owned().await.unwrap()
    }
}

async fn fill_catalog(admin: &Raw, cloud: &Cloud) {
    for (kind, port) in [("network", cloud.neutron), ("load-balancer", cloud.octavia)] {
        let url = format!("{}/services", admin.keystone);
        let service = admin
            .post(url, json!({"service": {"type": kind, "name": kind}}))
            .await;
        let endpoint = json!({
            "service_id": service["service"]["id"], "interface": "public", "region_id": "RegionOne",
            "url": format!("http://127.0.0.1:{port}"),
        });
        admin
            .post(
                format!("{}/endpoints", admin.keystone),
                json!({ "endpoint": endpoint }),
            )
            .await;
    }
}

async fn make_user(admin: &Raw) -> (String, String) {
    let keystone = &admin.keystone;
    let id = |made: &Value, kind: &str| made[kind]["id"].as_str().unwrap().to_owned();
    let project = admin
        .post(
            format!("{keystone}/projects"),
            json!({"project": {"name": "shop", "domain_id": "default"}}),
        )
        .await;
    let user = json!({"name": "portico", "domain_id": "default", "password": PASSWORD});
    let user = admin
        .post(format!("{keystone}/users"), json!({ "user": user }))
        .await;
    let role = admin
        .post(
            format!("{keystone}/roles"),
            json!({"role": {"name": "load-balancer_member"}}),
        )
        .await;
    let roles = admin
        .get(format!("{keystone}/roles?name=member"))
        .await
        .unwrap();
    let (user, project) = (id(&user, "user"), id(&project, "project"));
    for role in [
        id(&role, "role"),
        roles["roles"][0]["id"].as_str().unwrap().to_owned(),
    ] {
        admin
            .put(
                format!("{keystone}/projects/{project}/users/{user}/roles/{role}"),
                json!({}),
            )
            .await;
    }
    (user, project)
}

async fn make_external(admin: &Raw) -> String {
    let network = json!({
        "name": "world", "router:external": true,
        "provider:network_type": "flat", "provider:physical_network": "world",
    });
    let made = admin
        .post(
            format!("{}/networks", admin.neutron),
            json!({ "network": network }),
        )
        .await;
    let id = made["network"]["id"].as_str().unwrap().to_owned();
    let subnet =
        json!({"network_id": id, "ip_version": 4, "cidr": "198.51.100.0/24", "enable_dhcp": false});
    admin
        .post(
            format!("{}/subnets", admin.neutron),
            json!({ "subnet": subnet }),
        )
        .await;
    id
}

/// With both families, behind a router. Its IPv4 subnet.
async fn make_network(raw: &Raw, external: &str) -> String {
    let neutron = &raw.neutron;
    let made = raw
        .post(
            format!("{neutron}/networks"),
            json!({"network": {"name": "nodes"}}),
        )
        .await;
    let network = &made["network"]["id"];
    let v4 = json!({"network_id": network, "ip_version": 4, "cidr": "10.20.0.0/16"});
    let v4 = raw
        .post(format!("{neutron}/subnets"), json!({ "subnet": v4 }))
        .await;
    let v6 = json!({"network_id": network, "ip_version": 6, "cidr": "fd20::/64", "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"});
    raw.post(format!("{neutron}/subnets"), json!({ "subnet": v6 }))
        .await;
    let router =
        json!({"router": {"name": "out", "external_gateway_info": {"network_id": external}}});
    let router = raw.post(format!("{neutron}/routers"), router).await;
    let url = format!(
        "{neutron}/routers/{}/add_router_interface",
        router["router"]["id"].as_str().unwrap()
    );
    raw.put(url, json!({"subnet_id": v4["subnet"]["id"]})).await;
    v4["subnet"]["id"].as_str().unwrap().to_owned()
}

fn address(ingress: &[Ingress]) -> String {
    match &ingress[0].host {
        Host::Ip(address) => address.to_string(),
        Host::Name(name) => name.clone(),
    }
}

#[tokio::test]
async fn the_real_services() {
    let mut clock = Instant::now();
    let mut took = |what: &str| {
        println!("{what}: {:.1} s", clock.elapsed().as_secs_f32());
        clock = Instant::now();
    };
    let site = Site::build().await;
    took("start");
    counts_calls(&site).await;
    took("calls");
    finds_networks_by_itself(&site).await;
    took("networks");
    publishes_what_the_mode_is(&site).await;
    took("proxy protocol");
    leaves_reserved_addresses(&site).await;
    took("reserved address");
    survives_lost_answers(&site).await;
    took("lost answers");
    replaces_a_failed_one(&site).await;
    took("failed");
    conforms(&site).await;
    took("conformance");
}

async fn conforms(site: &Site) {
    let (provider, _) = site.provider(&site.by_credential().await);
    let case = Case::new((1..=3).map(node).collect());
    let report = conformance::run(&provider, Some(&site.raw), &case).await;
    println!("{report}");
    assert!(report.passed(), "{report}");
}

/// Reads and writes of the usual: a Service with two ports.
async fn counts_calls(site: &Site) {
    let (provider, plan) = site.provider(&site.by_password());
    let request = service("calls", &[]);
    let more = Request {
        nodes: vec![node(1), node(2), node(3)],
        ..request.clone()
    };
    let count = |what: &str| {
        let calls = plan.calls();
        let is_wait = |call: &&String| call.starts_with("GET") && call.contains("/loadbalancers/");
        let writes = calls.iter().filter(|call| !call.starts_with("GET")).count();
        let waits = calls.iter().filter(is_wait).count();
        println!(
            "calls of {what}: {writes} writes, {} reads, {waits} looks while waiting",
            calls.len() - writes - waits
        );
        plan.set(None);
        writes
    };
    provider.ensure(&request).await.unwrap();
    // Who asks, the load balancer, its floating IP.
    assert_eq!(count("create"), 3);
    provider.ensure(&request).await.unwrap();
    assert_eq!(count("steady"), 0);
    provider.update_nodes(&more).await.unwrap();
    assert_eq!(count("node added"), 2);
    provider.delete(&request).await.unwrap();
    assert_eq!(count("delete"), 2);
}

/// Nothing is configured: the subnet is that of a node's machine, the floating network the only
/// one.
async fn finds_networks_by_itself(site: &Site) {
    let subnet = site
        .raw
        .get(format!("{}/subnets/{}", site.raw.neutron, site.subnet))
        .await
        .unwrap();
    let fixed = json!({"subnet_id": site.subnet, "ip_address": node(1).addresses[0]});
    let machine = node(1).provider_id.replace("openstack:///", "");
    let network = &subnet["subnet"]["network_id"];
    let port = json!({"network_id": network, "device_id": machine, "fixed_ips": [fixed]});
    site.raw
        .post(
            format!("{}/ports", site.raw.neutron),
            json!({ "port": port }),
        )
        .await;
    let (provider, _) = site.provider(&site.by_password().replace(&site.balancers(), ""));
    let request = service("itself", &[]);
    let balancer = provider.ensure(&request).await.unwrap();
    assert!(
        address(&balancer.ingress).starts_with("198.51.100."),
        "{balancer:?}"
    );
    provider.delete(&request).await.unwrap();
}

async fn publishes_what_the_mode_is(site: &Site) {
    let (provider, _) = site.provider(&site.by_password());
    let plain = service("proxy", &[]);
    let before = provider.ensure(&plain).await.unwrap();
    let proxied = service(
        "proxy",
        &[("loadbalancer.openstack.org/proxy-protocol", "v2")],
    );
    let after = provider.ensure(&proxied).await.unwrap();
    assert_eq!(address(&after.ingress), address(&before.ingress));
    assert_eq!(
        (before.ingress[0].mode, after.ingress[0].mode),
        (IpMode::Vip, IpMode::Proxy)
    );
    let pools: Vec<String> = site
        .owned()
        .await
        .into_iter()
        .filter(|line| line.starts_with("pool"))
        .collect();
    assert!(
        pools.len() == 2
            && pools
                .iter()
                .any(|pool| pool.contains("protocol=\"PROXYV2\"")),
        "{pools:?}"
    );
    provider.delete(&proxied).await.unwrap();
    assert_eq!(site.owned().await, Vec::<String>::new());
}

/// An address that people reserved is used, and is theirs again afterwards.
async fn leaves_reserved_addresses(site: &Site) {
    let (provider, _) = site.provider(&site.by_password());
    let others = site.raw.foreign().await.unwrap();
    let request = service("reserved", &[]);
    let own = provider.ensure(&request).await.unwrap();
    let request = Request {
        requested_ip: Some(site.reserved.clone()),
        ..request
    };
    let reserved = provider.ensure(&request).await.unwrap();
    assert_ne!(own.ingress, reserved.ingress);
    assert_eq!(address(&reserved.ingress), site.reserved);
    // The one that was made before is gone, and nobody else may have this one.
    assert!(
        !site
            .owned()
            .await
            .iter()
            .any(|line| line.starts_with("floatingip"))
    );
    let second = Request {
        requested_ip: request.requested_ip.clone(),
        ..service("second", &[])
    };
    let error = provider.ensure(&second).await.unwrap_err();
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
    // Only administrators choose addresses.
    let chosen = Request {
        requested_ip: Some("198.51.100.250".to_owned()),
        ..second.clone()
    };
    let error = provider.ensure(&chosen).await.unwrap_err();
    assert!(
        matches!(
            error,
            ProviderError::Refused {
                reason: "Forbidden",
                ..
            }
        ),
        "{error:?}"
    );
    provider.delete(&second).await.unwrap();
    provider.delete(&request).await.unwrap();
    assert_eq!(site.owned().await, Vec::<String>::new());
    assert_eq!(site.raw.foreign().await.unwrap(), others);
}

/// Requests arrive, and the answer to the first of one kind does not.
struct LosesOne {
    inner: Arc<dyn Transport>,
    left: Mutex<Option<&'static str>>,
}

impl Transport for LosesOne {
    fn send(&self, request: http::Request<Bytes>) -> Sent<'_> {
        let what = format!("{} {}", request.method(), request.uri().path());
        let lost = self
            .left
            .lock()
            .unwrap()
            .take_if(|left| *left == what)
            .is_some();
        Box::pin(async move {
            let answer = self.inner.send(request).await;
            if lost {
                Err(TransportError::Lost("by a test".to_owned()))
            } else {
                answer
            }
        })
    }
}

/// What was asked for happened, and nobody heard.
async fn survives_lost_answers(site: &Site) {
    let request = service("lost", &[]);
    let complete = ["floatingip", "listener", "listener", "loadbalancer"];
    for what in ["POST /v2.0/lbaas/loadbalancers", "POST /v2.0/floatingips"] {
        let transport = LosesOne {
            inner: Arc::clone(&site.transport),
            left: Mutex::new(Some(what)),
        };
        let provider = site.provider_over(Arc::new(transport), &site.by_password());
        // The same call finds out what became of it.
        provider.ensure(&request).await.unwrap();
        assert_eq!(kinds(&site.owned().await)[..4], complete, "{what}");
        provider.delete(&request).await.unwrap();
        assert_eq!(site.owned().await, Vec::<String>::new(), "{what}");
    }
}

fn kinds(lines: &[String]) -> Vec<String> {
    let mut kinds: Vec<String> = lines
        .iter()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    kinds.sort();
    kinds
}

async fn replaces_a_failed_one(site: &Site) {
    let (provider, _) = site.provider(&site.by_password());
    let request = service("failed", &[]);
    let before = provider.ensure(&request).await.unwrap();
    site.cloud
        .sql("UPDATE load_balancer SET provisioning_status = 'ERROR' WHERE name LIKE '%_failed'");
    provider.forget(&request);
    let error = provider.ensure(&request).await.unwrap_err();
    assert!(
        matches!(&error, ProviderError::Failed(text) if text.contains("is ERROR")),
        "{error:?}"
    );
    // The address is kept for the one that is made in its place.
    assert_eq!(kinds(&site.owned().await), ["floatingip"]);
    assert_eq!(provider.ensure(&request).await.unwrap(), before);
    provider.delete(&request).await.unwrap();
}
