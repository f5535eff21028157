//! The metrics of every daemon, as Prometheus scrapes them: in order by its own tool, and all of
//! them in docs/reference/metrics.md.

use crate::lab::Lab;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// With this set the page is written instead of compared (`make docs`).
const WRITE: &str = "PORTICO_WRITE_DOCS";
const HEAD: &str = "\
# Metrics

Every metric of every daemon, from the pages that they serve (`make docs` writes this page). All are in the text format of Prometheus. Names that begin with
`kubeproxy_`, `service_controller_` and `apiserver_` are those of Kubernetes' own programs and mean the same, so that dashboards made for them go on working.
[alerts.md](../alerts.md) says which of them to worry about.
";
/// Daemon, where it serves its page unless told otherwise, and how that is said.
const PAGES: [(&str, &str, &str); 5] = [
    (
        "apiserver",
        "",
        "`/metrics` of the API, with a token that may `get` it",
    ),
    (
        "controller",
        "http://127.0.0.1:10258/metrics",
        "`--metrics-bind-address`, 127.0.0.1:10258",
    ),
    (
        "dns",
        "http://127.0.0.1:10253/metrics",
        "`--metrics-bind-address`, 127.0.0.1:10253",
    ),
    (
        "node",
        "http://127.0.0.1:10249/metrics",
        "`--metrics-bind-address`, 127.0.0.1:10249",
    ),
    (
        "vip",
        "http://127.0.0.1:10246/metrics",
        "`--status-address`, 127.0.0.1:10246",
    ),
];
/// What the tool would call otherwise, and why it stays.
const KEPT: [(&str, &str); 1] = [(
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "kube-proxy's own name for a gauge",
)];

/// Name to type and meaning.
type Families = BTreeMap<String, (String, String)>;

pub(crate) fn every_page_is_good_and_documented(lab: &Lab) {
    let mut text = HEAD.to_owned();
    for (daemon, address, place) in PAGES {
        let curl = |host| {
            lab.on(
                host,
                &format!("curl -sS --max-time 5 {address}"),
                &["# HELP"],
            )
        };
        let page = match daemon {
            "apiserver" => lab.kubectl("get --raw /metrics", &["# HELP"]),
            "node" => curl("node1"),
            _ => curl("cp"),
        };
        check(daemon, &page);
        let mut families = families(&page);
        if daemon == "node" {
            families.extend(self::families(&curl("router")));
        }
        let _ = write!(
            text,
            "\n## portico {daemon}\n\nServed at {place}.\n\n| metric | type | |\n|---|---|---|\n"
        );
        for (name, (kind, meaning)) in &families {
            assert!(
                name.starts_with("portico_") || is_known(name),
                "{daemon} has {name}, which says not whose it is"
            );
            let _ = writeln!(text, "| `{name}` | {kind} | {meaning} |");
        }
    }
    compare(&text);
}

fn is_known(name: &str) -> bool {
    [
        "kubeproxy_",
        "kubernetes_",
        "service_controller_",
        "apiserver_",
        "process_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// `promtool check metrics` finds nothing to say, but for what is kept.
fn check(daemon: &str, page: &str) {
    let mut command = Command::new("promtool");
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is installed: make deps");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let kept = |line: &&str| KEPT.iter().any(|(name, _)| line.starts_with(name));
    let faults: Vec<&str> = said
        .lines()
        .filter(|line| !line.is_empty() && !kept(line))
        .collect();
    assert!(
        faults.is_empty(),
        "promtool finds in the metrics of portico {daemon}: {}",
        faults.join("\n")
    );
}

fn families(page: &str) -> Families {
    let mut families = Families::new();
    for line in page.lines() {
        if let Some((name, meaning)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().1 = meaning.to_owned();
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().0 = kind.to_owned();
        }
    }
    for (name, (kind, meaning)) in &families {
        assert!(
            !kind.is_empty() && meaning.len() > 5,
            "{name} is not explained"
        );
    }
    families
}

fn compare(wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, wanted).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let differing = wanted
        .lines()
        .filter(|line| !stored.contains(line))
        .chain(stored.lines().filter(|line| !wanted.contains(line)));
    let differing: Vec<&str> = differing.collect();
    assert!(
        stored == wanted,
        "docs/reference/metrics.md is out of date, run `make docs`:\n{}",
        differing.join("\n")
    );
}
