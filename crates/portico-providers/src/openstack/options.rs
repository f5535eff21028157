//! What a Service's annotations and the configuration say about its load balancer, parsed once. The
//! annotations are those of the cloud controller of OpenStack.

use super::config::{Config, MonitorTimes, Networks};
use crate::cloud::Annotations;
pub(super) use crate::cloud::refused;
use crate::{ProviderError, Request};

pub(super) const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
const PREFIX: &str = "loadbalancer.openstack.org/";
const KEEP: &str = "keep-floatingip";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// No floating IP.
    pub internal: bool,
    pub networks: Networks,
    /// A port of the network that is to be the balancer's.
    pub vip_port: Option<String>,
    /// The protocol of TCP's pools where the client's address goes ahead of its bytes.
    pub proxy: Option<&'static str>,
    pub forwarded_for: bool,
    pub tls_container: Option<String>,
    pub method: String,
    pub connection_limit: i64,
    /// Milliseconds: of the client, of connecting to a member, of the member, of looking into TCP.
    /// Not every driver has them.
    pub timeouts: Option<[u32; 4]>,
    /// `None`: members are taken to be well.
    pub monitor: Option<MonitorTimes>,
    pub flavor: Option<String>,
    pub availability_zone: Option<String>,
    /// For the status, in place of addresses.
    pub hostname: Option<String>,
    /// Octavia's driver that does everything in the network: no ranges, timeouts, HTTP or PROXY.
    pub is_ovn: bool,
}

impl Options {
    pub(super) fn of(request: &Request, config: &Config) -> Result<Self, ProviderError> {
        let said = Annotations {
            request,
            prefix: PREFIX,
        };
        let balancers = &config.balancers;
        let is_ovn = balancers.provider.as_deref() == Some("ovn");
        let method = said.text("lb-method").or_else(|| balancers.method.clone());
        let options = Self {
            internal: Annotations {
                request,
                prefix: "",
            }
            .bool(INTERNAL)?
            .unwrap_or(balancers.internal),
            networks: networks(&said, config)?,
            vip_port: said.text("port-id"),
            proxy: proxy(&said)?,
            forwarded_for: said.bool("x-forwarded-for")?.unwrap_or(false),
            tls_container: said
                .text("default-tls-container-ref")
                .or_else(|| balancers.tls_container.clone()),
            method: method.unwrap_or_else(|| {
                if is_ovn {
                    "SOURCE_IP_PORT"
                } else {
                    "ROUND_ROBIN"
                }
                .to_owned()
            }),
            connection_limit: said.number("connection-limit")?.unwrap_or(-1),
            timeouts: (!is_ovn).then_some(timeouts(&said)?),
            monitor: monitor(&said, config)?,
            flavor: said.text("flavor-id").or_else(|| balancers.flavor.clone()),
            availability_zone: said
                .text("availability-zone")
                .or_else(|| balancers.availability_zone.clone()),
            hostname: said.text("hostname"),
            is_ovn,
        };
        said.bool(KEEP)?;
        options.check(request)?;
        Ok(options)
    }

    fn check(&self, request: &Request) -> Result<(), ProviderError> {
        if self.proxy.is_some() && self.forwarded_for {
            return Err(refused(
                "InvalidAnnotation",
                "proxy-protocol and x-forwarded-for exclude each other".to_owned(),
            ));
        }
        let needs_amphora =
            self.proxy.is_some() || self.forwarded_for || self.tls_container.is_some();
        if self.is_ovn && needs_amphora {
            let message = "the driver ovn has neither the PROXY protocol nor X-Forwarded-For nor TLS: \
                           take away the annotation";
            return Err(refused("NotSupported", message.to_owned()));
        }
        if self.is_ovn && !request.source_ranges.is_empty() {
            let message = "the driver ovn does not filter by source: take away \
                           loadBalancerSourceRanges, or use security groups";
            return Err(refused("NotSupported", message.to_owned()));
        }
        Ok(())
    }

    /// Whether what goes past the balancer would miss something that it adds.
    pub(super) fn alters_traffic(&self) -> bool {
        self.proxy.is_some() || self.forwarded_for || self.tls_container.is_some()
    }
}

/// Whether floating IPs outlive the Service. An address that is lost is lost, so what cannot be
/// understood is a yes.
pub(super) fn keeps_floating_ip(request: &Request) -> bool {
    Annotations {
        request,
        prefix: PREFIX,
    }
    .bool(KEEP)
    .map_or(true, |keep| keep == Some(true))
}

/// A class is chosen by the Service, and says more than its other annotations.
fn networks(said: &Annotations<'_>, config: &Config) -> Result<Networks, ProviderError> {
    let class = match said.text("class") {
        None => Networks::default(),
        Some(name) => config
            .classes
            .get(&name.to_lowercase())
            .cloned()
            .ok_or_else(|| {
                let known: Vec<&str> = config.classes.keys().map(String::as_str).collect();
                let message = format!("there is no [LoadBalancerClass \"{name}\"], only {known:?}");
                refused("InvalidAnnotation", message)
            })?,
    };
    let general = &config.balancers.networks;
    let choose = |class: Option<String>, name, general: &Option<String>| {
        class
            .or_else(|| said.text(name))
            .or_else(|| general.clone())
    };
    let own_network =
        class.subnet.is_none() && (class.network.is_some() || said.text("network-id").is_some());
    Ok(Networks {
        // A network that the Service has a say in is not one of the general subnet.
        subnet: choose(
            class.subnet,
            "subnet-id",
            if own_network { &None } else { &general.subnet },
        ),
        network: choose(class.network, "network-id", &general.network),
        member_subnet: choose(
            class.member_subnet,
            "member-subnet-id",
            &general.member_subnet,
        ),
        floating_network: choose(
            class.floating_network,
            "floating-network-id",
            &general.floating_network,
        ),
        floating_subnet: choose(
            class.floating_subnet,
            "floating-subnet-id",
            &general.floating_subnet,
        ),
    })
}

fn timeouts(said: &Annotations<'_>) -> Result<[u32; 4], ProviderError> {
    Ok([
        said.number("timeout-client-data")?.unwrap_or(50_000),
        said.number("timeout-member-connect")?.unwrap_or(5_000),
        said.number("timeout-member-data")?.unwrap_or(50_000),
        said.number("timeout-tcp-inspect")?.unwrap_or(0),
    ])
}

fn monitor(said: &Annotations<'_>, config: &Config) -> Result<Option<MonitorTimes>, ProviderError> {
    let general = config.balancers.monitor_times;
    let times = MonitorTimes {
        delay: said
            .number("health-monitor-delay")?
            .unwrap_or(general.delay),
        timeout: said
            .number("health-monitor-timeout")?
            .unwrap_or(general.timeout),
        up_after: said
            .number("health-monitor-max-retries")?
            .unwrap_or(general.up_after),
        down_after: said
            .number("health-monitor-max-retries-down")?
            .unwrap_or(general.down_after),
    };
    Ok(said
        .bool("enable-health-monitor")?
        .unwrap_or(config.balancers.monitor)
        .then_some(times))
}

fn proxy(said: &Annotations<'_>) -> Result<Option<&'static str>, ProviderError> {
    match said.text("proxy-protocol").as_deref() {
        None | Some("false") => Ok(None),
        Some("true" | "v1") => Ok(Some("PROXY")),
        Some("v2") => Ok(Some("PROXYV2")),
        Some(value) => Err(said.wrong("proxy-protocol", value, "is not true, v1, v2 or false")),
    }
}

#[cfg(test)]
mod tests;
