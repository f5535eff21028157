//! The smallest cloud with a provider for it: an address, listeners, a pool of nodes and a firewall
//! for each Service, each made by a call of its own. And faults that a provider may have, each of
//! which a test has to find.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::conformance::{Fault, FaultPlan, Lab, World};
use crate::{
    Abilities, Answer, Balancer, Family, Host, Ingress, IpMode, Protocol, Provider, ProviderError,
    Request,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flaw {
    /// What a careful author would write.
    None,
    FailsToDeleteNothing,
    DescribesNothing,
    DescribesOthers,
    DescribesWrongly,
    EnsureAddsEachTime,
    EnsureMovesAddress,
    LosesNodes,
    IgnoresNodes,
    ForgetsNoNodes,
    IgnoresNodePorts,
    KeepsPorts,
    IgnoresPolicy,
    KeepsRanges,
    RefusesRanges,
    IgnoresAffinity,
    NoUdp,
    NoIpv6,
    OneFamily,
    OneAtATime,
    SharesPool,
    ByName,
    LeaksFirewall,
    NeedsPortsToDelete,
    TouchesOthers,
    NeverReady,
    NeverAnswers,
    /// Only faults show these.
    NamesByStart,
    DeletesAddressFirst,
    RefusesOnFault,
}

#[derive(Default)]
struct Server {
    /// By kind and name.
    things: BTreeMap<(String, String), String>,
    numbers: u16,
    starts: usize,
}

#[derive(Clone)]
pub(crate) struct Cloudlet {
    server: Arc<Mutex<Server>>,
    plan: Arc<FaultPlan>,
    flaw: Flaw,
    starts: usize,
}

impl Cloudlet {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let cloudlet = Self {
            server: Arc::default(),
            plan: Arc::default(),
            flaw,
            starts: 0,
        };
        let others = ("firewall".to_owned(), "somebody-else".to_owned());
        cloudlet
            .server
            .lock()
            .unwrap()
            .things
            .insert(others, "allow everything".to_owned());
        cloudlet
    }

    /// One call to the server, as a layer for HTTP makes it.
    async fn call<T>(
        &self,
        what: &str,
        act: impl FnOnce(&mut Server) -> T,
    ) -> Result<T, ProviderError> {
        tokio::task::yield_now().await;
        let fault = self.plan.next(what);
        match fault {
            Some(fault) if !fault.arrives() && fault.is_crash() => return self.plan.crash().await,
            Some(fault) if !fault.arrives() => return Err(self.trouble(fault)),
            _ => {}
        }
        let answer = act(&mut self.server.lock().unwrap());
        match fault {
            None => Ok(answer),
            Some(fault) if fault.is_crash() => self.plan.crash().await,
            Some(fault) => Err(self.trouble(fault)),
        }
    }

    fn trouble(&self, fault: Fault) -> ProviderError {
        match fault {
            Fault::TooMany => ProviderError::RetryAfter {
                after: Duration::from_secs(3600),
                reason: "busy".to_owned(),
            },
            fault if self.flaw == Flaw::RefusesOnFault => ProviderError::Refused {
                reason: "No",
                message: format!("{fault:?}"),
            },
            fault => ProviderError::Failed(format!("{fault:?}")),
        }
    }

    async fn put(&self, kind: &str, name: &str, text: String) -> Result<(), ProviderError> {
        let key = (kind.to_owned(), name.to_owned());
        self.call(&format!("put {kind}"), |server| {
            _ = server.things.insert(key, text)
        })
        .await
    }

    async fn remove(&self, kind: &str, name: &str) -> Result<(), ProviderError> {
        let key = (kind.to_owned(), name.to_owned());
        self.call(&format!("delete {kind}"), |server| {
            _ = server.things.remove(&key)
        })
        .await
    }

    async fn list(&self, kind: &str, name: &str) -> Result<Vec<(String, String)>, ProviderError> {
        let select = |server: &mut Server| {
            let named = server
                .things
                .iter()
                .filter(|((its, full), _)| its == kind && full.starts_with(name));
            named
                .map(|((_, full), text)| (full.clone(), text.clone()))
                .collect()
        };
        self.call(&format!("list {kind}"), select).await
    }

    fn name_of(&self, request: &Request) -> String {
        match self.flaw {
            Flaw::ByName => request.service.name.clone(),
            _ => request.balancer_name.clone(),
        }
    }

    async fn addresses(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let name = self.name_of(request);
        let mut have = self.list("address", &name).await?;
        for family in self.families(request) {
            let full = format!("{name}-{family:?}");
            if have.iter().any(|(had, _)| *had == full) && self.flaw != Flaw::EnsureMovesAddress {
                continue;
            }
            let create = |server: &mut Server| {
                server.numbers += 1;
                let [high, low] = server.numbers.to_be_bytes();
                let address = match family {
                    Family::V4 => IpAddr::V4(Ipv4Addr::new(198, 18, high, low)),
                    Family::V6 => {
                        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, server.numbers))
                    }
                };
                server
                    .things
                    .insert(("address".to_owned(), full), address.to_string());
            };
            self.call("create address", create).await?;
            have = self.list("address", &name).await?;
        }
        Ok(balancer(&have))
    }

    fn families<'a>(&self, request: &'a Request) -> impl Iterator<Item = Family> + use<'a> {
        let most = if self.flaw == Flaw::OneFamily { 1 } else { 2 };
        let none = self.flaw == Flaw::NoIpv6;
        request
            .families
            .iter()
            .take(most)
            .map(move |family| if none { Family::V4 } else { *family })
    }

    async fn pool(&self, request: &Request) -> Result<(), ProviderError> {
        let mut nodes: Vec<&str> = request
            .nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        match self.flaw {
            Flaw::LosesNodes if nodes.len() == 3 => nodes.truncate(1),
            Flaw::ForgetsNoNodes if nodes.is_empty() => return Ok(()),
            _ => {}
        }
        let name = match self.flaw {
            Flaw::SharesPool => "a-pool".to_owned(),
            Flaw::NamesByStart => format!("{}-{}", self.name_of(request), self.starts),
            _ => self.name_of(request),
        };
        self.put("pool", &name, nodes.join(",")).await
    }

    async fn listeners(&self, request: &Request) -> Result<(), ProviderError> {
        let name = self.name_of(request);
        let mut wanted = Vec::new();
        for port in &request.ports {
            let full = format!("{name}-{}-{}", port.protocol, port.port);
            let node_port = if self.flaw == Flaw::IgnoresNodePorts {
                0
            } else {
                port.node_port
            };
            let check = request
                .health_check
                .as_ref()
                .filter(|_| self.flaw != Flaw::IgnoresPolicy);
            let affinity = request
                .affinity
                .filter(|_| self.flaw != Flaw::IgnoresAffinity);
            self.put(
                "listener",
                &full,
                format!("to {node_port} {check:?} {affinity:?}"),
            )
            .await?;
            wanted.push(full);
        }
        for (old, _) in self.list("listener", &name).await? {
            if !wanted.contains(&old) && self.flaw != Flaw::KeepsPorts {
                self.remove("listener", &old).await?;
            }
        }
        Ok(())
    }

    async fn firewall(&self, request: &Request) -> Result<(), ProviderError> {
        let name = self.name_of(request);
        match (request.source_ranges.is_empty(), self.flaw) {
            (true, Flaw::KeepsRanges) => Ok(()),
            (true, _) => self.remove("firewall", &name).await,
            (false, Flaw::RefusesRanges) => Err(ProviderError::Refused {
                reason: "No",
                message: "no source ranges".to_owned(),
            }),
            (false, _) => {
                self.put("firewall", &name, format!("{:?}", request.source_ranges))
                    .await
            }
        }
    }

    async fn make(&self, request: &Request) -> Result<Balancer, ProviderError> {
        let is_busy = self.flaw == Flaw::OneAtATime && request.service.name.ends_with('2');
        let has_udp = request
            .ports
            .iter()
            .any(|port| port.protocol == Protocol::Udp);
        match self.flaw {
            Flaw::NoUdp if has_udp => return Err(ProviderError::Failed("what is UDP?".to_owned())),
            Flaw::NeverAnswers => return std::future::pending().await,
            Flaw::TouchesOthers if request.local => {
                self.put("firewall", "somebody-else", "closed".to_owned())
                    .await?;
            }
            Flaw::EnsureAddsEachTime => {
                let number = self.server.lock().unwrap().things.len();
                self.put(
                    "note",
                    &format!("{}-{number}", request.balancer_name),
                    String::new(),
                )
                .await?;
            }
            _ => {}
        }
        if is_busy {
            self.server
                .lock()
                .unwrap()
                .things
                .retain(|(kind, _), _| kind != "listener");
        }
        let mut balancer = self.addresses(request).await?;
        self.pool(request).await?;
        self.firewall(request).await?;
        self.listeners(request).await?;
        if self.flaw == Flaw::NeverReady {
            balancer.pending = Some("warming up".to_owned());
        }
        Ok(balancer)
    }

    async fn look(&self, request: &Request) -> Result<Option<Balancer>, ProviderError> {
        let name = if self.flaw == Flaw::DescribesOthers {
            "a".to_owned()
        } else {
            self.name_of(request)
        };
        let found = self.list("address", &name).await?;
        Ok(match self.flaw {
            Flaw::DescribesNothing => None,
            Flaw::DescribesWrongly => (!found.is_empty()).then(Balancer::default),
            _ => (!found.is_empty()).then(|| balancer(&found)),
        })
    }

    async fn destroy(&self, request: &Request) -> Result<(), ProviderError> {
        let name = self.name_of(request);
        let addresses = self.list("address", &name).await?;
        if addresses.is_empty() && self.flaw == Flaw::FailsToDeleteNothing {
            return Err(ProviderError::Failed("404".to_owned()));
        }
        if addresses.is_empty() && self.flaw == Flaw::DeletesAddressFirst {
            return Ok(());
        }
        let mut kinds = vec!["listener", "pool", "firewall", "note", "address"];
        match self.flaw {
            Flaw::LeaksFirewall => kinds.retain(|kind| *kind != "pool"),
            Flaw::DeletesAddressFirst => kinds.rotate_right(1),
            Flaw::NeedsPortsToDelete if request.ports.is_empty() => {
                kinds.retain(|kind| *kind != "listener")
            }
            _ => {}
        }
        for kind in kinds {
            for (full, _) in self.list(kind, &name).await? {
                self.remove(kind, &full).await?;
            }
        }
        Ok(())
    }
}

