//! Where credentials come from: the places that the vendor's tools look in, in their order. The
//! first that is set up is taken.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::sign::Credentials;
use crate::cloud::{Ini, Section};

/// What a process finds around it.
pub(crate) struct Environment<'a> {
    pub variables: BTreeMap<String, String>,
    pub read: &'a (dyn Fn(&Path) -> Option<String> + Sync),
}

/// Where credentials come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// They were given, and do not expire.
    Fixed(Credentials),
    /// A file with a token that the STS gives credentials of a role for (IAM roles for service
    /// accounts).
    WebIdentity {
        /// The file with the token.
        token_file: PathBuf,
        /// The role.
        role: String,
        /// The name of the session, for the cloud's audit log.
        session: String,
    },
    /// An agent beside the container (ECS, EKS Pod Identity).
    Container {
        /// The address of the agent.
        url: String,
        /// The token that the agent asks for.
        token: Option<SecretString>,
        /// A file with that token, which is read for each request.
        token_file: Option<PathBuf>,
    },
    /// The role of the instance.
    Instance,
    /// The STS gives credentials of a role for others.
    Role {
        /// The role.
        role: String,
        /// The credentials with which it is assumed.
        base: Box<Self>,
    },
}

/// The address of the agent of ECS.
const CONTAINER: &str = "http://169.254.170.2";
const SESSION: &str = "portico";

impl Environment<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(crate) fn source(&self) -> Result<Source, String> {
        let found = self.variables().or_else(|| self.web_identity());
        let found = match found {
            Some(source) => Some(source),
            None => self.files()?,
        };
        Ok(found
            .or_else(|| self.container())
            .unwrap_or(Source::Instance))
    }

    /// The region, where anything but the instance says it.
    pub(crate) fn region(&self) -> Option<String> {
        let named = self
            .get("AWS_REGION")
            .or_else(|| self.get("AWS_DEFAULT_REGION"))
            .map(str::to_owned);
        named.or_else(|| {
            self.profile_section(false)?
                .get("region")
                .map(str::to_owned)
        })
    }

    fn variables(&self) -> Option<Source> {
        let token = self.get("AWS_SESSION_TOKEN");
        fixed(
            self.get("AWS_ACCESS_KEY_ID"),
            self.get("AWS_SECRET_ACCESS_KEY"),
            token,
        )
    }

    fn web_identity(&self) -> Option<Source> {
        let (token_file, role) = (
            self.get("AWS_WEB_IDENTITY_TOKEN_FILE")?,
            self.get("AWS_ROLE_ARN")?,
        );
        let session = self
            .get("AWS_ROLE_SESSION_NAME")
            .unwrap_or(SESSION)
            .to_owned();
        Some(Source::WebIdentity {
            token_file: token_file.into(),
            role: role.to_owned(),
            session,
        })
    }

    /// A profile that is named has to be there.
    fn files(&self) -> Result<Option<Source>, String> {
        for credentials in [true, false] {
            let Some(section) = self.profile_section(credentials) else {
                continue;
            };
            let (key, secret) = (
                section.get("aws_access_key_id"),
                section.get("aws_secret_access_key"),
            );
            if let Some(source) = fixed(key, secret, section.get("aws_session_token")) {
                return Ok(Some(source));
            }
            if let (Some(file), Some(role)) = (
                section.get("web_identity_token_file"),
                section.get("role_arn"),
            ) {
                let session = section
                    .get("role_session_name")
                    .unwrap_or(SESSION)
                    .to_owned();
                return Ok(Some(Source::WebIdentity {
                    token_file: file.into(),
                    role: role.to_owned(),
                    session,
                }));
            }
        }
        match self.get("AWS_PROFILE") {
            Some(name) => Err(format!(
                "profile {name} has neither keys nor a web identity"
            )),
            None => Ok(None),
        }
    }

    fn profile_section(&self, credentials: bool) -> Option<Section> {
        let profile = self.get("AWS_PROFILE").unwrap_or("default");
        let (variable, file) = match credentials {
            true => ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            false => ("AWS_CONFIG_FILE", "config"),
        };
        let home = || {
            self.get("HOME")
                .map(|home| Path::new(home).join(".aws").join(file))
        };
        let path = self.get(variable).map(PathBuf::from).or_else(home)?;
        let ini = Ini::parse(&(self.read)(&path)?).ok()?;
        let name = match credentials || profile == "default" {
            true => profile.to_lowercase(),
            false => format!("profile {profile}"),
        };
        Some(ini.section(&name))
    }

    fn container(&self) -> Option<Source> {
        let relative = self
            .get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
            .map(|path| format!("{CONTAINER}{path}"));
        let url = relative.or_else(|| {
            self.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                .map(str::to_owned)
        })?;
        let token = self
            .get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
            .map(SecretString::from);
        let token_file = self
            .get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            .map(PathBuf::from);
        Some(Source::Container {
            url,
            token,
            token_file,
        })
    }
}

