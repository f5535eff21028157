//! What `portico migrate` prints is taken by those who are to read it: the API server,
//! `portico node` and `portico vip`.

use crate::common::{Server, Store};
use crate::rig::{Ran, portico};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/operate/migrate")
        .join(name);
    path.display().to_string()
}

/// Everything at once, into a folder.
async fn migrate(to: &Path) -> Ran {
    let [metallb, kube_proxy, keepalived, kube_vip] = [
        "metallb.yaml",
        "kube-proxy.yaml",
        "keepalived.conf",
        "kube-vip.yaml",
    ]
    .map(example);
    let to = to.display().to_string();
    portico(&[
        "migrate",
        "--metallb",
        &metallb,
        "--kube-proxy",
        &kube_proxy,
        "--keepalived",
        &keepalived,
        "--kube-vip",
        &kube_vip,
        "--to",
        &to,
    ])
    .await
}

fn documents(path: PathBuf) -> Vec<Value> {
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Where objects of a kind are made.
fn collection(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    match object["kind"].as_str().unwrap() {
        "AddressPool" => "/apis/portico.dev/v1/addresspools".to_owned(),
        "BgpPeer" => "/apis/portico.dev/v1/bgppeers".to_owned(),
        "Secret" => format!("/api/v1/namespaces/{namespace}/secrets"),
        "Service" => format!("/api/v1/namespaces/{namespace}/services"),
        "EndpointSlice" => {
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
        }
        kind => panic!("nobody makes a {kind}"),
    }
}

#[tokio::test]
async fn the_api_server_takes_the_objects() {
    let folder = tempfile::tempdir().unwrap();
    let ran = migrate(folder.path()).await;
    ran.expect(0);
    assert!(
        ran.err.contains("settings have no equivalent"),
        "{}",
        ran.err
    );
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let mut made = Vec::new();
    for file in ["objects.yaml", "objects-2.yaml", "services.yaml"] {
        for object in documents(folder.path().join(file)) {
            let stored = client.post(&collection(&object), &object).await.expect(201);
            made.push(format!(
                "{} {}",
                stored["kind"].as_str().unwrap(),
                stored["metadata"]["name"].as_str().unwrap()
            ));
        }
    }
    made.sort();
    assert_eq!(
        made,
        [
            "AddressPool kube-vip-global",
            "AddressPool public",
            "AddressPool staff",
            "BgpPeer tor-a",
            "EndpointSlice vs-192-0-2-59-80-tcp-1",
            "Secret portico-bgp-tor-a",
            "Service vs-192-0-2-59-80-tcp",
        ]
    );
    let staff = client
        .get("/apis/portico.dev/v1/addresspools/staff")
        .await
        .expect(200);
    assert_eq!(
        (&staff["spec"]["announce"][0], &staff["spec"]["autoAssign"]),
        (&"BGP".into(), &false.into())
    );
}

#[tokio::test]
async fn the_daemons_take_their_files() {
    let folder = tempfile::tempdir().unwrap();
    migrate(folder.path()).await.expect(0);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let node = portico(&[
        "node",
        "--config",
        &at("node.yaml"),
        "--write-config-to",
        &at("resolved.yaml"),
    ])
    .await;
    node.expect(0);
    assert!(
        !node.err.contains("WARN") && !node.out.contains("WARN"),
        "nothing is left to warn about: {node:?}"
    );
    let [resolved] = &documents(folder.path().join("resolved.yaml"))[..] else {
        panic!()
    };
    assert_eq!(
        (&resolved["mode"], &resolved["ipvs"]["scheduler"]),
        (&"ipvs".into(), &"wlc".into())
    );
    for (name, address) in [("vip.yaml", "127.0.0.58"), ("vip-2.yaml", "127.0.0.60")] {
        let manifest = portico(&[
            "vip",
            "manifest",
            "--kind",
            "systemd",
            "--config",
            &at(name),
        ])
        .await;
        assert!(
            manifest
                .expect(0)
                .contains(&format!("--config={}", at(name)))
        );
        // Read, and then nobody is there to ask.
        let status = portico(&["vip", "status", "--config", &at(name)]).await;
        assert!(
            status.err.contains("cannot read the status at"),
            "{}",
            status.err
        );
        assert!(fs::read_to_string(at(name)).unwrap().contains(address));
    }
}

#[tokio::test]
async fn what_is_lost_is_told() {
    let keepalived = example("keepalived.conf");
    let printed = portico(&["migrate", "--keepalived", &keepalived]).await;
    for told in [
        "# WARNING: line 20: notify /usr/local/bin/tell",
        "# note: line 9: state BACKUP",
        "kind: VipConfiguration",
        "kind: EndpointSlice",
    ] {
        assert!(
            printed.expect(0).contains(told),
            "{told} is not in\n{}",
            printed.out
        );
    }
    let json = portico(&["migrate", "--keepalived", &keepalived, "-o", "json"])
        .await
        .json(0);
    assert_eq!(json[0]["documents"][0]["content"]["virtualRouterId"], 51);
    assert_eq!(
        portico(&["migrate", "--keepalived", &keepalived, "--strict"])
            .await
            .code,
        1
    );
    let nothing = portico(&["migrate"]).await;
    assert!(
        nothing.code == 1 && nothing.err.contains("say what to read: --metallb FILE"),
        "{}",
        nothing.err
    );
    let missing = portico(&["migrate", "--kube-proxy", "/nonexistent"]).await;
    assert!(
        missing.code == 1 && missing.err.contains("cannot read /nonexistent"),
        "{}",
        missing.err
    );
}

/// Somebody gave the wrong file.
#[tokio::test]
async fn a_file_of_another_kind_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(
        &file,
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    for flag in ["--metallb", "--kube-vip"] {
        let ran = portico(&["migrate", flag, file]).await;
        ran.expect(1);
        assert!(ran.err.contains("there is nothing of"), "{}", ran.err);
        assert!(ran.err.contains("Deployment"), "{}", ran.err);
    }
}
