use super::*;
use crate::config::ApiAccess;
use portico_model::table::{Family, Protocol};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

fn root(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (name, text) in files {
        let path: PathBuf = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn key(name: &str, protocol: Protocol, family: Family) -> PortKey {
    let service = ObjectKey::new("default", name);
    PortKey {
        service,
        port: "".into(),
        protocol,
        family,
    }
}

/// Listening: TCP 0.0.0.0:30080, 127.0.0.1:30081, [::]:30082; a connection on 30083; UDP
/// 172.30.0.11:30084.
fn sockets() -> TempDir {
    let tcp = "  sl  local_address rem_address   st\n\
               0: 00000000:7580 00000000:0000 0A 0 0\n\
               1: 0100007F:7581 00000000:0000 0A 0 0\n\
               2: 0B001EAC:7583 0A6433C6:1F90 01 0 0\n";
    let tcp6 = "  sl  local_address\n   0: 00000000000000000000000000000000:7582 \
                00000000000000000000000000000000:0000 0A\n";
    let udp = "  sl  local_address\n   0: 0B001EAC:7584 00000000:0000 07\n";
    root(&[
        ("proc/net/tcp", tcp),
        ("proc/net/tcp6", tcp6),
        ("proc/net/udp", udp),
    ])
}

fn told(
    root: &TempDir,
    new: &[(PortKey, u16)],
    addresses: &PerFamily<NodePortAddresses>,
) -> Vec<Notice> {
    let (notices, mut receiver) = Notices::new();
    let new: Vec<NewNodePort> = new
        .iter()
        .map(|(key, port)| NewNodePort {
            key: key.clone(),
            port: *port,
            addresses: None,
        })
        .collect();
    check_node_ports(root.path(), &new, addresses, &notices);
    std::iter::from_fn(|| receiver.try_recv().ok()).collect()
}

#[test]
fn listeners_in_the_way_are_found() {
    use Family::{V4, V6};
    use Protocol::{Tcp, Udp};
    let listed = PerFamily {
        v4: NodePortAddresses::Listed(vec!["172.30.0.11".parse().unwrap()]),
        v6: NodePortAddresses::AllLocal { loopback: false },
    };
    let everywhere = PerFamily {
        v4: NodePortAddresses::AllLocal { loopback: true },
        v6: NodePortAddresses::AllLocal { loopback: false },
    };
    let table = [
        (30080, Tcp, V4, &listed, true),
        (30080, Udp, V4, &listed, false),
        (30080, Tcp, V6, &listed, false),
        (30081, Tcp, V4, &listed, false),
        (30081, Tcp, V4, &everywhere, true),
        (30082, Tcp, V4, &listed, true),
        (30082, Tcp, V6, &listed, true),
        (30083, Tcp, V4, &listed, false),
        (30084, Udp, V4, &listed, true),
    ];
    let root = sockets();
    for (port, protocol, family, addresses, expected) in table {
        let notices = told(&root, &[(key("a", protocol, family), port)], addresses);
        assert_eq!(
            !notices.is_empty(),
            expected,
            "{port} {protocol:?} {family:?}: {notices:?}"
        );
    }
    // In a port partition only its addresses count.
    for (own, expected) in [("172.30.0.11", true), ("172.30.0.12", false)] {
        let (notices, mut receiver) = Notices::new();
        let new = NewNodePort {
            key: key("a", Udp, V4),
            port: 30084,
            addresses: Some(vec![own.parse().unwrap()]),
        };
        check_node_ports(root.path(), &[new], &everywhere, &notices);
        assert_eq!(receiver.try_recv().is_ok(), expected, "{own}");
    }
    let both = [(key("a", Tcp, V4), 30082), (key("a", Tcp, V6), 30082)];
    let notices = told(&root, &both, &listed);
    let [notice] = notices.as_slice() else {
        panic!("once for a Service: {notices:?}")
    };
    assert_eq!((notice.reason, notice.warning), ("NodePortInUse", true));
    assert!(notice.text.contains("[::]:30082"), "{}", notice.text);
}

#[test]
fn ports_that_the_node_may_take_are_told_in_one() {
    let files = [
        ("proc/sys/net/ipv4/ip_local_port_range", "30000\t60999\n"),
        (
            "proc/sys/net/ipv4/ip_local_reserved_ports",
            "30000-30999,31005\n",
        ),
    ];
    let root = root(&files);
    let new: Vec<(PortKey, u16)> = (31000..31010)
        .chain([29999, 30500])
        .map(|port| (key(&format!("s{port}"), Protocol::Tcp, Family::V4), port))
        .collect();
    let notices = told(&root, &new, &PerFamily::default());
    let [notice] = notices.as_slice() else {
        panic!("{notices:?}")
    };
    assert_eq!(notice.service, None);
    assert!(
        notice
            .text
            .starts_with("node ports 31000 (default/s31000), 31001"),
        "{}",
        notice.text
    );
    assert!(notice.text.contains("and 4 more"), "{}", notice.text);
}

#[test]
fn events_name_their_object() {
    let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let service = Some(ObjectKey::new("shop", "web"));
    let notice = Notice {
        service,
        warning: true,
        reason: "NodePortInUse",
        text: "taken".to_owned(),
    };
    let (namespace, event) = event(&notice, "node1", "uid-1", now);
    assert_eq!(namespace, "shop");
    assert_eq!(event["involvedObject"]["kind"], "Service");
    assert_eq!(event["involvedObject"]["uid"], "uid-1");
    assert_eq!(
        (event["type"].as_str(), event["lastTimestamp"].as_str()),
        (Some("Warning"), Some("2026-01-02T03:04:05Z"))
    );
    let about_node = Notice {
        service: None,
        ..notice
    };
    let (namespace, event) = super::event(&about_node, "node1", "node1", now);
    assert_eq!(
        (namespace.as_str(), event["involvedObject"]["name"].as_str()),
        ("default", Some("node1"))
    );
}

#[test]
fn a_flood_of_events_is_dammed() {
    let now = Instant::now();
    let mut room = Room::new(now);
    assert_eq!(
        (0..100).filter(|_| room.take(now).is_ok()).count(),
        BURST as usize
    );
    assert_eq!(room.take(now + REFILL / 2), Err(REFILL / 2));
    assert!(room.take(now + REFILL).is_ok());
    assert_eq!(room.take(now + REFILL), Err(REFILL));
    let later = now + 1000 * REFILL;
    assert_eq!(
        (0..100).filter(|_| room.take(later).is_ok()).count(),
        BURST as usize
    );
}

/// Answers requests one after the other, and says what they were.
async fn server(answers: &'static [u16]) -> (Client, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for status in answers {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            let mut lines = Vec::new();
            while lines
                .last()
                .is_none_or(|line: &String| !line.trim().is_empty())
            {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                lines.push(line);
            }
            let length = lines
                .iter()
                .find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
            stream.read_exact(&mut body).await.unwrap();
            let answer = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            sender
                .send(lines.swap_remove(0) + &String::from_utf8(body).unwrap())
                .unwrap();
        }
    });
    let access = ApiAccess {
        server: Some(url),
        kubeconfig: None,
    };
    (client::client(&access), requests)
}

#[tokio::test]
async fn an_event_is_written_when_the_server_is_back() {
    let (client, mut requests) = server(&[503, 500, 201, 403, 201]).await;
    let notice = |text: &str| Notice {
        service: None,
        warning: false,
        reason: "Starting",
        text: text.to_owned(),
    };
    let (notices, noticed) = Notices::new();
    ["first", "first", "refused", "last"]
        .into_iter()
        .for_each(|text| notices.tell(notice(text)));
    let sending = tokio::spawn(send(client, "node1".into(), noticed));
    for expected in ["first", "first", "first", "refused", "last"] {
        let request = tokio::time::timeout(Duration::from_secs(20), requests.recv())
            .await
            .unwrap()
            .unwrap();
        assert!(
            request.starts_with("POST /api/v1/namespaces/default/events"),
            "{request}"
        );
        assert!(
            request.contains(&format!(r#""message":"{expected}""#)),
            "{expected}: {request}"
        );
    }
    drop(notices);
    sending.await.unwrap();
}