fn balancer(addresses: &[(String, String)]) -> Balancer {
    let hosts = addresses
        .iter()
        .map(|(_, address)| Host::Ip(address.parse().unwrap()));
    Balancer {
        ingress: hosts
            .map(|host| Ingress {
                host,
                mode: IpMode::Vip,
            })
            .collect(),
        pending: None,
    }
}

impl Provider for Cloudlet {
    fn name(&self) -> &str {
        "cloudlet"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.look(request).boxed()
    }

    fn ensure<'a>(&'a self, request: &'a Request) -> Answer<'a, Balancer> {
        self.make(request).boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        match self.flaw {
            Flaw::IgnoresNodes => async { Ok(()) }.boxed(),
            _ => self.pool(request).boxed(),
        }
    }

    fn delete<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        self.destroy(request).boxed()
    }
}

impl World for Cloudlet {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async { Ok(self.lines(|name| name != "somebody-else")) }.boxed()
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async { Ok(self.lines(|name| name == "somebody-else")) }.boxed()
    }
}

impl Lab for Cloudlet {
    fn start(&self) -> BoxFuture<'_, Arc<dyn Provider>> {
        let mut server = self.server.lock().unwrap();
        server.starts += 1;
        let again: Arc<dyn Provider> = Arc::new(Self {
            starts: server.starts,
            ..self.clone()
        });
        async { again }.boxed()
    }

    fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

impl Cloudlet {
    fn lines(&self, select: impl Fn(&str) -> bool) -> Vec<String> {
        let server = self.server.lock().unwrap();
        let selected = server.things.iter().filter(|((_, name), _)| select(name));
        selected
            .map(|((kind, name), text)| format!("{kind} {name}: {text}"))
            .collect()
    }
}
