//! The flags: those of kube-proxy, each tied to the field of the configuration file that it stands
//! for, and a few of our own.
//!
//! Only parsing to raw arguments happens here.

use super::document::set;
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One flag.
pub struct Flag {
    /// The name, without the dashes.
    pub name: &'static str,
    takes: Takes,
    /// The fields it sets; none for flags that are looked up by name.
    pub fields: &'static [&'static str],
    /// It counts even where a configuration file is given.
    pub always: bool,
    /// `false` for those that kube-proxy has and that mean nothing here.
    pub effect: bool,
    /// What it is for, or why it has no effect.
    pub help: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// `--flag`, `--flag=true`, `--flag=false`.
    Switch,
    Value(&'static str),
    /// May be given several times; a value may have commas.
    List(&'static str),
    /// The same, of names with values.
    Gates(&'static str),
}

use Takes::{Gates, List, Switch, Value as One};

const fn flag(
    name: &'static str,
    takes: Takes,
    fields: &'static [&'static str],
    help: &'static str,
) -> Flag {
    Flag {
        name,
        takes,
        fields,
        always: false,
        effect: true,
        help,
    }
}

const fn always(
    name: &'static str,
    takes: Takes,
    fields: &'static [&'static str],
    help: &'static str,
) -> Flag {
    Flag {
        name,
        takes,
        fields,
        always: true,
        effect: true,
        help,
    }
}

const fn no_effect(
    name: &'static str,
    takes: Takes,
    fields: &'static [&'static str],
    why: &'static str,
) -> Flag {
    Flag {
        name,
        takes,
        fields,
        always: true,
        effect: false,
        help: why,
    }
}

const ONLY_GO: &str = "there is nothing like it here";

