//! One `vrrp_instance` becomes a `VipConfiguration`. Pure.

use super::super::report::Remark;
use super::servers::VirtualServer;
use super::syntax::Statement;
use super::{PASSWORD_FILE, lost};
use portico_vip::config::{Given, Span};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Words in a script that looks after an API server.
const API_SERVER: &[&str] = &[
    "apiserver",
    "api-server",
    "api_server",
    "6443",
    "healthz",
    "readyz",
    "livez",
];

/// What is set for all instances.
#[derive(Default)]
pub(super) struct Globals {
    version: Option<u8>,
    repeat: Option<u32>,
    refresh: Option<Duration>,
    scripts: BTreeMap<String, Statement>,
}

impl Globals {
    pub(super) fn read(&mut self, statements: &[Statement], remarks: &mut Vec<Remark>) {
        for statement in statements {
            let value = statement.word(1);
            match statement.keyword() {
                "vrrp_version" => self.version = value.parse().ok(),
                "vrrp_garp_master_repeat" => self.repeat = value.parse().ok(),
                "vrrp_garp_master_refresh" => self.refresh = seconds(value),
                "router_id" | "script_user" | "enable_script_security" | "max_auto_priority" => {
                    remarks.push(Remark::Note(format!(
                        "line {}: {} is not needed",
                        statement.line,
                        statement.text()
                    )));
                }
                "vrrp_skip_check_adv_addr" | "vrrp_strict" => remarks.push(Remark::Note(format!(
                    "line {}: {}: adverts are always checked, but for the list of addresses",
                    statement.line,
                    statement.text()
                ))),
                "notification_email"
                | "notification_email_from"
                | "smtp_server"
                | "smtp_connect_timeout"
                | "smtp_alert" => {
                    remarks.push(Remark::Warning(format!(
                        "line {}: {}: no mail is sent; alert on portico_vip_owner and \
                         portico_vip_transitions_total instead",
                        statement.line,
                        statement.text()
                    )));
                }
                _ => remarks.push(Remark::Warning(lost(statement))),
            }
        }
    }

    pub(super) fn script(&mut self, statement: &Statement) {
        self.scripts
            .insert(statement.word(1).to_owned(), statement.clone());
    }
}

pub(super) struct Instance {
    pub name: String,
    given: Given,
    priority: i64,
    remarks: Vec<Remark>,
    checks_api_server: bool,
}

impl Instance {
    pub(super) fn read(statement: &Statement, globals: &Globals) -> Self {
        let given = Given {
            vrrp_version: globals.version,
            announcements: globals.repeat,
            announce_every: globals.refresh.map(Span),
            ..Given::default()
        };
        // As keepalived has it where nothing is said.
        let mut instance = Self {
            name: statement.word(1).to_owned(),
            given,
            priority: 100,
            remarks: Vec::new(),
            checks_api_server: false,
        };
        statement
            .block()
            .iter()
            .for_each(|inner| instance.setting(inner, globals));
        instance
    }

    fn note(&mut self, statement: &Statement, text: &str) {
        self.remarks.push(Remark::Note(format!(
            "line {}: {}: {text}",
            statement.line,
            statement.text()
        )));
    }

    fn warn(&mut self, statement: &Statement, text: &str) {
        self.remarks.push(Remark::Warning(format!(
            "line {}: {}: {text}",
            statement.line,
            statement.text()
        )));
    }

    fn setting(&mut self, statement: &Statement, globals: &Globals) {
        let value = statement.word(1);
        match statement.keyword() {
            "interface" => self.given.interface = Some(value.to_owned()),
            "virtual_router_id" => match value.parse() {
                Ok(id @ 1..) => self.given.virtual_router_id = Some(id),
                _ => self.warn(statement, "an id is 1 to 255"),
            },
            "priority" => match value.parse() {
                Ok(priority @ 1..=254) => self.priority = priority,
                Ok(255) => {
                    self.priority = 254;
                    self.warn(
                        statement,
                        "255 is for the one whose own address it is; 254 is the highest here",
                    );
                }
                _ => self.warn(statement, "a priority is 1 to 254"),
            },
            "advert_int" => match seconds(value) {
                Some(interval) => self.given.interval = Some(Span(interval)),
                None => self.warn(statement, "this is no time"),
            },
            "version" => self.given.vrrp_version = value.parse().ok(),
            "state" => self.note(
                statement,
                "everybody begins as a backup, and the priority decides",
            ),
            "nopreempt" => self.given.preempt = Some(false),
            "preempt" => self.given.preempt = Some(true),
            "preempt_delay" => self.given.preempt_delay = seconds(value).map(Span),
            "use_vmac" => self.given.virtual_mac = Some(true),
            "vmac_xmit_base" => self.note(statement, "adverts are always sent on the link itself"),
            "mcast_src_ip" | "unicast_src_ip" => {
                self.given.node_ips = value.parse().ok().map(|address| vec![address])
            }
            "unicast_peer" => self.peers(statement),
            "virtual_ipaddress" | "virtual_ipaddress_excluded" => {
                statement
                    .block()
                    .iter()
                    .for_each(|address| self.address(address));
            }
            "authentication" => self.authentication(statement),
            "track_script" => statement
                .block()
                .iter()
                .for_each(|script| self.track_script(script, globals)),
            "track_interface" => self.track_interface(statement),
            "garp_master_repeat" => self.given.announcements = value.parse().ok(),
            "garp_master_refresh" => self.given.announce_every = seconds(value).map(Span),
            "garp_master_delay"
            | "garp_master_refresh_repeat"
            | "garp_lower_prio_delay"
            | "garp_lower_prio_repeat" => {
                self.note(
                    statement,
                    "the address is announced five times, 200ms apart (announcements, \
                     announcementGap)",
                );
            }
            "dont_track_primary" => self.warn(
                statement,
                "an owner whose link goes down always gives the address up",
            ),
            "debug" => self.note(statement, "PORTICO_LOG chooses what is logged"),
            word if word.starts_with("notify") || word == "smtp_alert" => {
                self.warn(
                    statement,
                    "nothing is run and no mail is sent; watch portico_vip_owner and \
                     portico_vip_transitions_total instead",
                );
            }
            word if word.starts_with('@') => self.warn(
                statement,
                "conditions are not looked at; write what is meant on this node",
            ),
            _ => self.remarks.push(Remark::Warning(lost(statement))),
        }
    }