fn fixed(key: Option<&str>, secret: Option<&str>, token: Option<&str>) -> Option<Source> {
    let (key, secret) = (key?.to_owned(), SecretString::from(secret?));
    Some(Source::Fixed(Credentials {
        key,
        secret,
        token: token.map(SecretString::from),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(
        variables: &[(&str, &str)],
        read: &'a (dyn Fn(&Path) -> Option<String> + Sync),
    ) -> Environment<'a> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Environment { variables, read }
    }

    fn told(source: &Result<Source, String>) -> String {
        match source {
            Ok(Source::Fixed(credentials)) => format!("key {}", credentials.key),
            Ok(Source::WebIdentity {
                token_file,
                role,
                session,
            }) => {
                format!(
                    "token {} role {role} session {session}",
                    token_file.display()
                )
            }
            Ok(Source::Container {
                url, token_file, ..
            }) => format!("{url} {token_file:?}"),
            Ok(Source::Instance) => "instance".to_owned(),
            Ok(Source::Role { role, .. }) => format!("role {role}"),
            Err(error) => error.clone(),
        }
    }

    fn files(path: &Path) -> Option<String> {
        match path.to_str()? {
            "/home/me/.aws/credentials" => Some(
                "[default]\naws_access_key_id = AKI1\naws_secret_access_key = s\n[Work]\naws_access_key_id = AKI2\n\
                 aws_secret_access_key = s==\n"
                    .to_owned(),
            ),
            "/home/me/.aws/config" => Some(
                "[default]\nregion = eu-west-1\n[profile pod]\nrole_arn = arn:r\nweb_identity_token_file = /t\n\
                 region = us-west-2\n"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    #[test]
    fn the_first_place_that_is_set_up_is_taken() {
        let home = ("HOME", "/home/me");
        let web = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/token"),
            ("AWS_ROLE_ARN", "arn:role"),
        ];
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKI0"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
        ];
        let relative = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x");
        let full = (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://169.254.170.23/v1/credentials",
        );
        let file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/pod/token");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (
                &[home, web[0], web[1], keys[0], keys[1], relative],
                "key AKI0",
            ),
            (
                &[home, web[0], web[1], relative],
                "token /var/token role arn:role session portico",
            ),
            (&[home, relative], "key AKI1"),
            (&[home, ("AWS_PROFILE", "Work")], "key AKI2"),
            (
                &[home, ("AWS_PROFILE", "pod")],
                "token /t role arn:r session portico",
            ),
            (
                &[home, ("AWS_PROFILE", "lost")],
                "profile lost has neither keys nor a web identity",
            ),
            (&[relative], "http://169.254.170.2/v2/x None"),
            (
                &[full, file],
                "http://169.254.170.23/v1/credentials Some(\"/pod/token\")",
            ),
            (&[keys[0]], "instance"),
            (&[], "instance"),
        ];
        for (variables, expected) in cases {
            let found = environment(variables, &files).source();
            assert_eq!(told(&found), *expected, "{variables:?}");
        }
    }

    #[test]
    fn the_region_is_named_or_the_profiles() {
        let region = |variables: &[(&str, &str)]| {
            environment(variables, &files).region().unwrap_or_default()
        };
        assert_eq!(
            region(&[("AWS_DEFAULT_REGION", "a"), ("HOME", "/home/me")]),
            "a"
        );
        assert_eq!(region(&[("HOME", "/home/me")]), "eu-west-1");
        assert_eq!(
            region(&[("HOME", "/home/me"), ("AWS_PROFILE", "pod")]),
            "us-west-2"
        );
        assert_eq!(region(&[]), "");
    }
}
