//! The file of `--cloud-config` (`gce.conf`, as other controllers of Kubernetes read it), and what
//! the metadata server knows.

use ipnet::Ipv4Net;

use crate::cloud::{Ini, IniError};

/// Where Google's health checkers ask from.
const CHECKERS: &[&str] = &[
    "130.211.0.0/22",
    "35.191.0.0/16",
    "209.85.152.0/22",
    "209.85.204.0/22",
];
pub(super) const ENDPOINT: &str = "https://compute.googleapis.com/compute/v1/";

const KEYS: &[&str] = &[
    "project-id",
    "network-project-id",
    "network-name",
    "node-tags",
    "local-zone",
    "api-endpoint",
    "token-url",
    "health-check-source-ranges",
    // What other parts of other controllers read from the same file.
    "subnetwork-name",
    "secondary-range-name",
    "node-instance-prefix",
    "regional",
    "multizone",
    "token-body",
    "container-api-endpoint",
    "alpha-features",
];

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The project, in place of the instance's.
    pub project: Option<String>,
    /// The one that has the network, if it is not the same (shared VPC).
    pub network_project: Option<String>,
    /// A name or an address.
    pub network: Option<String>,
    /// Of the instances that traffic is let to; empty: found by their names.
    pub node_tags: Vec<String>,
    /// The zone, in place of the instance's.
    pub zone: Option<String>,
    /// Ends with a slash.
    pub endpoint: String,
    /// The address that gives tokens, in place of the metadata server.
    pub token_url: Option<String>,
    /// The networks that health checks come from.
    pub checkers: Vec<Ipv4Net>,
}

impl Config {
    /// Reads the text of the file; a key that is not known is an error.
    pub fn parse(text: &str) -> Result<Self, IniError> {
        let global = Ini::parse(text)?.section("global");
        global.only(KEYS)?;
        let get = |key: &str| global.get(key).map(str::to_owned);
        let ranges = global.all("health-check-source-ranges");
        let ranges = if ranges.is_empty() {
            CHECKERS.iter().map(ToString::to_string).collect()
        } else {
            ranges
        };
        let checkers = ranges
            .iter()
            .map(|range| range.parse())
            .collect::<Result<Vec<Ipv4Net>, _>>();
        let endpoint = global
            .get("api-endpoint")
            .unwrap_or(ENDPOINT)
            .trim_end_matches('/');
        Ok(Self {
            project: get("project-id"),
            network_project: get("network-project-id"),
            network: get("network-name"),
            node_tags: global.all("node-tags"),
            zone: get("local-zone"),
            endpoint: format!("{endpoint}/"),
            token_url: get("token-url").filter(|url| url != "nil"),
            checkers: checkers.map_err(|_| {
                global.wrong(
                    "health-check-source-ranges",
                    "is not a list of IPv4 networks",
                )
            })?,
        })
    }
}

/// Where things are, once it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the API, which ends with a slash.
    pub endpoint: String,
    /// The project of the load balancers.
    pub project: String,
    /// The project of the network.
    pub network_project: String,
    /// The region of the load balancers.
    pub region: String,
    /// As firewalls name it.
    pub network: String,
    /// The tags of instances that traffic is let to; empty: found by their names.
    pub node_tags: Vec<String>,
    /// The networks that health checks come from.
    pub checkers: Vec<Ipv4Net>,
    /// The id of the cluster among all that share a project.
    pub cluster_id: String,
}

impl Place {
    /// `network` may be a name (`default`) or a path (`projects/1234/networks/default`).
    pub fn new(
        config: &Config,
        project: String,
        zone: &str,
        network: &str,
        cluster_id: String,
    ) -> Self {
        let network_project = config
            .network_project
            .clone()
            .unwrap_or_else(|| project.clone());
        let name = network.rsplit('/').next().unwrap_or_default();
        Self {
            endpoint: config.endpoint.clone(),
            network: format!(
                "{}projects/{network_project}/global/networks/{name}",
                config.endpoint
            ),
            region: zone
                .rsplit_once('-')
                .map_or(zone, |(region, _)| region)
                .to_owned(),
            node_tags: config.node_tags.clone(),
            checkers: config.checkers.clone(),
            network_project,
            project,
            cluster_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_as_others_read_it() {
        let text = "[global]\nproject-id = shop\nnetwork-name = prod\nnode-tags = node\nnode-tags = gpu\n\
                    local-zone = europe-west1-b\nmultizone = true\ntoken-url = nil\napi-endpoint = http://localhost:1/x\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(
            (config.project.as_deref(), config.token_url.as_deref()),
            (Some("shop"), None)
        );
        assert_eq!(config.node_tags, ["node", "gpu"]);
        let place = Place::new(
            &config,
            "shop".into(),
            "europe-west1-b",
            "projects/7/networks/prod",
            "id".into(),
        );
        assert_eq!(place.region, "europe-west1");
        assert_eq!(
            place.network,
            "http://localhost:1/x/projects/shop/global/networks/prod"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Config::parse(text).unwrap_err().to_string();
        assert!(
            error("[global]\nproject = shop")
                .starts_with("not known: project (known in [global]: ")
        );
        let ranges = error("[global]\nhealth-check-source-ranges = 10.0.0.1/x");
        assert_eq!(
            ranges,
            "[global] health-check-source-ranges = \"10.0.0.1/x\": is not a list of IPv4 networks"
        );
    }

    #[test]
    fn without_a_file_all_is_asked_of_the_metadata_server() {
        let config = Config::parse("").unwrap();
        assert_eq!(
            config.endpoint,
            "https://compute.googleapis.com/compute/v1/"
        );
        assert_eq!((config.checkers.len(), config.project), (4, None));
    }
}