    fn peers(&mut self, statement: &Statement) {
        for peer in statement.block() {
            match peer.keyword().parse::<IpAddr>() {
                Ok(address) => self
                    .given
                    .unicast_peers
                    .get_or_insert_default()
                    .push(address),
                Err(_) => self.warn(peer, "this is no address of a peer"),
            }
            if peer.words.len() > 1 {
                self.warn(peer, "only the address of a peer is used");
            }
        }
    }

    /// `ADDRESS[/PREFIX] [brd X] [dev X] [scope X] [label X]`.
    fn address(&mut self, statement: &Statement) {
        let (address, prefix) = statement
            .keyword()
            .split_once('/')
            .unwrap_or((statement.keyword(), ""));
        let Ok(address) = address.parse::<IpAddr>() else {
            return self.warn(statement, "this is no address");
        };
        self.given.addresses.get_or_insert_default().push(address);
        match (prefix.parse::<u8>(), self.given.prefix) {
            (Ok(prefix), None) => self.given.prefix = Some(prefix),
            (Ok(prefix), Some(other)) if prefix != other => {
                self.warn(
                    statement,
                    "all addresses have one prefix length; leave `prefix` out for the usual one",
                );
            }
            _ => {}
        }
        let words: Vec<&str> = statement.words.iter().skip(1).map(String::as_str).collect();
        let mut rest = &words[..];
        while let [word, after @ ..] = rest {
            let value = after.first().copied().unwrap_or_default();
            match (*word, self.given.interface.as_deref()) {
                ("dev", Some(interface)) if interface == value => {}
                ("dev", None) => self.given.interface = Some(value.to_owned()),
                ("dev", Some(_)) => {
                    self.warn(statement, "the address is on the link of the election")
                }
                ("brd" | "scope" | "label" | "broadcast", _) => {
                    self.note(
                        statement,
                        "labels, scopes and broadcast addresses are not set",
                    );
                }
                (_, _) => self.warn(statement, &format!("`{word}` has no equivalent")),
            }
            rest = after.get(1..).unwrap_or_default();
        }
    }

    fn authentication(&mut self, statement: &Statement) {
        let of = |keyword: &str| {
            statement
                .block()
                .iter()
                .find(|inner| inner.keyword() == keyword)
                .map(|s| s.word(1))
        };
        match (of("auth_type"), of("auth_pass")) {
            (Some("AH"), _) => self.warn(
                statement,
                "AH has no equivalent; version 2 has a simple password (PASS)",
            ),
            (_, Some(_)) if self.given.vrrp_version == Some(3) => {
                self.warn(statement, "version 3 of VRRP has no password");
            }
            (_, Some(_)) => {
                self.given.password_file = Some(PASSWORD_FILE.into());
                self.given.vrrp_version = Some(2);
                self.note(
                    statement,
                    &format!(
                        "write the password into {PASSWORD_FILE}, readable for root alone. It \
                         goes over the network in plain text, and keeps nobody out"
                    ),
                );
            }
            _ => self.warn(statement, "there is no auth_pass"),
        }
    }

