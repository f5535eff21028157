//! `moto` as a server of its own, with a network, three instances, things of others, and two users:
//! an administrator, who looks behind the provider, and the controller, who may do what docs/aws.md
//! says and nothing else.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use portico_providers::aws::api::{DIALECT, Query, Service, Xml};
use portico_providers::aws::auth::{Credentials, Fetcher, Signer, Source};
use portico_providers::aws::{Aws, Config, Endpoint, Parts};
use portico_providers::cloud::{
    Anonymous, CallMetrics, Client, Http, HttpOptions, Pace, Poll, Setup, Transport,
};
use portico_providers::{Node, Provider, ProviderError, Request};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::world;

const REGION: &str = "us-east-1";
/// Calls that make the users; those after them are checked.
const FREE_CALLS: usize = 6;
pub(crate) const CLUSTER_TAG: &str = "kubernetes.io/cluster/conformance";

pub(crate) struct Moto {
    _process: Child,
    url: String,
    transport: Arc<dyn Transport>,
    admin: Credentials,
    pub controller: Credentials,
    vpc: String,
    instances: Vec<String>,
}

/// The policy that docs/aws.md prints.
fn policy() -> String {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/aws.md")).unwrap();
    let after = page
        .split_once("```json\n")
        .expect("docs/aws.md has a policy")
        .1;
    after.split_once("```").unwrap().0.to_owned()
}

fn program() -> PathBuf {
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.into(), PathBuf::from);
    let program = target.join("moto/bin/moto_server");
    assert!(
        program.exists(),
        "{} is not there: make deps",
        program.display()
    );
    program
}

async fn serve() -> (Child, String) {
    let mut process = Command::new(program())
        .args(["-H", "127.0.0.1", "-p", "0"])
        .env("INITIAL_NO_AUTH_ACTION_COUNT", FREE_CALLS.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, url)) = line.split_once("Running on ") {
            let url = url.trim().to_owned();
            // Whatever it has to say later is read, or it would stop.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (process, url);
        }
    }
    panic!("moto_server ended: {:?}", process.wait().await);
}

impl Moto {
    pub(crate) async fn start() -> Self {
        let (process, url) = serve().await;
        let transport: Arc<dyn Transport> = Arc::new(Http::new(&HttpOptions::default()).unwrap());
        let nobody = Credentials {
            key: "AKIANOBODY".to_owned(),
            secret: "none".into(),
            token: None,
        };
        let mut moto = Self {
            _process: process,
            url,
            transport,
            admin: nobody.clone(),
            controller: nobody,
            vpc: String::new(),
            instances: Vec::new(),
        };
        let everything = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
        let admin = moto.user("admin", everything).await;
        moto.controller = moto.user("controller", &policy()).await;
        moto.admin = admin;
        moto.furnish().await;
        moto
    }

    pub(crate) fn service(
        &self,
        name: &'static str,
        version: &'static str,
        credentials: &Credentials,
    ) -> Service {
        let setup = |authorize| Setup {
            provider: "aws",
            transport: Arc::clone(&self.transport),
            authorize,
            dialect: DIALECT,
            pace: Pace {
                rate: 1e6,
                ..Pace::default()
            },
            metrics: CallMetrics::default(),
        };
        let source = Source::Fixed(credentials.clone());
        let client = Client::new(setup(Arc::new(Anonymous)));
        let fetcher = Fetcher::new(
            source,
            client,
            Arc::clone(&self.transport),
            REGION,
            String::new(),
        );
        let signer = Signer {
            credentials: Arc::new(fetcher),
            region: REGION.to_owned(),
            service: name,
        };
        Service {
            client: Arc::new(Client::new(setup(Arc::new(signer)))),
            url: format!("{}/", self.url),
            version,
        }
    }

    pub(crate) fn ec2(&self) -> Service {
        self.service("ec2", "2016-11-15", &self.admin)
    }

    pub(crate) fn network(&self) -> Service {
        self.service("elasticloadbalancing", "2015-12-01", &self.admin)
    }

    pub(crate) fn classic(&self) -> Service {
        self.service("elasticloadbalancing", "2012-06-01", &self.admin)
    }

    async fn user(&self, name: &str, policy: &str) -> Credentials {
        let iam = self.service("iam", "2010-05-08", &self.admin);
        iam.ask(Query::write("iam.CreateUser").set("UserName", name))
            .await
            .unwrap();
        let put = Query::write("iam.PutUserPolicy")
            .set("UserName", name)
            .set("PolicyName", "p");
        iam.ask(put.set("PolicyDocument", policy)).await.unwrap();
        let key = iam
            .ask(Query::write("iam.CreateAccessKey").set("UserName", name))
            .await
            .unwrap();
        Xml::read(&key, |xml| {
            let key = xml.find("AccessKey").unwrap();
            Credentials {
                key: key.text("AccessKeyId"),
                secret: key.text("SecretAccessKey").into(),
                token: None,
            }
        })
        .unwrap()
    }