pub(super) const FLAGS: &[Flag] = &[
    always(
        "config",
        One("FILE"),
        &[],
        "Read a KubeProxyConfiguration; most flags do not count then",
    ),
    flag(
        "kubeconfig",
        One("FILE"),
        &["clientConnection.kubeconfig"],
        "How to reach the API server [default: the pod's own]",
    ),
    always(
        "master",
        One("URL"),
        &[],
        "Where the API server is, whatever the kubeconfig says",
    ),
    always(
        "hostname-override",
        One("NAME"),
        &["hostnameOverride"],
        "The name of this Node [default: $NODE_NAME, the hostname]",
    ),
    flag(
        "proxy-mode",
        One("MODE"),
        &["mode"],
        "How to forward: nftables, iptables or ipvs [default: nftables]",
    ),
    flag(
        "cluster-cidr",
        One("CIDR[,CIDR]"),
        &["clusterCIDR"],
        "Addresses of pods, for --detect-local-mode=ClusterCIDR",
    ),
    flag(
        "detect-local-mode",
        One("MODE"),
        &["detectLocalMode"],
        "How to tell the pods of this node: ClusterCIDR, NodeCIDR, BridgeInterface or \
         InterfaceNamePrefix [default: ClusterCIDR]",
    ),
    flag(
        "pod-bridge-interface",
        One("NAME"),
        &["detectLocal.bridgeInterface"],
        "The bridge of the pods, for --detect-local-mode=BridgeInterface",
    ),
    flag(
        "pod-interface-name-prefix",
        One("PREFIX"),
        &["detectLocal.interfaceNamePrefix"],
        "How interfaces of pods begin, for --detect-local-mode=InterfaceNamePrefix",
    ),
    flag(
        "nodeport-addresses",
        List("CIDR,..."),
        &["nodePortAddresses"],
        "Where node ports answer: networks, `node` for all addresses of the Node, or `primary` for \
         the first of each family [default: node, with --config primary; in iptables and ipvs mode \
         all]",
    ),
    flag(
        "masquerade-all",
        Switch,
        &["nftables.masqueradeAll", "iptables.masqueradeAll"],
        "Replace the source of everything sent to cluster IPs",
    ),
    flag(
        "iptables-masquerade-bit",
        One("BIT"),
        &["iptables.masqueradeBit"],
        "The bit of the packet mark that asks for masquerading, in iptables mode [default: 14]",
    ),
    flag(
        "iptables-localhost-nodeports",
        Switch,
        &["iptables.localhostNodePorts"],
        "Let node ports answer on 127.0.0.1, in iptables mode [default: true]",
    ),
    flag(
        "iptables-sync-period",
        One("DURATION"),
        &["iptables.syncPeriod", "nftables.syncPeriod"],
        "How often to look for rules that others changed [default: 30s]",
    ),
    flag(
        "ipvs-scheduler",
        One("NAME"),
        &["ipvs.scheduler"],
        "How an endpoint is chosen, in ipvs mode: rr, wrr, lc, wlc, sh, dh, sed, nq, mh [default: \
         rr]",
    ),
    flag(
        "ipvs-strict-arp",
        Switch,
        &["ipvs.strictARP"],
        "Do not answer for the addresses of Services when somebody asks who has them, in ipvs mode",
    ),
    flag(
        "ipvs-exclude-cidrs",
        List("CIDR,..."),
        &["ipvs.excludeCIDRs"],
        "Virtual servers there are somebody else's, in ipvs mode",
    ),
    flag(
        "ipvs-sync-period",
        One("DURATION"),
        &["ipvs.syncPeriod"],
        "How often to look for what others changed, in ipvs mode [default: 30s]",
    ),
    flag(
        "ipvs-tcp-timeout",
        One("DURATION"),
        &["ipvs.tcpTimeout"],
        "After which IPVS forgets an idle TCP connection, 0 to leave it",
    ),
    flag(
        "ipvs-tcpfin-timeout",
        One("DURATION"),
        &["ipvs.tcpFinTimeout"],
        "After which IPVS forgets a TCP connection that was closed, 0 to leave it",
    ),
    flag(
        "ipvs-udp-timeout",
        One("DURATION"),
        &["ipvs.udpTimeout"],
        "After which IPVS forgets an idle UDP flow, 0 to leave it",
    ),
    flag(
        "healthz-bind-address",
        One("IP:PORT"),
        &["healthzBindAddress"],
        "Where to answer for the node's health, empty for nowhere [default: 0.0.0.0:10256]",
    ),
    flag(
        "metrics-bind-address",
        One("IP:PORT"),
        &["metricsBindAddress"],
        "Where to show metrics, empty for nowhere [default: 127.0.0.1:10249]",
    ),
    flag(
        "bind-address",
        One("IP"),
        &["bindAddress"],
        "The primary address of this node, if the Node does not say it",
    ),
    flag(
        "bind-address-hard-fail",
        Switch,
        &["bindAddressHardFail"],
        "Stop when the port for health or metrics is taken, instead of trying again",
    ),
    flag(
        "conntrack-max-per-core",
        One("N"),
        &["conntrack.maxPerCore"],
        "Connections to track per CPU, 0 to leave it [default: 32768]",
    ),
    flag(
        "conntrack-min",
        One("N"),
        &["conntrack.min"],
        "Connections to track at least [default: 131072]",
    ),
    flag(
        "conntrack-tcp-timeout-established",
        One("DURATION"),
        &["conntrack.tcpEstablishedTimeout"],
        "After which an idle TCP connection is forgotten, 0 to leave it [default: 24h]",
    ),
    flag(
        "conntrack-tcp-timeout-close-wait",
        One("DURATION"),
        &["conntrack.tcpCloseWaitTimeout"],
        "After which a half-closed TCP connection is forgotten, 0 to leave it [default: 1h]",
    ),
    flag(
        "conntrack-tcp-be-liberal",
        Switch,
        &["conntrack.tcpBeLiberal"],
        "Track TCP packets outside of the window as well",
    ),
    flag(
        "conntrack-udp-timeout",
        One("DURATION"),
        &["conntrack.udpTimeout"],
        "After which an unanswered UDP flow is forgotten, 0 to leave it",
    ),
    flag(
        "conntrack-udp-timeout-stream",
        One("DURATION"),
        &["conntrack.udpStreamTimeout"],
        "After which an answered UDP flow is forgotten, 0 to leave it",
    ),
    flag(
        "oom-score-adj",
        One("N"),
        &["oomScoreAdj"],
        "How unlikely the kernel is to kill this process when memory is short [default: -999]",
    ),
    always(
        "data-dir",
        One("DIR"),
        &[],
        "Remember the last known Services here, for a start without an API server; empty for \
         nowhere [default: /var/lib/portico/node]",
    ),
    always(
        "static-services",
        One("DIR"),
        &[],
        "Serve the Services and EndpointSlices in these files too, with or without an API server; \
         empty for none [default: /run/portico/services]",
    ),
    always(
        "announce",
        One("WHEN"),
        &[],
        "Announce addresses of load balancers: auto, where there are AddressPools, or off \
         [default: auto]",
    ),
    always(
        "announce-key-file",
        One("FILE"),
        &[],
        "The key by which nodes know each other's heartbeats [default: the Secret \
         kube-system/portico-announce]",
    ),
    always(
        "announce-port",
        One("PORT"),
        &[],
        "The UDP port of heartbeats, the same on all nodes [default: 10262]",
    ),
    always(
        "edge",
        One("WHEN"),
        &[],
        "Send connections from outside, as they are, to the node that all nodes agree upon: auto, \
         where nodes announce addresses and forward by nftables, or off [default: off]",
    ),
    always(
        "count-connections",
        Switch,
        &[],
        "Count the connections of each endpoint when somebody reads the metrics, which takes a \
         while where there are many",
    ),
    always(
        "cleanup",
        Switch,
        &[],
        "Remove the rules of all modes and exit",
    ),
    always(
        "init-only",
        Switch,
        &[],
        "Do what needs full privileges and exit",
    ),
    always(
        "write-config-to",
        One("FILE"),
        &[],
        "Write the configuration with its defaults and exit",
    ),
    always(
        "v",
        One("LEVEL"),
        &["logging.verbosity"],
        "How much to log: 4 for debugging, 6 for everything",
    ),
    always(
        "logging-format",
        One("FORMAT"),
        &["logging.format"],
        "text or json",
    ),
    flag(
        "healthz-port",
        One("PORT"),
        &[],
        "Use --healthz-bind-address instead; 0 for nowhere",
    ),
    flag(
        "metrics-port",
        One("PORT"),
        &[],
        "Use --metrics-bind-address instead; 0 for nowhere",
    ),
    flag(
        "feature-gates",
        Gates("NAME=BOOL,..."),
        &["featureGates"],
        "AllowServiceExternalIPs=false to serve no external IPs, LoadBalancerIPMode=false to serve \
         addresses of load balancers whatever their ipMode; others mean nothing here",
    ),
    no_effect(
        "config-sync-period",
        One("DURATION"),
        &["configSyncPeriod"],
        "the API server is watched",
    ),
    no_effect(
        "iptables-min-sync-period",
        One("DURATION"),
        &["iptables.minSyncPeriod", "nftables.minSyncPeriod"],
        "changes are installed at once",
    ),
    no_effect(
        "kube-api-burst",
        One("N"),
        &["clientConnection.burst"],
        "there are few requests",
    ),
    no_effect(
        "kube-api-qps",
        One("N"),
        &["clientConnection.qps"],
        "there are few requests",
    ),
    no_effect(
        "kube-api-content-type",
        One("TYPE"),
        &["clientConnection.contentType"],
        "JSON is spoken",
    ),
    no_effect("profiling", Switch, &["enableProfiling"], ONLY_GO),
    no_effect(
        "show-hidden-metrics-for-version",
        One("VERSION"),
        &["showHiddenMetricsForVersion"],
        ONLY_GO,
    ),
    no_effect(
        "ipvs-min-sync-period",
        One("DURATION"),
        &["ipvs.minSyncPeriod"],
        "changes are installed at once",
    ),
    no_effect("boot-id-file", One("FILE,..."), &[], ONLY_GO),
    no_effect("machine-id-file", One("FILE,..."), &[], ONLY_GO),
    no_effect(
        "vmodule",
        One("PATTERN=N,..."),
        &["logging.vmodule"],
        "PORTICO_LOG chooses what is logged",
    ),
    no_effect(
        "log-flush-frequency",
        One("DURATION"),
        &["logging.flushFrequency"],
        "lines are written at once",
    ),
    no_effect(
        "log-json-info-buffer-size",
        One("SIZE"),
        &["logging.options.json.infoBufferSize"],
        ONLY_GO,
    ),
    no_effect(
        "log-json-split-stream",
        Switch,
        &["logging.options.json.splitStream"],
        ONLY_GO,
    ),
    no_effect(
        "log-text-info-buffer-size",
        One("SIZE"),
        &["logging.options.text.infoBufferSize"],
        ONLY_GO,
    ),
    no_effect(
        "log-text-split-stream",
        Switch,
        &["logging.options.text.splitStream"],
        ONLY_GO,
    ),
];

