//! Beside what kube-proxy installs in IPVS mode, in a kernel that has IPVS. Its tools stand in for
//! it.

use crate::lab::{Daemons, Lab, PORT, alone, cluster_ip, go_all_the_way, master, run, wanted};
use portico_testbed::Host;
use portico_testbed::uml::test_with_ipvs;
use portico_vip::forward::Mode;
use std::process::Command;

/// How kube-proxy masquerades what is marked.
const MASQUERADE: &str = "*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
-A POSTROUTING -j KUBE-POSTROUTING
COMMIT
";

fn start_kube_proxy(host: &Host) {
    run(host, "ip link add kube-ipvs0 type dummy");
    for (v6, program) in [
        (false, "iptables-legacy-restore"),
        (true, "ip6tables-legacy-restore"),
    ] {
        let at = cluster_ip(v6);
        let (length, nodad) = if v6 { (128, "nodad") } else { (32, "") };
        run(
            host,
            &format!("ip addr add {}/{length} dev kube-ipvs0 {nodad}", at.ip()),
        );
        run(host, &format!("ipvsadm -A -t {at} -s rr"));
        (1..=3).for_each(|number| serve(host, v6, number));
        host.run(Command::new(program), MASQUERADE).unwrap();
    }
    host.sysctl("net/ipv4/vs/conntrack", "1").unwrap();
}

fn serve(host: &Host, v6: bool, number: usize) {
    let server = std::net::SocketAddr::new(master(number, v6), PORT);
    run(
        host,
        &format!("ipvsadm -a -t {} -r {server} -m -w 1", cluster_ip(v6)),
    );
}

fn jumps(lab: &Lab, chain: &str) -> Vec<String> {
    let listed = run(lab.owner(), &format!("iptables-legacy -t nat -S {chain}"));
    let ours = listed.lines().filter(|line| line.contains("portico vip"));
    ours.map(|line| line.split("-j ").nth(1).unwrap().to_owned())
        .collect()
}

#[test]
fn packets_beside_ipvs() {
    test_with_ipvs("beside_ipvs::packets_beside_ipvs", || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(all_the_way());
    });
}

async fn all_the_way() {
    let lab = Lab::new();
    lab.masters.iter().for_each(start_kube_proxy);
    let mut daemons = Daemons::new(&lab, |_| alone());
    let applied = daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(applied.mode, Mode::Ipvs, "{}", applied.why);
    let by_ipvs = ["KUBE-MARK-MASQ", "DNAT --to-destination 10.244.255.1:443"];
    assert_eq!(jumps(&lab, "PREROUTING"), by_ipvs);
    assert_eq!(jumps(&lab, "OUTPUT"), by_ipvs);
    go_all_the_way(&lab, &mut daemons).await;

    // kube-proxy does not know the third any more.
    run(
        lab.owner(),
        &format!(
            "ipvsadm -d -t {} -r {}:{PORT}",
            cluster_ip(false),
            master(3, false)
        ),
    );
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(
        jumps(&lab, "PREROUTING"),
        ["KUBE-MARK-MASQ", "PORTICO-VIP-IPVS"]
    );
    lab.check(&[1, 2, 3], "past IPVS").await;
    serve(lab.owner(), false, 3);
    daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(jumps(&lab, "PREROUTING"), by_ipvs);
    daemons.remove();
    assert!(!run(lab.owner(), "iptables-legacy-save").contains("portico"));
}
