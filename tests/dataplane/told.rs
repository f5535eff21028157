//! What the engine of `portico explain` says of a probe, by the objects that the API server has at
//! that moment: what became of the packets must be just that. Asked in this process, since to start
//! another for each probe takes too long where there is one CPU.

use portico_model::table::FrontendKey;
use portico_node::config::{Arguments, Config, Surroundings, interpret};
use portico_node::inspect::{self, Differences};
use serde_json::Value;

use crate::control::Refused;
use crate::lab::Lab;
use crate::scenario::{Probe, Step};
use crate::tables::{Cluster, Question, agrees};

/// What a table is made of.
const KINDS: [&str; 5] = ["Node", "ServiceCIDR", "Service", "EndpointSlice", "Pod"];

/// The tables of all nodes.
pub(crate) struct Told(Cluster);

impl Told {
    /// `None` where packets do not only meet what the tables say: the step does not wait until all
    /// nodes have followed, or the rules of one are left to themselves.
    pub(crate) async fn of(lab: &Lab, step: &Step) -> Result<Option<Self>, Refused> {
        if !step.sync || !lab.all_run() || !step.probes.iter().any(is_asked) {
            return Ok(None);
        }
        let mut cluster = Cluster::new(lab.mode, |node| configuration(&lab.config(node)).settings);
        for kind in KINDS {
            lab.control
                .list(kind)
                .await?
                .into_iter()
                .for_each(|object| cluster.apply(object));
        }
        Ok(Some(Self(cluster)))
    }

    /// How the kernel of a node differs from its table, as `portico explain` finds it out. With
    /// IPVS, what is kept for connections that live on is no difference.
    pub(crate) async fn kernel_differs(&self, lab: &Lab, node: &str) -> Option<String> {
        let (config, host) = (configuration(&lab.config(node)), lab.host(node).clone());
        let table = self.0.table(node).clone();
        let (key, port) = table
            .ports
            .iter()
            .find(|(_, port)| !port.frontends.is_empty())?;
        let frontend = FrontendKey::of(&port.frontends[0], key);
        // It may take long, and connections to the API server want to be looked after meanwhile.
        let look = move || host.enter(|| inspect::compare(&config, &table, &frontend));
        let told = tokio::task::spawn_blocking(look).await.unwrap();
        match told {
            Err(error) => Some(format!("cannot look at the kernel of {node}: {error}")),
            Ok(Differences {
                of_frontend,
                of_all,
                of_others,
            }) if of_frontend.is_empty()
                && of_all.is_empty()
                && (of_others == 0 || lab.mode == "ipvs") =>
            {
                None
            }
            Ok(told) => Some(format!("the kernel of {node} differs: {told:?}")),
        }
    }

    /// Whether that is what became of the packets of a probe; `None` if it was not about new
    /// connections.
    pub(crate) fn of_probe(&self, probe: &Probe, packets: &Value) -> Option<Result<(), String>> {
        if !is_asked(probe) {
            return None;
        }
        let source = probe.src.as_ref().map(|text| text.parse().unwrap());
        let (protocol, via) = (probe.proto.as_deref(), probe.via.as_deref());
        let (told, why) = self.0.connect(&Question {
            from: &probe.from,
            to: &probe.to,
            protocol,
            via,
            source,
        });
        let same = match (packets["reach"] == "among", &probe.among) {
            // Who of them it was is not known any more. Who stays with an endpoint does not go to
            // newer ones.
            (true, Some(among)) => told["reach"].as_object().is_some_and(|reached| {
                let mut known = reached.keys().map(|name| among.contains(name));
                if told["sticky"] == true {
                    known.any(|known| known)
                } else {
                    !reached.is_empty() && known.all(|known| known)
                }
            }),
            _ => agrees(packets, &told, probe.kind == "open"),
        };
        Some(if same {
            Ok(())
        } else {
            Err(format!("explain says {told}, packets say {packets}\n{why}"))
        })
    }
}

/// Packets of new connections are what the tables speak of.
fn is_asked(probe: &Probe) -> bool {
    matches!(probe.kind.as_str(), "connect" | "open" | "affinity")
}

/// What a node is told by this file.
fn configuration(config: &Value) -> Config {
    let file = ("node.json".into(), config.to_string());
    let loaded = interpret(&Arguments::default(), Some(file), &Surroundings::default());
    loaded
        .unwrap_or_else(|error| panic!("{config}: {error}"))
        .config
}