/// The flag that sets a field, or else the field itself.
pub(super) fn name_of_field(field: &str) -> String {
    let setter = FLAGS.iter().find(|flag| flag.fields.contains(&field));
    setter.map_or_else(|| field.to_owned(), |flag| format!("--{}", flag.name))
}

/// What was given on the command line, unread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<&'static str, Vec<String>>);

impl Arguments {
    /// The value of a flag, if it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str)
    }

    /// Whether a flag without a value was given, or one with the value `true`.
    pub fn switch(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// The flags that were given.
    pub fn given(&self) -> impl Iterator<Item = &'static Flag> {
        FLAGS.iter().filter(|flag| self.0.contains_key(flag.name))
    }

    /// Put what was given over a configuration: all of it, or only what counts beside a file.
    pub fn put_over(&self, tree: &mut Value, only_always: bool) {
        for flag in self.given().filter(|flag| flag.always || !only_always) {
            let values = self.0.get(flag.name).into_iter().flatten();
            let value = match flag.takes {
                List(_) => Value::from(values.flat_map(|text| text.split(',')).collect::<Vec<_>>()),
                Gates(_) => values
                    .flat_map(|text| text.split(','))
                    .filter(|text| !text.is_empty())
                    .map(gate)
                    .collect(),
                Switch | One(_) => Value::from(values.last().map_or("", String::as_str)),
            };
            for field in flag.fields {
                set(tree, field, value.clone());
            }
        }
    }

    /// A configuration of flags alone.
    pub fn tree(&self) -> Value {
        let mut tree = Value::Object(Map::new());
        self.put_over(&mut tree, false);
        tree
    }
}

