//! The contract of providers.

use crate::rig::Rig;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use portico_providers::Node;
use portico_providers::conformance::{self, Can, Case, Support, World};

/// What HAProxy has, and what its next start would find.
impl World for Rig {
    fn owned(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async {
            let config = self.config_text();
            let (_, sections) = config.split_once("backend portico_generation_").unwrap();
            let lines = sections
                .lines()
                .skip(1)
                .filter(|line| !line.is_empty() && !line.trim().starts_with("server "));
            let servers = self.servers_of_sections().await;
            Ok(lines
                .map(|line| format!("line {}", line.trim()))
                .chain(servers)
                .collect())
        }
        .boxed()
    }

    fn foreign(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        async {
            let names = self.ask("show backend").await;
            Ok(names
                .lines()
                .filter(|name| !name.starts_with("portico_"))
                .map(str::to_owned)
                .collect())
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_is_kept() {
    let rig = Rig::new("");
    let config = std::fs::read_to_string(rig.config()).unwrap();
    std::fs::write(
        rig.config(),
        config.replace("addresses: [", "addresses: ['::1', "),
    )
    .unwrap();
    let running = rig.start().await;
    let node = |number: u8| Node {
        name: format!("node-{number}"),
        addresses: vec![
            rig.address(50 + number),
            format!("fd00::{number}").parse().unwrap(),
        ],
        ..Node::default()
    };
    let can = Can {
        udp: Support::Refused,
        mixed_protocols: Support::Refused,
        ..Can::everything()
    };
    let case = Case::new((1..=4).map(node).collect()).can(can);
    let report = conformance::run(&running.haproxy, Some(&rig), &case).await;
    println!("{report}");
    assert!(report.passed(), "{report}");
}
