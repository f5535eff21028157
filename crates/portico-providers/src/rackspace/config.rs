//! The file of `--cloud-config`, with the names that the cloud provider of Kubernetes had, and the
//! variables that the vendor's tools read where the file says nothing.

use secrecy::SecretString;

use crate::cloud::{Ini, IniError};

const AUTH_URL: &str = "https://identity.api.rackspacecloud.com/v2.0";
/// The limit of an account by default.
const NODE_LIMIT: usize = 25;

const KEYS: &[&str] = &["auth-url", "username", "api-key", "region", "node-limit"];

/// What the file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// Without the version of its API.
    pub auth_url: String,
    /// The name of the user.
    pub username: String,
    /// The API key of the user.
    pub api_key: SecretString,
    /// The region of the load balancers.
    pub region: String,
    /// Nodes that a load balancer of the account takes.
    pub node_limit: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Ini(#[from] IniError),
    #[error("[Global] needs {0}, or the environment {1}")]
    Missing(&'static str, &'static str),
}

impl Config {
    /// `variable` looks into the environment.
    pub fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let global = Ini::parse(text)?.section("global");
        global.only(KEYS)?;
        let value = |key: &'static str, name: &'static str| {
            global
                .get(key)
                .map(str::to_owned)
                .or_else(|| variable(name))
                .filter(|value| !value.is_empty())
        };
        let needed = |key, name| value(key, name).ok_or(ConfigError::Missing(key, name));
        let auth_url = value("auth-url", "RS_AUTH_URL").unwrap_or_else(|| AUTH_URL.to_owned());
        Ok(Self {
            auth_url: auth_url
                .trim_end_matches('/')
                .trim_end_matches("/v2.0")
                .to_owned(),
            username: needed("username", "RS_USERNAME")?,
            api_key: SecretString::from(needed("api-key", "RS_API_KEY")?),
            // Catalogs have them in capital letters.
            region: needed("region", "RS_REGION_NAME")?.to_uppercase(),
            node_limit: global.number("node-limit")?.unwrap_or(NODE_LIMIT),
        })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let find = |name: &str| {
            environment
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Config::parse(text, find).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_comes_before_the_environment() {
        let environment = [
            ("RS_USERNAME", "other"),
            ("RS_API_KEY", "hush"),
            ("RS_REGION_NAME", "DFW"),
        ];
        let config = parse(
            "[Global]\nusername = shop\nregion = ord\nnode-limit = 50\n",
            &environment,
        )
        .unwrap();
        assert_eq!(
            (config.username.as_str(), config.api_key.expose_secret()),
            ("shop", "hush")
        );
        assert_eq!((config.region.as_str(), config.node_limit), ("ORD", 50));
        assert_eq!(config.auth_url, "https://identity.api.rackspacecloud.com");
        assert_eq!(
            parse("[Global]\nauth-url = http://i/v2.0/", &environment)
                .unwrap()
                .auth_url,
            "http://i"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let missing = "[Global] needs api-key, or the environment RS_API_KEY";
        assert_eq!(
            parse("[Global]\nusername = shop", &[]).unwrap_err(),
            missing
        );
        assert!(
            parse("[Global]\npassword = x", &[])
                .unwrap_err()
                .starts_with("not known: password (known in")
        );
    }
}
