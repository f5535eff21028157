//! From flags, files and the machine's surroundings to a provider that is ready for calls.

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api as KubeApi;
use kube::api::PostParams;
use ring::rand::{SecureRandom, SystemRandom};

use super::api::DIALECT;
use super::auth::{Metadata, ServiceAccount};
use super::config::{Config, Place};
use super::{Gce, NAME, Parts};
use crate::Start;
use crate::cloud::{
    Anonymous, Authorize, CallMetrics, Client, Header, Http, HttpOptions, Pace, Poll, Setup,
    Tokens, Transport,
};

/// Where other controllers of this cloud keep the cluster's id too.
const ID_NAMESPACE: &str = "kube-system";
const ID_NAME: &str = "ingress-uid";
const ID_KEYS: [&str; 2] = ["provider-uid", "uid"];

impl Gce {
    /// Errors name the file or the setting.
    pub async fn start(start: &Start) -> Result<Self, String> {
        let text = match &start.config {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("{}: {error}", path.display()))?,
            None => String::new(),
        };
        let named = |error| {
            format!(
                "{}: {error}",
                start.config.as_deref().unwrap_or("".as_ref()).display()
            )
        };
        let config = Config::parse(&text).map_err(named)?;
        let transport: Arc<dyn Transport> =
            Arc::new(Http::new(&HttpOptions::default()).map_err(|error| error.to_string())?);
        let cluster_id = cluster_id(KubeApi::namespaced(
            start.cluster.client.clone(),
            ID_NAMESPACE,
        ))
        .await?;
        let wire = Wire {
            transport,
            metrics: start.metrics.clone(),
        };
        wire.gce(&config, cluster_id).await
    }
}

struct Wire {
    transport: Arc<dyn Transport>,
    metrics: CallMetrics,
}

impl Wire {
    fn anonymous(&self) -> Client {
        Client::new(Setup {
            provider: NAME,
            transport: Arc::clone(&self.transport),
            authorize: Arc::new(Anonymous),
            dialect: DIALECT,
            pace: Pace::default(),
            metrics: self.metrics.clone(),
        })
    }

    async fn gce(&self, config: &Config, cluster_id: String) -> Result<Gce, String> {
        let anonymous = Arc::new(self.anonymous());
        let host = env::var("GCE_METADATA_HOST").ok();
        let metadata = || Metadata::new(Arc::clone(&anonymous), host.as_deref());
        let account = account(&anonymous)?;
        let account_project = account
            .as_ref()
            .map(|account| account.project.clone())
            .filter(|name| !name.is_empty());
        let authorize: Arc<dyn Authorize> = match account {
            Some(account) => Arc::new(Tokens::new(account, Header::Bearer)),
            None => Arc::new(Tokens::new(metadata(), Header::Bearer)),
        };
        let value = |known: Option<String>, path: &'static str, key: &'static str| {
            let metadata = metadata();
            async move {
                match known {
                    Some(known) => Ok(known),
                    None => metadata
                        .value(path)
                        .await
                        .map_err(|error| format!("{error}: set {key} in --cloud-config")),
                }
            }
        };
        let project = value(
            config.project.clone().or(account_project),
            "project/project-id",
            "project-id",
        )
        .await?;
        let zone = value(config.zone.clone(), "instance/zone", "local-zone").await?;
        let network = value(
            config.network.clone(),
            "instance/network-interfaces/0/network",
            "network-name",
        )
        .await?;
        let zone = zone.rsplit('/').next().unwrap_or_default();
        let place = Place::new(config, project, zone, &network, cluster_id);
        let (transport, metrics) = (Arc::clone(&self.transport), self.metrics.clone());
        Ok(Gce::new(
            place,
            Parts {
                transport,
                authorize,
                pace: Pace::default(),
                poll: Poll::default(),
                metrics,
            },
        ))
    }
}

/// The key that `GOOGLE_APPLICATION_CREDENTIALS` names, if it is set.
fn account(client: &Arc<Client>) -> Result<Option<ServiceAccount>, String> {
    let Some(path) = env::var_os("GOOGLE_APPLICATION_CREDENTIALS") else {
        return Ok(None);
    };
    let failed = |error: String| {
        format!(
            "GOOGLE_APPLICATION_CREDENTIALS: {}: {error}",
            path.display()
        )
    };
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    ServiceAccount::parse(Arc::clone(client), &text)
        .map(Some)
        .map_err(failed)
}

/// The id of the cluster, made on the first start.
async fn cluster_id(maps: KubeApi<ConfigMap>) -> Result<String, String> {
    let failed = |error: kube::Error| format!("ConfigMap {ID_NAMESPACE}/{ID_NAME}: {error}");
    if let Some(map) = maps.get_opt(ID_NAME).await.map_err(failed)? {
        return id_in(&map);
    }
    let id = random_id()?;
    let data: BTreeMap<String, String> = ID_KEYS
        .iter()
        .map(|key| ((*key).to_owned(), id.clone()))
        .collect();
    let mut map = ConfigMap {
        data: Some(data),
        ..ConfigMap::default()
    };
    map.metadata.name = Some(ID_NAME.to_owned());
    match maps.create(&PostParams::default(), &map).await {
        Ok(_) => Ok(id),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            id_in(&maps.get(ID_NAME).await.map_err(failed)?)
        }
        Err(error) => Err(failed(error)),
    }
}

fn id_in(map: &ConfigMap) -> Result<String, String> {
    let value = |key: &&str| {
        map.data
            .as_ref()
            .and_then(|data| data.get(*key))
            .filter(|value| !value.is_empty())
    };
    let id = ID_KEYS.iter().find_map(value).cloned();
    id.ok_or_else(|| {
        format!("ConfigMap {ID_NAMESPACE}/{ID_NAME} has no uid: add one, or delete it")
    })
}

fn random_id() -> Result<String, String> {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "there is no randomness".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
