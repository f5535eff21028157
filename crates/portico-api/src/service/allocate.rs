//! Which addresses and ports a Service takes and gives back.
//!
//! Nothing is stored here: the claims are returned and commit together with the object, so that a
//! failure further on leaves nothing behind. What a Service owns follows from the object alone
//! (`owned`); the claims of an update are the difference of the two objects.

use super::families;
use super::ranges::{Ranges, pick};
use super::types::*;
use super::update;
use crate::field::{Error, Errors, Path};
use crate::gates::Gates;
use crate::kinds::checks::invalid_all;
use crate::kinds::{Claim, Claims, Pool};
use crate::names;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Everything a Service owns. An ExternalName owns nothing, and its node ports are mere data.
pub(crate) fn owned(service: &Service) -> BTreeSet<Claim> {
    let (spec, space) = (&service.spec, PortSpace::of(service));
    let mut claims = BTreeSet::new();
    if spec.has_cluster_ip() {
        claims.extend(
            spec.cluster_ips
                .iter()
                .filter_map(|text| names::address(text).ok())
                .map(Claim::Address),
        );
    }
    let mut ports = BTreeSet::new();
    if spec.has_node_ports() {
        ports = update::node_ports(spec);
    }
    if spec.needs_health_check() && spec.health_check_node_port != 0 {
        ports.insert(spec.health_check_node_port);
    }
    claims.extend(
        ports
            .into_iter()
            .filter_map(|port| u16::try_from(port).ok())
            .map(|port| space.claim(port)),
    );
    claims
}

/// Where a Service's node ports are unique: in its PortPartition, or among all Services that name
/// none.
#[derive(Clone, PartialEq, Eq)]
struct PortSpace(Option<Arc<str>>);

impl PortSpace {
    fn of(service: &Service) -> Self {
        Self(service.port_partition().map(Arc::from))
    }

    fn claim(&self, port: u16) -> Claim {
        match &self.0 {
            Some(partition) => Claim::PartitionPort(partition.clone(), port),
            None => Claim::NodePort(port),
        }
    }

    /// For errors about its ports.
    fn in_words(&self) -> String {
        self.0
            .as_ref()
            .map(|partition| format!(" in port partition {partition:?}"))
            .unwrap_or_default()
    }

    /// The name becomes a part of a key in the store.
    fn check(&self) -> Result<(), Errors> {
        let Some(partition) = &self.0 else {
            return Ok(());
        };
        let path = Path::new("metadata")
            .child("annotations")
            .key(PORT_PARTITION);
        let problems = names::dns_subdomain(partition, false);
        let errors = invalid_all(&path, partition, problems);
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

/// Settle addresses and ports of a new or changed Service. Errors are about one field and reported
/// alone.
pub(crate) fn allocate(
    service: &mut Service,
    old_service: Option<&Service>,
    ranges: &Ranges,
    gates: &Gates,
    pool: &mut dyn Pool,
    dry_run: bool,
) -> Result<Claims, Errors> {
    let (owned_before, space) = (
        old_service.map(owned).unwrap_or_default(),
        PortSpace::of(service),
    );
    if old_service.is_none_or(|old| PortSpace::of(old) != space) {
        space.check()?;
    }
    let (new, old) = (&mut service.spec, old_service.map(|old| &old.spec));
    // Whether a port is wanted can hang on a field whose gate is off, so it goes first.
    update::drop_disabled(new, old, gates);
    // Ports of another space say nothing about this one: there, they are asked for anew.
    let old_in_space = old_service
        .filter(|old| PortSpace::of(old) == space)
        .map(|old| &old.spec);
    if let Some(old) = old {
        update::keep_assigned_addresses(new, old);
    }
    if let Some(old) = old_in_space {
        update::keep_assigned_ports(new, old);
    }
    update::align_cluster_ips(new, old);
    families::settle(new, old, ranges)?;
    let mut session = Session {
        ranges,
        pool,
        space,
        dry_run,
        taking: BTreeSet::new(),
    };
    session.addresses(new, old)?;
    session.node_ports(new, old_in_space)?;
    session.health_check_port(new, old_in_space)?;
    let owned_after = owned(service);
    Ok(Claims {
        take: (&owned_after - &owned_before).into_iter().collect(),
        free: (&owned_before - &owned_after).into_iter().collect(),
    })
}

/// One allocation: what the pool says, and what has been chosen so far.
struct Session<'a> {
    ranges: &'a Ranges,
    pool: &'a mut dyn Pool,
    space: PortSpace,
    dry_run: bool,
    taking: BTreeSet<Claim>,
}

fn spec(field: &str) -> Path {
    Path::new("spec").child(field)
}

impl Session<'_> {
    fn is_taken(&self, claim: &Claim) -> bool {
        self.taking.contains(claim) || self.pool.is_taken(claim)
    }

