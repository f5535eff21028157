//! Everything that the provider starts with: the configuration, the place where it runs, and its
//! credentials.

use std::fs;
use std::sync::Arc;

use super::api::{Api, DIALECT, Service, classic, ec2, network};
use super::auth::{Environment, Fetcher, Metadata, Signer, Source};
use super::config::Config;
use super::surroundings::Surroundings;
use super::{Aws, DESCRIPTION};
use crate::Start;
use crate::cloud::{
    Anonymous, CallMetrics, Client, Http, HttpOptions, Pace, Poll, Setup, Transport,
};

/// What a provider is made of.
pub struct Parts {
    /// Sends requests.
    pub transport: Arc<dyn Transport>,
    /// What the file says.
    pub config: Config,
    /// Where credentials come from.
    pub source: Source,
    /// The region of the cluster.
    pub region: String,
    /// The VPC of the cluster.
    pub vpc: String,
    /// `--cluster-name`
    pub cluster: String,
    /// How often calls are made and repeated.
    pub pace: Pace,
    /// How often something that takes its time is looked at.
    pub poll: Poll,
    /// Where calls are counted.
    pub metrics: CallMetrics,
}

impl Aws {
    /// Starts the provider with what the environment, the configuration and the instance say, in
    /// that order.
    pub async fn start(start: Start) -> Result<Self, String> {
        let text = match &start.config {
            Some(path) => {
                fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?
            }
            None => String::new(),
        };
        let mut config = Config::parse(&text).map_err(|error| error.to_string())?;
        let transport: Arc<dyn Transport> =
            Arc::new(Http::new(&HttpOptions::default()).map_err(|error| error.to_string())?);
        let read = |path: &std::path::Path| fs::read_to_string(path).ok();
        let environment = Environment {
            variables: std::env::vars().collect(),
            read: &read,
        };
        let mut source = environment.source()?;
        if let Some(role) = &config.role {
            source = Source::Role {
                role: role.clone(),
                base: Box::new(source),
            };
        }
        let client = anonymous(&transport, &start.metrics);
        let metadata = Metadata {
            client: &client,
            endpoint: Metadata::ENDPOINT,
        };
        let region = match config.region.clone().or_else(|| environment.region()) {
            Some(region) => region,
            None => metadata
                .get("placement/region")
                .await
                .map_err(|error| format!("no region is set, and {error}"))?,
        };
        let vpc = match config.vpc.clone() {
            Some(vpc) => vpc,
            None => {
                let network = metadata
                    .network()
                    .await
                    .map_err(|error| format!("no VPC is set, and {error}"))?;
                config.subnet.get_or_insert(network.1);
                network.0
            }
        };
        let (cluster, metrics) = (start.cluster_name, start.metrics);
        let (pace, poll) = (Pace::default(), Poll::default());
        Ok(Self::new(Parts {
            transport,
            config,
            source,
            region,
            vpc,
            cluster,
            pace,
            poll,
            metrics,
        }))
    }

    /// A provider on this cloud.
    pub fn new(parts: Parts) -> Self {
        let sts = url(&parts, "sts");
        let client = anonymous(&parts.transport, &parts.metrics);
        let transport = Arc::clone(&parts.transport);
        let fetcher = Fetcher::new(parts.source.clone(), client, transport, &parts.region, sts);
        let credentials = Arc::new(fetcher);
        let ec2 = client_of(&parts, "ec2", &credentials);
        let elb = client_of(&parts, "elasticloadbalancing", &credentials);
        let elb_url = url(&parts, "elasticloadbalancing");
        let api = Api {
            ec2: Service {
                client: ec2,
                url: url(&parts, "ec2"),
                version: ec2::VERSION,
            },
            network: Service {
                client: Arc::clone(&elb),
                url: elb_url.clone(),
                version: network::VERSION,
            },
            classic: Service {
                client: elb,
                url: elb_url,
                version: classic::VERSION,
            },
        };
        let cluster = parts.config.cluster.clone().unwrap_or(parts.cluster);
        let around = Surroundings::new(
            api,
            parts.config,
            parts.region,
            parts.vpc,
            cluster,
            parts.poll,
        );
        Self {
            around,
            last: Default::default(),
        }
    }
}

fn anonymous(transport: &Arc<dyn Transport>, metrics: &CallMetrics) -> Client {
    Client::new(Setup {
        provider: DESCRIPTION.name,
        transport: Arc::clone(transport),
        authorize: Arc::new(Anonymous),
        dialect: DIALECT,
        pace: Pace::default(),
        metrics: metrics.clone(),
    })
}

fn client_of(parts: &Parts, service: &'static str, credentials: &Arc<Fetcher>) -> Arc<Client> {
    let endpoint = parts
        .config
        .endpoints
        .iter()
        .find(|it| it.service == service);
    let region = endpoint
        .and_then(|it| it.signing_region.clone())
        .unwrap_or_else(|| parts.region.clone());
    Arc::new(Client::new(Setup {
        provider: DESCRIPTION.name,
        transport: Arc::clone(&parts.transport),
        authorize: Arc::new(Signer {
            credentials: Arc::clone(credentials),
            region,
            service,
        }),
        dialect: DIALECT,
        pace: parts.pace,
        metrics: parts.metrics.clone(),
    }))
}

fn url(parts: &Parts, service: &str) -> String {
    let endpoint = parts
        .config
        .endpoints
        .iter()
        .find(|it| it.service == service);
    let suffix = if parts.region.starts_with("cn-") {
        ".cn"
    } else {
        ""
    };
    let usual = || format!("https://{service}.{}.amazonaws.com{suffix}/", parts.region);
    endpoint.map_or_else(usual, |it| format!("{}/", it.url.trim_end_matches('/')))
}
