//! What an instance can learn of itself (IMDSv2): its role's credentials, its region, its network.

use http::header::{HeaderName, HeaderValue};

use crate::cloud::{Call, CallError, Client};

const TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

pub(crate) struct Metadata<'a> {
    pub client: &'a Client,
    /// `http://169.254.169.254` but in tests.
    pub endpoint: &'a str,
}

impl Metadata<'_> {
    pub(crate) const ENDPOINT: &'static str = "http://169.254.169.254";

    /// A path below `latest/meta-data`.
    pub(crate) async fn get(&self, path: &str) -> Result<String, CallError> {
        let token = Call::put(
            "metadata.token",
            format!("{}/latest/api/token", self.endpoint),
        )
        .repeatable();
        let token = self
            .client
            .send(token.header(TTL, HeaderValue::from_static("60")))
            .await?;
        let call = Call::get(
            "metadata.get",
            format!("{}/latest/meta-data/{path}", self.endpoint),
        );
        let call = match HeaderValue::from_bytes(&token.body) {
            Ok(token) => call.header(TOKEN, token),
            Err(_) => call,
        };
        let reply = self.client.send(call).await?;
        Ok(String::from_utf8_lossy(&reply.body).trim().to_owned())
    }

    /// The network and the subnet of the instance's first interface.
    pub(crate) async fn network(&self) -> Result<(String, String), CallError> {
        let interface = format!("network/interfaces/macs/{}", self.get("mac").await?);
        Ok((
            self.get(&format!("{interface}/vpc-id")).await?,
            self.get(&format!("{interface}/subnet-id")).await?,
        ))
    }
}
