use super::super::report::Remark;
use super::*;
use portico_vip::config::{Surroundings, read_file, resolve};
use serde_json::{Value, json};

/// As kubeadm's guide has it, with most of what people add.
const CONTROL_PLANE: &str = r#"
global_defs {
    router_id LVS_DEVEL
    notification_email { root@localhost }
}
vrrp_script check_apiserver {
  script "/etc/keepalived/check_apiserver.sh"
  interval 3
  weight -2
  fall 10
  rise 2
}
vrrp_script chk_disk { script "/bin/disk" }
vrrp_instance VI_1 {
    state MASTER
    interface eth0
    virtual_router_id 51
    priority 101
    advert_int 2
    nopreempt
    authentication {
        auth_type PASS
        auth_pass 42
    }
    unicast_src_ip 172.16.64.35
    unicast_peer {
        172.16.64.36
        172.16.64.37
    }
    virtual_ipaddress {
        172.16.64.58/24 dev eth0 label eth0:vip
    }
    track_script {
        check_apiserver
        chk_disk
    }
    track_interface { eth0 }
    garp_master_repeat 3
    notify_master "/bin/tell"
    lvs_sync_daemon_interface eth0
}
virtual_server 172.16.64.58 6443 {
    delay_loop 6
    lb_algo wlc
    lb_kind DR
    protocol TCP
    real_server 172.16.64.35 6443 { SSL_GET { url { path /readyz } } }
    real_server 172.16.64.36 6443 { TCP_CHECK { connect_timeout 3 } }
}
virtual_server 172.16.64.58 80 {
    persistence_timeout 50
    protocol TCP
    real_server 10.0.0.5 8080 {
        weight 3
        HTTP_GET {
            url {
                path /healthz
            }
        }
    }
    real_server 10.0.0.6 8081 { TCP_CHECK { } }
    sorry_server 10.0.0.9 80
}
vrrp_sync_group G1 { group { VI_1 } }
include /etc/keepalived/more.conf
"#;

fn file<'a>(files: &'a [File], name: &str) -> &'a File {
    files
        .iter()
        .find(|file| file.name == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

fn resolved(file: &File) -> portico_vip::config::Config {
    let written = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(written.path(), file.print()).unwrap();
    let mut given = read_file(written.path()).unwrap();
    if given.password_file.take().is_some() {
        std::fs::write(written.path(), "42").unwrap();
        given.password_file = Some(written.path().to_owned());
    }
    let around = Surroundings {
        addresses: vec![("eth0".to_owned(), "172.16.64.35/24".parse().unwrap())],
    };
    resolve(given, &around).unwrap()
}

#[test]
fn the_address_of_a_control_plane() {
    let files = translate(CONTROL_PLANE).unwrap();
    let vip = file(&files, "vip.yaml");
    assert_eq!(
        vip.documents[0].content,
        json!({
            "apiVersion": "portico.dev/v1", "kind": "VipConfiguration",
            "addresses": ["172.16.64.58"], "port": 6443, "interface": "eth0", "prefix": 24, "virtualRouterId": 51,
            "priority": 101, "priorityPenalty": 2, "interval": "2s", "preempt": false, "vrrpVersion": 2,
            "nodeIps": ["172.16.64.35"], "unicastPeers": ["172.16.64.36", "172.16.64.37"], "announcements": 3,
            "passwordFile": "/etc/portico/vip.password", "apiServers": ["172.16.64.35:6443", "172.16.64.36:6443"],
        })
    );
    let text = vip.print();
    for told in [
        "# WARNING: line 4: notification_email {…}: no mail is sent",
        "# note: line 3: router_id LVS_DEVEL is not needed",
        "# note: line 15: state MASTER: everybody begins as a backup",
        "# note: line 34: check_apiserver: `portico vip` asks every API server",
        "interval 3, fall 10, rise 2 of the script are not kept",
        "# WARNING: line 35: chk_disk: the script \"/bin/disk\" is not run",
        "# WARNING: line 39: notify_master /bin/tell: nothing is run",
        "# WARNING: line 40: lvs_sync_daemon_interface eth0 has no equivalent",
        "# WARNING: line 45: lb_kind DR",
        "# WARNING: line 64: vrrp_sync_group G1 {…}",
        "# WARNING: line 65: include /etc/keepalived/more.conf",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
    let config = resolved(vip);
    assert_eq!(
        (config.elections[0].router.vrid, config.servers.fixed.len()),
        (51, 2)
    );
}

#[test]
fn other_servers_become_services() {
    let files = translate(CONTROL_PLANE).unwrap();
    let services = file(&files, "services.yaml");
    let [service, one, other] = &services.documents[..] else {
        panic!("{}", services.print())
    };
    assert_eq!(
        service.content["spec"]["externalIPs"],
        json!(["172.16.64.58"])
    );
    assert_eq!(
        service.content["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"],
        50
    );
    assert_eq!(
        one.content["endpoints"],
        json!([{"addresses": ["10.0.0.5"]}])
    );
    assert_eq!(other.content["ports"][0]["port"], 8081);
    let text = services.print();
    for told in [
        "--port 80 --to 10.0.0.5:8080,10.0.0.6:8081 --health http:/healthz",
        "weight 3: all endpoints are alike",
        "sorry_server 10.0.0.9 80 has no equivalent",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
}

#[test]
fn every_instance_is_a_file() {
    let text = "vrrp_instance web { interface eth0\n virtual_ipaddress { 172.16.64.9 } }\n\
                vrrp_instance api { interface eth0\n priority 255\n advert_int 0.5\n version 3\n virtual_ipaddress { 172.16.64.10 }\n track_script { check_apiserver } }";
    let files = translate(text).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["vip.yaml", "vip-web.yaml"]);
    assert_eq!(
        files[0].documents[0].content["addresses"],
        json!(["172.16.64.10"])
    );
    let config = resolved(&files[0]);
    assert_eq!(
        (
            config.priority,
            config.elections[0].router.interval.as_millis()
        ),
        (254, 500)
    );
    assert!(files[1].remarks.iter().any(Remark::is_warning));
    assert!(
        files[1]
            .print()
            .contains("For the address of a Service make an AddressPool")
    );
    resolved(&files[1]);
}

#[test]
fn syntax_errors_have_their_line() {
    assert_eq!(
        translate("vrrp_instance a {\n").unwrap_err(),
        "line 1: the { has no }"
    );
}

#[test]
fn an_address_that_only_services_have_is_announced_by_the_nodes() {
    let text = "vrrp_instance web { interface eth0\n virtual_router_id 7\n virtual_ipaddress { 192.0.2.10 } }\n\
                virtual_server 192.0.2.10 80 { real_server 10.0.0.5 8080 { } }\n\
                virtual_server 192.0.2.10 443 { real_server 10.0.0.5 8443 { } }";
    let files = translate(text).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["services.yaml"]);
    let contents: Vec<&Value> = files[0].documents.iter().map(|one| &one.content).collect();
    assert_eq!(contents[0]["kind"], "AddressPool");
    assert_eq!(
        contents[0]["spec"],
        json!({"addresses": ["192.0.2.10-192.0.2.10"], "autoAssign": false})
    );
    for at in [1, 3] {
        assert_eq!(contents[at]["spec"]["type"], "LoadBalancer");
        assert_eq!(
            contents[at]["metadata"]["annotations"],
            json!({"portico.dev/addresses": "192.0.2.10", "portico.dev/allow-shared-ip": "192.0.2.10"})
        );
    }
    assert_eq!(files[0].warnings(), 0, "{}", files[0].print());
}
