//! The file of `--cloud-config`, and from it, the surroundings of the program and the machine's
//! metadata to a provider that is ready.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::SecretString;

use super::api::DIALECT;
use super::{DigitalOcean, NAME, Parts};
use crate::Start;
use crate::cloud::{
    Anonymous, Authorize, Call, CallError, Client, Fixed, Header, Http, HttpOptions, Ini, IniError,
    Pace, Problem, Setup, Token, TokenSource, Tokens, Transport,
};

/// What a droplet knows of itself.
const METADATA: &str = "http://169.254.169.254/metadata/v1/region";
/// The vendor allows 250 requests a minute, and 5000 an hour.
const RATE: f64 = 4.0;
const BURST: u32 = 60;
/// A file may have another token after this; one that is refused is read again at once.
const TOKEN_LIFETIME: Duration = Duration::from_secs(600);

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The file with the token, in place of the environment's.
    pub token_file: Option<PathBuf>,
    /// The region, in place of the droplet's.
    pub region: Option<String>,
    /// The VPC, in place of the droplet's.
    pub vpc: Option<String>,
    /// The address of the API, in place of the vendor's.
    pub api_url: Option<String>,
}

impl Config {
    /// Reads the text of the file; a key that is not known is an error.
    pub fn parse(text: &str) -> Result<Self, IniError> {
        let global = Ini::parse(text)?.section("global");
        global.only(&["token-file", "region", "vpc-uuid", "api-url"])?;
        let get = |key: &str| global.get(key).map(str::to_owned);
        let api_url = get("api-url").map(|url| url.trim_end_matches('/').to_owned());
        Ok(Self {
            token_file: get("token-file").map(PathBuf::from),
            region: get("region"),
            vpc: get("vpc-uuid"),
            api_url,
        })
    }

    /// What it does not say, in the words of the vendor's own controller.
    fn or_environment(self, get: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            region: self.region.or_else(|| get("REGION")),
            vpc: self.vpc.or_else(|| get("DO_CLUSTER_VPC_ID")),
            api_url: self.api_url.or_else(|| get("DO_OVERRIDE_URL")),
            ..self
        }
    }
}

impl DigitalOcean {
    /// Errors name the file or the setting.
    pub async fn start(start: &Start) -> Result<Self, String> {
        let config = match &start.config {
            Some(path) => {
                let named = |error: String| format!("{}: {error}", path.display());
                let text =
                    std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
                Config::parse(&text).map_err(|error| named(error.to_string()))?
            }
            None => Config::default(),
        };
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let config = config.or_environment(set);
        let transport: Arc<dyn Transport> =
            Arc::new(Http::new(&HttpOptions::default()).map_err(|error| error.to_string())?);
        let (pace, metrics) = (
            Pace {
                rate: RATE,
                burst: BURST,
                ..Pace::default()
            },
            start.metrics.clone(),
        );
        let authorize = authorize(config.token_file.clone(), set("DO_ACCESS_TOKEN")).await?;
        let region = match config.region.clone() {
            Some(region) => region,
            None => {
                let (transport, metrics, authorize) =
                    (Arc::clone(&transport), metrics.clone(), Arc::new(Anonymous));
                let setup = Setup {
                    provider: NAME,
                    transport,
                    authorize,
                    dialect: DIALECT,
                    pace,
                    metrics,
                };
                own_region(&Client::new(setup)).await?
            }
        };
        Ok(Self::new(
            config,
            Parts {
                transport,
                authorize,
                region,
                pace,
                metrics,
            },
        ))
    }
}

/// A file comes before the environment, since it can change.
async fn authorize(
    file: Option<PathBuf>,
    token: Option<String>,
) -> Result<Arc<dyn Authorize>, String> {
    match (file, token) {
        (Some(path), _) => {
            let file = TokenFile(path);
            file.fetch()
                .await
                .map_err(|error| format!("token-file: {error}"))?;
            Ok(Arc::new(Tokens::new(file, Header::Bearer)))
        }
        (None, Some(token)) => Ok(Arc::new(Fixed {
            header: Header::Bearer,
            token: SecretString::from(token),
        })),
        (None, None) => Err(
            "there is no token: set token-file in --cloud-config, or DO_ACCESS_TOKEN".to_owned(),
        ),
    }
}

async fn own_region(client: &Client) -> Result<String, String> {
    let reply = client.send(Call::get("metadata", METADATA)).await;
    let reply = reply.map_err(|error| format!("{error}: set region in --cloud-config"))?;
    Ok(String::from_utf8_lossy(&reply.body).trim().to_owned())
}

struct TokenFile(PathBuf);

impl TokenSource for TokenFile {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, CallError>> {
        Box::pin(async {
            let named = |problem: &str| {
                CallError::new(
                    "token",
                    Problem::Credentials(format!("{}: {problem}", self.0.display())),
                )
            };
            let text =
                std::fs::read_to_string(&self.0).map_err(|error| named(&error.to_string()))?;
            match text.trim() {
                "" => Err(named("is empty")),
                token => Ok(Token {
                    secret: SecretString::from(token),
                    lifetime: TOKEN_LIFETIME,
                }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    #[test]
    fn a_file_comes_before_the_environment() {
        let text =
            "[global]\ntoken-file = /run/token\nregion = fra1\napi-url = http://localhost:1/\n";
        let named = |name: &str| Some(format!("of {name}"));
        let config = Config::parse(text).unwrap().or_environment(named);
        assert_eq!(
            (config.region.as_deref(), config.vpc.as_deref()),
            (Some("fra1"), Some("of DO_CLUSTER_VPC_ID"))
        );
        assert_eq!(config.api_url.as_deref(), Some("http://localhost:1"));
        let error = Config::parse("[global]\ntoken = x")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "not known: token (known in [global]: api-url, region, token-file, vpc-uuid)"
        );
    }

    #[tokio::test]
    async fn a_token_is_needed_and_may_change() {
        let error = authorize(None, None).await.err().unwrap();
        assert_eq!(
            error,
            "there is no token: set token-file in --cloud-config, or DO_ACCESS_TOKEN"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let error = authorize(Some(path.clone()), None).await.err().unwrap();
        assert!(
            error.starts_with("token-file: token: credentials: ") && error.contains("/token: "),
            "{error}"
        );
        for token in ["one", "two"] {
            std::fs::write(&path, format!("{token}\n")).unwrap();
            assert_eq!(
                TokenFile(path.clone())
                    .fetch()
                    .await
                    .unwrap()
                    .secret
                    .expose_secret(),
                token
            );
        }
        std::fs::write(&path, " \n").unwrap();
        assert!(
            TokenFile(path)
                .fetch()
                .await
                .unwrap_err()
                .to_string()
                .ends_with("/token: is empty")
        );
    }
}