    /// Health of the API server is looked after by itself; how much it weighs is kept.
    fn track_script(&mut self, tracked: &Statement, globals: &Globals) {
        let script = globals.scripts.get(tracked.keyword());
        let command = script
            .map(|script| inner(script, "script").join(" "))
            .unwrap_or_default();
        let weight = match tracked.word(1) {
            "weight" => tracked.word(2).to_owned(),
            _ => script
                .map(|script| inner(script, "weight").join(" "))
                .unwrap_or_default(),
        };
        if !API_SERVER
            .iter()
            .any(|word| command.contains(word) || tracked.keyword().contains(word))
        {
            let text = format!(
                "the script {command:?} is not run: only the health of API servers counts here"
            );
            return self.warn(tracked, &text);
        }
        self.checks_api_server = true;
        let penalty = weight.parse::<i64>().unwrap_or_default().unsigned_abs();
        match u8::try_from(penalty) {
            Ok(penalty @ 1..) => self.given.priority_penalty = Some(penalty),
            _ => self.note(
                tracked,
                "without a weight keepalived gives the address up; here the priority falls by \
                 priorityPenalty",
            ),
        }
        let timing: Vec<String> = ["interval", "timeout", "fall", "rise"]
            .into_iter()
            .filter_map(|name| Some(format!("{name} {}", inner(script?, name).first()?)))
            .collect();
        self.note(
            tracked,
            &format!(
                "`portico vip` asks every API server for /readyz itself, every 500ms; {} of the \
                 script are not kept (probeInterval, probeTimeout, unhealthyAfter, healthyAfter)",
                if timing.is_empty() {
                    "the times".to_owned()
                } else {
                    timing.join(", ")
                }
            ),
        );
    }

    fn track_interface(&mut self, statement: &Statement) {
        for link in statement.block() {
            match self.given.interface.as_deref() == Some(link.keyword()) {
                true => self.note(
                    link,
                    "an owner whose link goes down always gives the address up",
                ),
                false => self.warn(link, "only the link of the address is watched"),
            }
        }
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        self.given.addresses.as_deref().unwrap_or_default()
    }

    pub(super) fn is_for_api_servers(&self, servers: &[VirtualServer]) -> bool {
        self.checks_api_server || servers.iter().any(|server| server.is_api(self.addresses()))
    }

    /// All its addresses are those of virtual servers, and none of them is for API servers.
    pub(super) fn is_for_services(&self, servers: &[VirtualServer]) -> bool {
        let is_served =
            |address: &IpAddr| servers.iter().any(|server| server.address() == *address);
        !self.is_for_api_servers(servers)
            && !self.addresses().is_empty()
            && self.addresses().iter().all(is_served)
    }

    /// What is balanced on this address to API servers is this program's own business.
    pub(super) fn take_api_servers(&mut self, servers: &mut Vec<VirtualServer>) {
        for server in servers.extract_if(.., |server| {
            server.is_api(self.given.addresses.as_deref().unwrap_or_default())
        }) {
            self.given.port = Some(server.port);
            self.given
                .api_servers
                .get_or_insert_default()
                .extend(server.targets());
            self.remarks.extend(server.remarks_for_vip());
            self.checks_api_server = true;
        }
    }

    /// The remarks, and the configuration.
    pub(super) fn finish(mut self) -> (Vec<Remark>, Value) {
        self.settle_version();
        if !self.checks_api_server {
            self.remarks.push(Remark::Warning(format!(
                "vrrp_instance {}: `portico vip` is for the control plane: it also sends port {} \
                 of the address to API servers. For the address of a Service make an AddressPool \
                 (docs/metal.md)",
                self.name,
                self.given.port.unwrap_or(6443)
            )));
        }
        if self.given.kubeconfig.is_none() && self.given.api_servers.is_none() {
            self.given.kubeconfig = Some("/etc/kubernetes/admin.conf".into());
            self.remarks.push(Remark::Note(
                "kubeconfig is where kubeadm has it: it says which API servers there are"
                    .to_owned(),
            ));
        }
        self.given.priority = u8::try_from(self.priority).ok();
        let mut content = json!({"apiVersion": "portico.dev/v1", "kind": "VipConfiguration"});
        if let (Value::Object(all), Ok(Value::Object(settings))) =
            (&mut content, serde_json::to_value(&self.given))
        {
            all.extend(settings);
        }
        (self.remarks, content)
    }

    /// keepalived speaks version 2 for IPv4 unless it is told otherwise, and the two must
    /// understand each other while one takes the other's place.
    fn settle_version(&mut self) {
        let all_v4 = self.addresses().iter().all(IpAddr::is_ipv4);
        let whole = self
            .given
            .interval
            .is_none_or(|Span(interval)| interval.subsec_nanos() == 0);
        match (all_v4, self.given.vrrp_version) {
            (true, None) if whole => {
                self.given.vrrp_version = Some(2);
                self.remarks.push(Remark::Note(
                    "vrrpVersion is keepalived's own, so that both can run side by side. When the \
                     last keepalived is gone take it out: version 3 is quicker and has no password"
                        .to_owned(),
                ));
            }
            (false, Some(2)) => {
                self.given.vrrp_version = Some(3);
                self.given.password_file = None;
                self.remarks.push(Remark::Warning(
                    "with IPv6 addresses the version is 3, which has no password: IPv4 addresses \
                     of a keepalived that speaks version 2 do not move to and fro"
                        .to_owned(),
                ));
            }
            _ => {}
        }
    }
}

/// The words of a statement in a block.
fn inner<'a>(statement: &'a Statement, keyword: &str) -> &'a [String] {
    let found = statement
        .block()
        .iter()
        .find(|inner| inner.keyword() == keyword);
    found
        .and_then(|inner| inner.words.get(1..))
        .unwrap_or_default()
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}