    // Addresses

    fn addresses(
        &mut self,
        new: &mut ServiceSpec,
        old: Option<&ServiceSpec>,
    ) -> Result<(), Errors> {
        // Addresses are assigned to a Service that had none, and a second one on the way to two
        // families. Every other change of an address is refused by validation.
        let headless = new.cluster_ips.first().is_some_and(|ip| ip == NONE);
        let old = old.filter(|old| old.has_cluster_ip());
        let first = match old {
            _ if !new.has_cluster_ip() => return Ok(()),
            None if headless => return Ok(()),
            None => 0,
            Some(old) if old.is_headless() || families::prefers_dual_stack_as_before(new, old) => {
                return Ok(());
            }
            Some(old) if old.ip_families.len() == 1 && new.ip_families.len() == 2 => 1,
            Some(_) => return Ok(()),
        };
        for (index, family) in new.ip_families.clone().iter().enumerate().skip(first) {
            let asked = new.cluster_ips.get(index).cloned();
            let address = match &asked {
                Some(text) => self
                    .this_address(text, family)
                    .map_err(|why| format!("failed to allocate IP {text}: {why}")),
                None => self
                    .next_address(family)
                    .map_err(|why| format!("failed to allocate IP: {why}")),
            };
            let address = address.map_err(|why| {
                vec![Error::invalid(
                    &spec("clusterIPs"),
                    new.cluster_ips.clone(),
                    why,
                )]
            })?;
            if asked.is_none() {
                new.cluster_ips.push(address.to_string());
            }
        }
        if let Some(primary) = new.cluster_ips.first() {
            new.cluster_ip.clone_from(primary);
        }
        Ok(())
    }

    fn this_address(&mut self, text: &str, family: &str) -> Result<IpAddr, String> {
        let address = names::address(text)?;
        let range = self
            .ranges
            .of_family(family)
            .ok_or_else(|| format!("{family} is not configured on this cluster"))?;
        if !range.has(address) {
            return Err(format!(
                "the provided IP ({text}) is not in the valid range. The range of valid IPs is \
                 {range}"
            ));
        }
        // A dry run does not look whether the address is in use.
        if self.is_taken(&Claim::Address(address)) && !self.dry_run {
            return Err("provided IP is already allocated".to_owned());
        }
        self.taking.insert(Claim::Address(address));
        Ok(address)
    }

    fn next_address(&mut self, family: &str) -> Result<IpAddr, String> {
        let Self {
            ranges,
            pool,
            taking,
            ..
        } = self;
        let range = ranges
            .of_family(family)
            .ok_or_else(|| format!("{family} is not configured on this cluster"))?;
        let random = pool.random();
        let free = |index| {
            let claim = Claim::Address(range.address(index));
            !taking.contains(&claim) && !pool.is_taken(&claim)
        };
        let index = pick(range.size(), range.band(), random, free)
            .ok_or_else(|| format!("range {range} is full"))?;
        let address = range.address(index);
        taking.insert(Claim::Address(address));
        Ok(address)
    }

    // Node ports

    fn node_ports(
        &mut self,
        new: &mut ServiceSpec,
        old: Option<&ServiceSpec>,
    ) -> Result<(), Errors> {
        match old {
            _ if !new.has_node_ports() => Ok(()),
            None => self.first_node_ports(new),
            Some(old) => self.changed_node_ports(new, old),
        }
    }

