use secrecy::ExposeSecret;

use super::*;

const UPSTREAM: &str = r#"
[Global]
auth-url="https://keystone.test/v3"
domain-name="mydomain"
tenant-name="mytenant"
username="myuser"
password="my;password"
region=RegionOne

[LoadBalancer]
floating-network-id="net"
subnet-id="sub"
create-monitor=true
monitor-delay=1m
monitor-timeout=30s
monitor-max-retries=2
lb-version=v2

[LoadBalancerClass "internetFacing"]
floating-network-id="other"
floating-subnet-id="part"

[BlockStorage]
bs-version=v3
"#;

#[test]
fn a_file_of_upstream_is_read() {
    let config = Config::parse(UPSTREAM).unwrap();
    let domain = Domain::Name("mydomain".to_owned());
    let Login::Password { user, password } = &config.global.login else {
        panic!("{:?}", config.global.login)
    };
    assert_eq!(
        *user,
        Named::Name {
            name: "myuser".to_owned(),
            domain: domain.clone()
        }
    );
    assert_eq!(password.expose_secret(), "my;password");
    assert_eq!(
        config.global.project,
        Some(Named::Name {
            name: "mytenant".to_owned(),
            domain
        })
    );
    assert_eq!(config.balancers.networks.subnet.as_deref(), Some("sub"));
    let times = MonitorTimes {
        delay: 60,
        timeout: 30,
        up_after: 2,
        down_after: 3,
    };
    assert_eq!(
        (config.balancers.monitor, config.balancers.monitor_times),
        (true, times)
    );
    assert_eq!(
        config.classes["internetfacing"].floating_subnet.as_deref(),
        Some("part")
    );
}

#[test]
fn secrets_are_not_shown() {
    assert!(!format!("{:?}", Config::parse(UPSTREAM).unwrap()).contains("my;password"));
}

#[test]
fn credentials_of_an_application_have_a_name_and_a_user_or_an_id() {
    let login = |more: &str| {
        let text = format!("[Global]\nauth-url=http://k\napplication-credential-secret=s\n{more}");
        Config::parse(&text)
            .map(|config| config.global.login)
            .map_err(|error| error.to_string())
    };
    assert!(matches!(
        login("application-credential-id=i"),
        Ok(Login::ApplicationCredential { .. })
    ));
    let named = login("application-credential-name=n\nuser-id=u");
    assert!(
        matches!(
            named,
            Ok(Login::NamedApplicationCredential {
                user: Named::Id(_),
                ..
            })
        ),
        "{named:?}"
    );
    assert_eq!(
        login("").unwrap_err(),
        "[Global] needs application-credential-id or application-credential-name"
    );
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| Config::parse(text).unwrap_err().to_string();
    assert_eq!(error("[Global]\nusername=u"), "[Global] needs auth-url");
    let good = "[Global]\nauth-url=http://k\nusername=u\npassword=p\n";
    assert_eq!(
        error(&good.replace("password=p", "")),
        "[Global] needs password"
    );
    let unknown = error(&format!("{good}[LoadBalancer]\nsubnet=x"));
    assert!(
        unknown.starts_with("not known: subnet (known in [loadbalancer]: "),
        "{unknown}"
    );
    let time = error(&format!("{good}[LoadBalancer]\nmonitor-delay=soon"));
    assert_eq!(
        time,
        "[loadbalancer] monitor-delay = \"soon\": is not a time such as 5s or 1m"
    );
}