    /// The text of an element of the answer.
    async fn make(&self, query: Query, element: &str) -> String {
        let reply = self.ec2().ask(query).await.unwrap();
        Xml::read(&reply, |xml| {
            xml.find(element).map(Xml::own_text).unwrap_or_default()
        })
        .unwrap()
    }

    /// A network with two public subnets, three instances, and things of others.
    async fn furnish(&mut self) {
        self.vpc = self
            .make(
                Query::write("ec2.CreateVpc").set("CidrBlock", "10.0.0.0/16"),
                "vpcId",
            )
            .await;
        let mut subnets = Vec::new();
        for (range, zone) in [("10.0.1.0/24", "us-east-1a"), ("10.0.2.0/24", "us-east-1b")] {
            let query = Query::write("ec2.CreateSubnet")
                .set("VpcId", &self.vpc)
                .set("CidrBlock", range);
            subnets.push(
                self.make(query.set("AvailabilityZone", zone), "subnetId")
                    .await,
            );
        }
        let gateway = self
            .make(
                Query::write("ec2.CreateInternetGateway"),
                "internetGatewayId",
            )
            .await;
        let attach = Query::write("ec2.AttachInternetGateway").set("InternetGatewayId", &gateway);
        self.make(attach.set("VpcId", &self.vpc), "return").await;
        let tables = Query::read("ec2.DescribeRouteTables").filters(&[("vpc-id", &[&self.vpc])]);
        let table = self.make(tables, "routeTableId").await;
        let route = Query::write("ec2.CreateRoute")
            .set("RouteTableId", table)
            .set("GatewayId", gateway);
        self.make(route.set("DestinationCidrBlock", "0.0.0.0/0"), "return")
            .await;
        let nodes = self.group("nodes", &[(CLUSTER_TAG, "owned")]).await;
        let others = self.group("others", &[("Name", "others")]).await;
        let rules = Query::write("ec2.AuthorizeSecurityGroupIngress").set("GroupId", &nodes);
        let rules = rules
            .set("IpPermissions.1.IpProtocol", "tcp")
            .set("IpPermissions.1.FromPort", 22);
        let rules = rules
            .set("IpPermissions.1.ToPort", 22)
            .set("IpPermissions.1.Groups.1.GroupId", &others);
        self.make(rules, "return").await;
        let run = Query::write("ec2.RunInstances")
            .set("ImageId", "ami-12c6146b")
            .set("MinCount", 3)
            .set("MaxCount", 3);
        let run = run
            .set("SubnetId", &subnets[0])
            .set("SecurityGroupId.1", &nodes);
        let reply = self.ec2().ask(run).await.unwrap();
        let ids = |xml: Xml<'_>| {
            xml.all("instancesSet")
                .map(|it| it.text("instanceId"))
                .collect()
        };
        self.instances = Xml::read(&reply, ids).unwrap();
        let other = Query::write("elbv2.CreateLoadBalancer")
            .set("Name", "others")
            .set("Type", "network");
        self.network()
            .ask(other.list("Subnets.member", &subnets))
            .await
            .unwrap();
        let other = Query::write("elbv2.CreateTargetGroup")
            .set("Name", "k8s-others")
            .set("Protocol", "TCP");
        self.network()
            .ask(other.set("Port", 80).set("VpcId", &self.vpc))
            .await
            .unwrap();
        let other = Query::write("elb.CreateLoadBalancer").set("LoadBalancerName", "others");
        let other = other
            .set("Listeners.member.1.Protocol", "TCP")
            .set("Listeners.member.1.LoadBalancerPort", 80);
        let other = other
            .set("Listeners.member.1.InstancePort", 80)
            .list("Subnets.member", &subnets);
        self.classic().ask(other).await.unwrap();
    }

    async fn group(&self, name: &str, tags: &[(&str, &str)]) -> String {
        let tags = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        self.ec2()
            .create_group(name, &self.vpc, "of a test", &tags)
            .await
            .unwrap()
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        let node = |(id, number): (&String, u8)| Node {
            name: format!("node-{number}"),
            provider_id: format!("aws:///us-east-1a/{id}"),
            ..Node::default()
        };
        self.instances.iter().zip(1..).map(node).collect()
    }

    pub(crate) fn provider(&self, credentials: &Credentials) -> Aws {
        let endpoint = |service: &str| Endpoint {
            service: service.to_owned(),
            url: self.url.clone(),
            signing_region: None,
        };
        let config = Config {
            endpoints: ["ec2", "elasticloadbalancing", "sts"]
                .map(endpoint)
                .to_vec(),
            ..Config::default()
        };
        Aws::new(Parts {
            transport: Arc::clone(&self.transport),
            config,
            source: Source::Fixed(credentials.clone()),
            region: REGION.to_owned(),
            vpc: self.vpc.clone(),
            cluster: "conformance".to_owned(),
            pace: Pace {
                rate: 1e6,
                ..Pace::default()
            },
            poll: Poll::default(),
            metrics: CallMetrics::default(),
        })
    }

    fn service_on(&self, name: &str, annotations: &[(&str, &str)]) -> Request {
        let prefix = "service.beta.kubernetes.io/aws-load-balancer-";
        let annotation =
            |(key, value): &(&str, &str)| (format!("{prefix}{key}"), (*value).to_owned());
        Request {
            annotations: annotations.iter().map(annotation).collect(),
            nodes: self.nodes(),
            ..world::request(name)
        }
    }

    /// A secret that is wrong in its last letter is not enough.
    pub(crate) async fn signatures_are_checked(&self) {
        let wrong = Credentials {
            secret: "wrong".into(),
            ..self.controller.clone()
        };
        let answer = self
            .provider(&wrong)
            .ensure(&self.service_on("unsigned", &[]))
            .await;
        let Err(ProviderError::Failed(message)) = answer else {
            panic!("{answer:?}")
        };
        assert!(message.contains("SignatureDoesNotMatch"), "{message}");
    }

    /// The controller can do no more than it needs to.
    pub(crate) async fn permissions_are_checked(&self) {
        let ec2 = self.service("ec2", "2016-11-15", &self.controller);
        let answer = ec2
            .ask(Query::write("ec2.TerminateInstances").set("InstanceId.1", &self.instances[0]))
            .await;
        let message = answer.unwrap_err().to_string();
        assert!(message.contains("AccessDenied"), "{message}");
    }

    pub(crate) async fn an_instance_that_is_gone_keeps_no_other_out(&self) {
        let stop = Query::write("ec2.StopInstances").set("InstanceId.1", &self.instances[1]);
        self.ec2().ask(stop).await.unwrap();
        let (provider, request) = (
            self.provider(&self.controller),
            self.service_on("gone", &[]),
        );
        provider.ensure(&request).await.unwrap();
        let owned = world::owned(self).await.unwrap().join("\n");
        for (number, id) in self.instances.iter().enumerate() {
            assert_eq!(owned.contains(id), number != 1, "{id}: {owned}");
        }
        provider.delete(&request).await.unwrap();
        let start = Query::write("ec2.StartInstances").set("InstanceId.1", &self.instances[1]);
        self.ec2().ask(start).await.unwrap();
    }

    /// And taken back.
    pub(crate) async fn what_annotations_say_is_set(&self) {
        let cross = ("cross-zone-load-balancing-enabled", "true");
        let (proxy, tags) = (
            ("proxy-protocol", "*"),
            ("additional-resource-tags", "team=shop"),
        );
        for kind in ["nlb", "classic"] {
            let provider = self.provider(&self.controller);
            let all = self.service_on("annotated", &[("type", kind), cross, proxy, tags]);
            provider.ensure(&all).await.unwrap();
            let owned = world::owned(self).await.unwrap().join("\n");
            let expected: &[&str] = match kind {
                "nlb" => &[
                    "proxy_protocol_v2.enabled",
                    "load_balancing.cross_zone.enabled Value=true",
                    "Value=shop",
                ],
                _ => &[
                    "k8s-proxyprotocol-enabled",
                    "CrossZoneLoadBalancing Enabled=true",
                    "Value=shop",
                ],
            };
            for text in expected {
                assert!(owned.contains(text), "{kind} {text}: {owned}");
            }
            let plain = self.service_on("annotated", &[("type", kind)]);
            provider.ensure(&plain).await.unwrap();
            let owned = world::owned(self).await.unwrap().join("\n");
            assert!(
                !owned.contains("load_balancing.cross_zone.enabled Value=true"),
                "{owned}"
            );
            provider.delete(&plain).await.unwrap();
            assert_eq!(world::owned(self).await.unwrap(), [""; 0]);
        }
    }
}