    /// On create, ports of the same number (and different protocols) share a node port, the one
    /// that any of them asks for.
    fn first_node_ports(&mut self, new: &mut ServiceSpec) -> Result<(), Errors> {
        let assigns = new.assigns_node_ports();
        let mut asked: BTreeMap<i32, i32> = BTreeMap::new();
        for port in new.ports.iter().filter(|port| port.node_port != 0) {
            asked.entry(port.port).or_insert(port.node_port);
        }
        let mut given: BTreeMap<i32, i32> = BTreeMap::new();
        for (index, port) in new.ports.iter_mut().enumerate() {
            if port.node_port == 0 && !assigns {
                continue;
            }
            let path = spec("ports").index(index).child("nodePort");
            match (given.get(&port.port), asked.get(&port.port)) {
                (Some(&shared), _) if port.node_port == 0 || port.node_port == shared => {
                    port.node_port = shared
                }
                (Some(_), _) => self.this_port(port.node_port, &path)?,
                (None, Some(&wanted)) => {
                    self.this_port(wanted, &path)?;
                    port.node_port = wanted;
                    given.insert(port.port, wanted);
                }
                (None, None) => {
                    port.node_port = self.next_port(&path)?;
                    given.insert(port.port, port.node_port);
                }
            }
        }
        Ok(())
    }

    /// On update, node ports that the Service owns stay without question, and any port may use
    /// them.
    fn changed_node_ports(
        &mut self,
        new: &mut ServiceSpec,
        old: &ServiceSpec,
    ) -> Result<(), Errors> {
        let assigns = new.assigns_node_ports();
        let mut own = if old.has_node_ports() {
            update::node_ports(old)
        } else {
            BTreeSet::new()
        };
        let mut used: BTreeSet<(String, i32)> = BTreeSet::new();
        for (index, port) in new.ports.iter_mut().enumerate() {
            let path = spec("ports").index(index).child("nodePort");
            if port.node_port == 0 {
                if !assigns {
                    continue;
                }
                port.node_port = self.next_port(&path)?;
            } else if own.insert(port.node_port) {
                self.this_port(port.node_port, &path)?;
            }
            if !used.insert((port.protocol.clone(), port.node_port)) {
                return Err(vec![Error::duplicate(&path, port.node_port)]);
            }
        }
        Ok(())
    }

    fn health_check_port(
        &mut self,
        new: &mut ServiceSpec,
        old: Option<&ServiceSpec>,
    ) -> Result<(), Errors> {
        let path = spec("healthCheckNodePort");
        let had = old
            .filter(|old| old.needs_health_check())
            .map_or(0, |old| old.health_check_node_port);
        if new.health_check_node_port == 0 {
            if new.assigns_health_check_port() {
                new.health_check_node_port = self.next_port(&path)?;
            }
        } else if new.needs_health_check() && had == 0 {
            self.this_port(new.health_check_node_port, &path)?;
        }
        Ok(())
    }

    fn this_port(&mut self, wanted: i32, path: &Path) -> Result<(), Errors> {
        let refused = |why: String| Err(vec![Error::invalid(path, wanted, why)]);
        let ports = &self.ranges.node_ports;
        if ports.is_empty() {
            return refused(no_ports());
        }
        let port = match u16::try_from(wanted) {
            Ok(port) if ports.has(port) => port,
            // A dry run does not look whether the port is in the range, or a port at all.
            Ok(port) if self.dry_run => port,
            Err(_) if self.dry_run => return Ok(()),
            _ => {
                return refused(format!(
                    "provided port is not in the valid range. The range of valid ports is {ports}"
                ));
            }
        };
        let claim = self.space.claim(port);
        if self.is_taken(&claim) {
            return refused(format!(
                "provided port is already allocated{}",
                self.space.in_words()
            ));
        }
        self.taking.insert(claim);
        Ok(())
    }

    fn next_port(&mut self, path: &Path) -> Result<i32, Errors> {
        let Self {
            ranges,
            pool,
            space,
            taking,
            ..
        } = self;
        let ports = &ranges.node_ports;
        let random = pool.random();
        let free = |index| {
            let claim = ports.port(index).map(|port| space.claim(port));
            claim.is_some_and(|claim| !taking.contains(&claim) && !pool.is_taken(&claim))
        };
        let found =
            pick(ports.size(), ports.band(), random, free).and_then(|index| ports.port(index));
        let port = found.ok_or_else(|| {
            let why = if ports.is_empty() {
                no_ports()
            } else {
                format!(
                    "failed to allocate a port: range {ports} is full{}",
                    space.in_words()
                )
            };
            vec![Error::invalid(path, 0, why)]
        })?;
        taking.insert(space.claim(port));
        Ok(port.into())
    }
}

fn no_ports() -> String {
    "this server hands out no node ports: --service-node-port-range (--public_service_ports) is 0-0"
        .to_owned()
}
