//! The demo in a terminal.

use crate::rig::{Demo, PATIENCE, good, shell};
use std::path::Path;
use std::time::Instant;

#[test]
fn the_five_things_to_try_work_as_printed() {
    let mut demo = Demo::start("test");
    let services = demo.try_number(1);
    for wanted in [
        "web ",
        "LoadBalancer",
        "web-public",
        "NodePort",
        "web-internal",
        "ClusterIP",
    ] {
        assert!(services.contains(wanted), "{services}");
    }
    assert_eq!(good(&shell(&demo.dig)).trim(), "192.0.2.200");
    let service = demo.dig.replace("web.default.lb", "web-public.default.svc");
    let nodes = good(&shell(&service));
    assert!(
        ["192.0.2.11", "192.0.2.12", "192.0.2.13"]
            .iter()
            .all(|node| nodes.contains(node)),
        "{nodes}"
    );
    for pod in ["web-1", "web-2", "web-3"] {
        demo.try_until(2, |text| text.starts_with(&format!("{pod} answers ")));
    }

    let owner = demo.commands[2].rsplit(' ').next().unwrap().to_owned();
    assert!(
        demo.try_number(3).contains(&format!("{owner} is killed")),
        "{owner}"
    );
    let moved = demo.told("is answered for by");
    assert!(moved.contains(&format!("before: {owner}")), "{moved}");
    demo.try_until(2, |text| text.contains(" answers "));
    let back = demo.commands[2].replace(" kill ", " start ");
    assert!(good(&shell(&back)).contains("is started"));

    let explained = demo.try_number(4);
    assert!(
        explained.contains("is a load balancer's IP of default/web")
            && explained.contains("10.244.1.10:8080"),
        "{explained}"
    );

    demo.try_until(4, |text| text.contains("the kernel agrees (nftables)"));

    assert!(demo.try_number(5).contains("web-1"));
    let without =
        |text: &str| !text.contains("10.244.1.10:8080") && text.contains("10.244.2.10:8080");
    demo.try_until(4, without);
    for _ in 0..30 {
        let answer = demo.try_until(2, |_| true);
        assert!(!answer.starts_with("web-1 "), "{answer}");
    }
}

#[test]
fn explain_names_what_the_kernel_has_not() {
    let demo = Demo::start("test-kernel");
    demo.try_until(4, |text| text.contains("the kernel agrees (nftables)"));
    let node = demo.commands[2].rsplit(' ').next().unwrap().to_owned();
    good(&shell(&demo.commands[2]));
    let (portico, lab) = (env!("CARGO_BIN_EXE_portico"), "lab --lab test-kernel");
    let told = demo.try_number(4);
    assert!(
        told.contains("the kernel agrees") && told.contains(&format!("does not answer on {node}")),
        "{told}"
    );
    good(&shell(&format!(
        "{portico} {lab} exec {node} -- nft flush map ip portico endpoints"
    )));
    let told = demo.try_number(4);
    for wanted in [
        "the kernel differs",
        "the set endpoints lacks endpoint 10.244.1.10:8080",
        "start it",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    let json = good(&shell(&format!("{} --output json", demo.commands[3])));
    let tree: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&tree["kernel"]["agrees"], &tree["verdict"]["kind"]),
        (&false.into(), &"forward".into()),
        "{json}"
    );
    good(&shell(&format!("{portico} {lab} start {node}")));
    demo.try_until(4, |text| {
        text.contains("the kernel agrees (nftables)\n") && !text.contains("does not answer")
    });
    // From elsewhere, nobody can say.
    let elsewhere = demo.commands[3].replace(" --lab test-kernel", "");
    let told = good(&shell(&elsewhere));
    assert!(
        told.contains(&format!("the kernel was not looked at: this is not {node}")),
        "{told}"
    );
}

#[test]
fn ctrl_c_leaves_nothing() {
    let mut demo = Demo::start("test-end");
    let socket = Path::new("/run/portico/lab-test-end.sock");
    let folder = Path::new(&demo.kubeconfig).parent().unwrap().to_owned();
    assert!(socket.exists() && folder.exists());
    let children = || {
        good(&shell(&format!(
            "ps -o args= --ppid {} || true",
            demo.child.id()
        )))
    };
    assert!(children().contains("portico"), "{}", children());
    let folder_text = folder.display().to_string();
    good(&shell(&format!("kill -INT {}", demo.child.id())));
    assert!(demo.child.wait().unwrap().success());
    assert!(!socket.exists() && !folder.exists());
    let deadline = Instant::now() + PATIENCE;
    while good(&shell("ps -eo args="))
        .lines()
        .any(|line| line.contains(&folder_text) && !line.contains("ps -eo"))
    {
        assert!(
            Instant::now() < deadline,
            "programs are left: {}",
            good(&shell("ps -eo pid,args="))
        );
    }
}

#[test]
fn orders_that_make_no_sense_are_answered() {
    let portico = env!("CARGO_BIN_EXE_portico");
    let nowhere = shell(&format!("{portico} lab --lab none-such show"));
    assert!(
        !nowhere.status.success()
            && String::from_utf8_lossy(&nowhere.stderr).contains("portico up --demo"),
        "{nowhere:?}"
    );
    let demo = Demo::start("test-orders");
    for (order, wanted) in [
        ("kill node9", "there are node1, node2, node3"),
        ("resume node1", ""),
        ("start node1", "node1 runs already"),
        ("exec nobody -- true", "there is no host nobody"),
    ] {
        let output = shell(&format!("{portico} lab --lab test-orders {order}"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(wanted), "{order}: {told}");
        assert_eq!(
            output.status.success(),
            wanted.is_empty(),
            "{order}: {told}"
        );
    }
    drop(demo);
}