impl FromArgMatches for Arguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |flag: &Flag| -> Option<Vec<String>> {
            Some(matches.get_many::<String>(flag.name)?.cloned().collect())
        };
        Ok(Self(
            FLAGS
                .iter()
                .filter_map(|flag| Some((flag.name, given(flag)?)))
                .collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl clap::Args for Arguments {
    fn augment_args(command: Command) -> Command {
        command
            .version(env!("CARGO_PKG_VERSION"))
            .args_override_self(true)
            .args(FLAGS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.name)
        .long(flag.name)
        .help(flag.help)
        .allow_hyphen_values(true);
    let argument = if flag.name == "v" {
        argument.short('v')
    } else {
        argument
    };
    let argument = argument.hide(!flag.effect);
    match flag.takes {
        One(name) => argument.value_name(name).action(ArgAction::Set),
        List(name) | Gates(name) => argument.value_name(name).action(ArgAction::Append),
        Switch => argument
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(ValueParser::from(boolean)),
    }
}

/// Its name and value, which may be anything.
fn gate(text: &str) -> (String, Value) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (
        name.trim().to_owned(),
        boolean(value.trim())
            .unwrap_or_else(|_| value.to_owned())
            .into(),
    )
}

/// The spellings that kube-proxy takes.
fn boolean(text: &str) -> Result<String, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok("true".to_owned()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok("false".to_owned()),
        _ => Err("it is neither true nor false".to_owned()),
    }
}
