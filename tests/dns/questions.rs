//! Every kind of Service, and every kind of question.

use crate::rig::{Rig, ZONE};
use serde_json::json;

async fn rig(flags: &[&str]) -> Rig {
    let rig = Rig::start(flags).await;
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]);
    rig.service(
        "web",
        json!({"type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "ports": ports}),
    )
    .await;
    rig.service("inside", json!({"ports": [{"name": "http", "port": 80}]}))
        .await;
    rig.service(
        "plain",
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30081}]}),
    )
    .await;
    for (name, port) in [("api", 30082), ("aws", 30083), ("waiting", 30084)] {
        rig.service(name, json!({"type": "LoadBalancer", "ports": [{"name": "https", "port": 443, "nodePort": port}]}))
            .await;
    }
    rig.balancer("api", json!([{"ip": "192.0.2.10"}, {"ip": "2001:db8::10"}]))
        .await;
    rig.balancer("aws", json!([{"hostname": "lb-1.elb.example.net"}]))
        .await;
    rig.dig
        .awaits("aws.shop.svc", "CNAME", &["lb-1.elb.example.net."])
        .await;
    rig.dig.awaits("api.shop.svc", "A", &["192.0.2.10"]).await;
    rig.dig
        .awaits("web.shop.svc", "A", &[&rig.ip(1), &rig.ip(2)])
        .await;
    rig
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_every_kind_of_service() {
    let rig = rig(&[]).await;
    let node = |number: u8| format!("n{number}.node.{ZONE}.");
    let on_nodes = |port: u16| {
        vec![
            format!("0 1 {port} {}", node(1)),
            format!("0 1 {port} {}", node(2)),
        ]
    };
    for (name, kind, wanted) in [
        ("_http._tcp.web.shop.svc", "SRV", on_nodes(30080)),
        ("_dns._udp.web.shop.svc", "SRV", on_nodes(30053)),
        ("_https._tcp.waiting.shop.svc", "SRV", on_nodes(30084)),
        (
            "_https._tcp.api.shop.svc",
            "SRV",
            vec![format!("0 1 443 api.shop.lb.{ZONE}.")],
        ),
        (
            "_https._tcp.aws.shop.svc",
            "SRV",
            vec!["0 1 443 lb-1.elb.example.net.".to_owned()],
        ),
        ("web.shop.svc", "A", vec![rig.ip(1), rig.ip(2)]),
        ("plain.shop.svc", "A", vec![rig.ip(1), rig.ip(2)]),
        ("plain.shop.svc", "AAAA", vec![]),
        ("api.shop.svc", "A", vec!["192.0.2.10".to_owned()]),
        ("api.shop.lb", "AAAA", vec!["2001:db8::10".to_owned()]),
        (
            "aws.shop.svc",
            "A",
            vec!["lb-1.elb.example.net.".to_owned()],
        ),
        (
            "aws.shop.lb",
            "AAAA",
            vec!["lb-1.elb.example.net.".to_owned()],
        ),
        ("n1.node", "A", vec![rig.ip(1)]),
        ("inside.shop.svc", "A", vec![]),
        ("", "NS", vec![format!("ns1.{ZONE}.")]),
        (&format!("ns1.{ZONE}."), "A", vec!["192.0.2.53".to_owned()]),
    ] {
        assert_eq!(rig.dig.answers(name, kind).await, wanted, "{name} {kind}");
        let by_tcp = rig.dig.ask(name, kind, &["+tcp"]).await;
        assert_eq!(by_tcp.answers, wanted, "{name} {kind} by TCP");
    }
    assert_eq!(
        rig.dig.answers("web.shop.svc", "AAAA").await.len(),
        2,
        "both families"
    );
    let srv = rig.dig.ask("_http._tcp.web.shop.svc", "SRV", &[]).await;
    assert!(
        srv.has("ADDITIONAL: 5"),
        "addresses of the nodes and OPT come along: {}",
        srv.text
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_right_in_form() {
    let rig = rig(&["--negative-ttl=7"]).await;
    for (name, kind, options, status) in [
        ("nobody.shop.svc", "A", &[][..], "NXDOMAIN"),
        ("inside.shop.svc", "A", &[], "NXDOMAIN"),
        ("_tcp.web.shop.svc", "SRV", &[], "NOERROR"),
        ("shop.svc", "A", &[], "NOERROR"),
        ("svc", "ANY", &[], "NOERROR"),
        ("web.shop.svc", "TXT", &[], "NOERROR"),
        ("example.org.", "A", &[], "REFUSED"),
        (".", "NS", &[], "REFUSED"),
        ("version.bind.", "TXT", &["-c", "CH"], "REFUSED"),
        ("web.shop.svc", "A", &["+opcode=STATUS"], "NOTIMP"),
        ("web.shop.svc", "A", &["+edns=1", "+noednsneg"], "BADVERS"),
    ] {
        let reply = rig.dig.ask(name, kind, options).await;
        assert_eq!(reply.status, status, "{name} {kind}: {}", reply.text);
        let negative = reply.answers.is_empty() && (status == "NXDOMAIN" || status == "NOERROR");
        assert_eq!(
            reply.has(" SOA "),
            negative,
            "{name} {kind}: {}",
            reply.text
        );
        assert!(
            !negative || reply.has(&format!("{ZONE}. 7 IN")),
            "{name} {kind}: {}",
            reply.text
        );
        let authoritative = matches!(status, "NXDOMAIN" | "NOERROR");
        assert_eq!(
            reply.flags.contains("aa"),
            authoritative,
            "{name} {kind}: {}",
            reply.text
        );
        assert!(
            !reply.flags.contains(" ra"),
            "there is no recursion: {}",
            reply.text
        );
    }
    let odd = rig.dig.ask("wEb.ShoP.sVc", "A", &[]).await;
    assert!(
        odd.has(&format!("wEb.ShoP.sVc.{ZONE}. 30 IN A")),
        "{}",
        odd.text
    );
    let any = rig.dig.ask("web.shop.svc", "ANY", &["+notcp"]).await;
    assert_eq!(any.answers, [rig.ip(1), rig.ip(2)], "one set is enough");
    let firsts = async {
        let mut firsts = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let text = rig
                .dig
                .run(&["+short", &format!("web.shop.svc.{ZONE}"), "A"])
                .await;
            firsts.extend(text.lines().next().map(str::to_owned));
        }
        firsts
    };
    assert_eq!(firsts.await.len(), 2, "the first is not always the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_goes_by_tcp() {
    let mut rig = rig(&[]).await;
    for number in 3..43 {
        rig.add_node(number).await;
    }
    let all: Vec<String> = (1..43).map(|number| rig.ip(number)).collect();
    rig.dig
        .awaits(
            "web.shop.svc",
            "A",
            &all.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    for (options, truncated, count) in [
        (&["+noedns", "+ignore"][..], true, 0),
        (&["+bufsize=4096", "+ignore"], false, 42),
        (&["+bufsize=513", "+ignore"], true, 0),
        (&["+noedns"], false, 42),
        (&["+tcp", "+noedns"], false, 42),
    ] {
        let reply = rig.dig.ask("web.shop.svc", "A", options).await;
        let said = (reply.flags.contains("tc"), reply.answers.len());
        assert_eq!(said, (truncated, count), "{options:?}: {}", reply.text);
    }
    let srv = rig
        .dig
        .ask("_http._tcp.web.shop.svc", "SRV", &["+ignore"])
        .await;
    assert!(srv.flags.contains("tc"), "{}", srv.text);
    assert_eq!(
        rig.dig
            .answers("_http._tcp.web.shop.svc", "SRV")
            .await
            .len(),
        42,
        "dig comes again by TCP"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_zone_is_transferred_to_those_who_may() {
    let rig = rig(&["--allow-transfer=127.0.0.1,127.0.0.3/32"]).await;
    let axfr = rig.dig.run(&[ZONE, "AXFR", "+onesoa"]).await;
    for line in [
        format!("_http._tcp.web.shop.svc.{ZONE}.|30|IN|SRV|0 1 30080 n2.node.{ZONE}."),
        format!("web.shop.svc.{ZONE}.|30|IN|A|{}", rig.ip(2)),
        format!("api.shop.lb.{ZONE}.|30|IN|AAAA|2001:db8::10"),
        format!("aws.shop.svc.{ZONE}.|30|IN|CNAME|lb-1.elb.example.net."),
        format!("n1.node.{ZONE}.|30|IN|A|{}", rig.ip(1)),
        format!("{ZONE}.|30|IN|NS|ns1.{ZONE}."),
        format!("ns1.{ZONE}.|30|IN|A|192.0.2.53"),
    ] {
        let found: Vec<String> = axfr.lines().map(|text| words(text, 5)).collect();
        assert!(found.contains(&line), "{line} is not in\n{axfr}");
    }
    assert_eq!(axfr.matches("\tSOA\t").count(), 1, "{axfr}");
    assert!(axfr.contains("XFR size:"), "{axfr}");
    let serial = rig.dig.answers("", "SOA").await[0]
        .split(' ')
        .nth(2)
        .unwrap()
        .to_owned();
    let newer = rig.dig.run(&[ZONE, &format!("IXFR={serial}")]).await;
    assert!(
        newer.contains("XFR size: 1 records"),
        "nothing new: {newer}"
    );
    let older = rig.dig.run(&[ZONE, "IXFR=1"]).await;
    assert!(
        older.contains("_http._tcp.web.shop.svc"),
        "all of it: {older}"
    );
    for from in ["127.0.0.2", "127.0.0.4"] {
        let refused = rig.dig.run(&["-b", from, ZONE, "AXFR"]).await;
        assert!(refused.contains("Transfer failed"), "{refused}");
    }
    assert!(
        rig.dig
            .run(&["-b", "127.0.0.3", ZONE, "AXFR"])
            .await
            .contains("XFR size:")
    );
    assert_eq!(
        rig.metric("portico_dns_transfers_total{outcome=\"refused\"}")
            .await,
        2.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_keys_a_transfer_has_to_be_signed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    // As `tsig-keygen` prints it, and a second one.
    let (secret, other) = ("c2VjcmV0IGZvciB0ZXN0cyBvbmx5", "YW5vdGhlciBzZWNyZXQ=");
    let text = format!(
        "key \"second\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\nlong \
         hmac-sha512 {other}\n"
    );
    std::fs::write(&path, text).unwrap();
    let rig = rig(&[&format!("--transfer-key-file={}", path.display())]).await;
    for (key, good) in [
        (format!("hmac-sha256:second:{secret}"), true),
        (format!("hmac-sha512:long:{other}"), true),
        (format!("hmac-sha256:second:{other}"), false),
        (format!("hmac-sha256:third:{secret}"), false),
        (format!("hmac-sha512:second:{secret}"), false),
    ] {
        let axfr = rig.dig.run(&["-y", &key, ZONE, "AXFR"]).await;
        // dig verifies the signature of every message.
        let done = axfr.contains("XFR size:")
            && !axfr.contains("Couldn't verify")
            && !axfr.contains("Transfer failed");
        assert_eq!(done, good, "{key}: {axfr}");
        for option in ["+notcp", "+tcp"] {
            let soa = rig.dig.ask("", "SOA", &["-y", &key, option]).await;
            let verified =
                soa.status == "NOERROR" && !soa.has("WARNING -- Some TSIG could not be validated");
            assert_eq!(verified, good, "{key} {option}: {}", soa.text);
        }
    }
    assert!(
        rig.dig
            .run(&[ZONE, "AXFR"])
            .await
            .contains("Transfer failed")
    );
    assert_eq!(
        rig.dig.answers("web.shop.svc", "A").await.len(),
        2,
        "questions need no signature"
    );
}

/// The first words of a line with bars between them; the last has the rest.
fn words(text: &str, count: usize) -> String {
    let mut rest = text.trim();
    let mut found = Vec::new();
    while found.len() + 1 < count
        && let Some((word, after)) = rest.split_once(char::is_whitespace)
    {
        found.push(word);
        rest = after.trim_start();
    }
    found.push(rest);
    found.join("|")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_the_cluster_by_flag() {
    let rig = Rig::start(&["--cluster-services"]).await;
    rig.service(
        "inside",
        json!({"clusterIP": "10.96.7.7", "ports": [{"name": "http", "port": 80}]}),
    )
    .await;
    rig.dig.awaits("inside.shop.svc", "A", &["10.96.7.7"]).await;
    let srv = rig.dig.answers("_http._tcp.inside.shop.svc", "SRV").await;
    assert_eq!(srv, [format!("0 1 80 inside.shop.svc.{ZONE}.")]);
}
