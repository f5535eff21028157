//! `portico cleanup`: removes what Portico left on this machine, and nothing that is not its own.
//! [`plan`] decides; looking and removing is here.

mod plan;

use crate::doctor::programs::{Role, command_lines, running};
use crate::lab::control;
use crate::output::Output;
use crate::signals::Signals;
use clap::Args;
use plan::{Account, Item, Line, Outcome, Running, Thing};
use portico_dataplane::Dataplane;
use portico_dataplane::nftables::{Nftables, Table, has_table};
use portico_dataplane::{iptables, ipvs};
use portico_model::static_services;
use portico_model::table::Family;
use portico_vip::forward::{ForwardSettings, Forwarding};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `portico vip` writes for the node's daemon.
const VIP_FILE: &str = "portico-vip.json";
const DEMO: &str = "portico-demo-";

#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Only tell what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Then wait for SIGTERM, as a pod of a DaemonSet has to.
    #[arg(long)]
    stay: bool,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (found, running) = look();
    let things = plan::plan(found, running)
        .iter()
        .map(|item| deal_with(item, arguments.dry_run))
        .collect();
    let account = Account { things };
    arguments.output.print(&account)?;
    if account.failed() {
        std::process::exit(1);
    }
    if arguments.stay {
        crate::runtime()?.block_on(async {
            let _: () = Signals::new()?.wait().await;
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

fn deal_with(item: &Item, dry_run: bool) -> Line {
    let what = item.thing.to_string();
    let (outcome, why) = match (&item.keep, dry_run) {
        (Some(why), _) => (Outcome::Kept, why.clone()),
        (None, true) => (Outcome::WouldBeRemoved, String::new()),
        (None, false) => match remove(&item.thing) {
            Ok(()) => (Outcome::Removed, String::new()),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        },
    };
    Line { what, outcome, why }
}

fn remove(thing: &Thing) -> anyhow::Result<()> {
    match thing {
        Thing::NodeTables => Nftables::open(Table::NODE)?.remove()?,
        Thing::ProxyChains => iptables::remove_all_iptables()?,
        Thing::ProxyServers => ipvs::remove_leftovers()?,
        Thing::VipRules => {
            Forwarding::new(ForwardSettings::default()).remove()?;
            portico_vip::handover::remove()?;
        }
        Thing::VipFile(path) | Thing::LabSocket(path, _) => fs::remove_file(path)?,
        Thing::DemoFolder(path, _) => fs::remove_dir_all(path)?,
        // It is always kept.
        Thing::VirtualLink(_) => {}
    }
    Ok(())
}

fn look() -> (Vec<Thing>, Running) {
    let mut found = rules();
    let vip = Path::new(static_services::FOLDER).join(VIP_FILE);
    found.extend(vip.exists().then_some(Thing::VipFile(vip)));
    found.extend(virtual_links().into_iter().map(Thing::VirtualLink));
    found.extend(sockets());
    let lines: Vec<_> = command_lines().collect();
    found.extend(demo_folders().into_iter().map(|path| {
        let text = path.display().to_string();
        let used = lines
            .iter()
            .any(|(_, words)| words.iter().any(|word| word.contains(&text)));
        Thing::DemoFolder(path, used)
    }));
    let programs = running();
    let first = |role: Role| {
        programs
            .iter()
            .find(|program| program.role == role)
            .map(|program| program.process)
    };
    let is_up = |words: &[String]| {
        words
            .first()
            .is_some_and(|program| program.ends_with("portico"))
            && words.get(1).is_some_and(|word| word == "up")
    };
    let running = Running {
        node: first(Role::PorticoNode),
        vip: first(Role::PorticoVip),
        kube_proxy: first(Role::KubeProxy),
        up: lines
            .iter()
            .find(|(_, words)| is_up(words))
            .map(|(process, _)| *process),
    };
    (found, running)
}

fn rules() -> Vec<Thing> {
    let table = |name: &str| {
        Family::BOTH
            .into_iter()
            .any(|family| has_table(family, name).unwrap_or(false))
    };
    let vip = table("portico-vip") || table("portico-vip-handover") || has_vip_chains();
    let all = [
        (table("portico"), Thing::NodeTables),
        // Sets can be removed when no rule looks into them.
        (iptables::present(), Thing::ProxyChains),
        (ipvs::present(), Thing::ProxyServers),
        (vip, Thing::VipRules),
    ];
    all.into_iter()
        .filter(|(there, _)| *there)
        .map(|(_, thing)| thing)
        .collect()
}

/// Beside kube-proxy the address of the control plane is forwarded by chains of our own.
fn has_vip_chains() -> bool {
    let saved = |program: &str| {
        Command::new(program)
            .args(["-t", "nat"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
    };
    let has = |program: &&str| {
        saved(program)
            .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(":PORTICO-VIP-"))
    };
    [
        "iptables-save",
        "ip6tables-save",
        "iptables-legacy-save",
        "ip6tables-legacy-save",
    ]
    .iter()
    .any(has)
}

fn virtual_links() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned());
    let is_ours = |name: &String| {
        name.strip_prefix("vrrp6.")
            .or(name.strip_prefix("vrrp."))
            .is_some_and(|id| id.parse::<u8>().is_ok())
    };
    names.filter(is_ours).collect()
}

fn sockets() -> Vec<Thing> {
    let files = fs::read_dir(control::FOLDER)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let labs = files.filter(|path| control::is_socket(path));
    labs.map(|path| Thing::LabSocket(path.clone(), UnixStream::connect(&path).is_ok()))
        .collect()
}

fn demo_folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten();
    let is_demo = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(DEMO));
    entries
        .filter(|entry| is_demo(&entry.file_name()))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}
