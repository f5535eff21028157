//! What the demo prints: its progress, the screenful to start from, and what happens then.

use super::demo::{DNS_SERVER, DNS_ZONE};
use portico_netns::lab::{CLIENT, CLIENT_ADDRESS, PLACES, POD_RANGE};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// All that is worth knowing, once everything works.
pub(super) struct Facts<'a> {
    pub api: SocketAddr,
    pub dashboard: &'a str,
    pub kubeconfig: &'a Path,
    pub logs: &'a Path,
    pub balancer: IpAddr,
    pub owner: &'a str,
    pub cluster_ip: &'a str,
    pub node_port: u16,
    /// How to call this program.
    pub portico: &'a str,
    /// What to say of the lab in a command, if it is not the usual one.
    pub lab: &'a str,
    /// Its name, for commands that do not look for the usual one.
    pub lab_name: &'a str,
}

pub(super) fn step(number: usize, all: usize, what: &str, took: Duration) -> String {
    format!("[{number}/{all}] {what:<58} {:>6} ms\n", took.as_millis())
}

impl Facts<'_> {
    pub(super) fn screen(&self) -> String {
        let mut text = String::new();
        let Facts {
            balancer,
            owner,
            cluster_ip,
            node_port,
            ..
        } = self;
        let nodes = PLACES.map(|place| format!("{} {}", place.node, place.address));
        let _ = write!(
            text,
            "
  client ── router ─┬─ {} ── {}
                    ├─ {} ── {}
                    └─ {} ── {}

  Services    web           load balancer  {balancer}:80, answered for by {owner}
              web-public    node port      {node_port} of every node
              web-internal  cluster IP     {cluster_ip}:80
  dashboard   {}
  DNS         {}
  API server  https://{}
  kubeconfig  {}
  logs        {}

Five things to try, in another terminal (as root; Ctrl-C here ends everything, and nothing stays):

",
            nodes[0],
            PLACES[0].pod,
            nodes[1],
            PLACES[1].pod,
            nodes[2],
            PLACES[2].pod,
            self.dashboard,
            self.dig(),
            self.api,
            self.kubeconfig.display(),
            self.logs.display(),
        );
        for (number, (command, why)) in self.things_to_try().iter().enumerate() {
            let _ = writeln!(text, "  {}. {command}\n     {why}", number + 1);
        }
        text.push('\n');
        text
    }

    /// The load balancer by its name, as clients outside the cluster ask for it.
    fn dig(&self) -> String {
        let Facts { portico, lab, .. } = self;
        format!(
            "{portico} lab{lab} exec {CLIENT} -- dig +short @{DNS_SERVER} web.default.lb.{DNS_ZONE}"
        )
    }

    /// Commands that work as they are printed, and what they show.
    pub(super) fn things_to_try(&self) -> [(String, String); 5] {
        let Facts {
            balancer,
            owner,
            portico,
            lab,
            lab_name,
            ..
        } = self;
        let kubectl = format!("kubectl --kubeconfig {}", self.kubeconfig.display());
        let portico_lab = format!("{portico} lab{lab}");
        [
            (
                format!("{kubectl} get services"),
                "the Services, with the address from the pool".to_owned(),
            ),
            (
                format!("{portico_lab} exec {CLIENT} -- curl -s http://{balancer}/"),
                "from outside, through the load balancer's address: again and again, each pod \
                 answers"
                    .to_owned(),
            ),
            (
                format!("{portico_lab} kill {owner}"),
                format!(
                    "its address moves to another node in less than a second; back with: \
                     {portico_lab} start {owner}"
                ),
            ),
            (
                format!(
                    "{portico} explain --lab {lab_name} --kubeconfig {} --from {CLIENT_ADDRESS} --to {balancer}:80/tcp --node {owner} \
                     --cluster-cidr {POD_RANGE}",
                    self.kubeconfig.display()
                ),
                "where a packet of the client goes, and why; and whether the node's kernel has it \
                 so"
                .to_owned(),
            ),
            (
                format!("{kubectl} delete pod {}", PLACES[0].pod),
                "drains an endpoint: nobody is sent there any more".to_owned(),
            ),
        ]
    }
}
