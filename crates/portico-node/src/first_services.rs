//! The Services that everything else needs to start (the API server's own and DNS) are asked for by
//! name, so that a node that begins with nothing does not make them wait for the thousands of others.

use crate::client::{self, RequestError};
use crate::objects::{Kind, Object, SERVICE_NAME};
use crate::watch;
use kube::Client;
use portico_client::error::chain;

const DNS: u16 = 53;
/// A cluster has one or two DNS Services; more are not worth more requests.
const MOST_DNS: usize = 4;

/// The objects that could be read in time. The node works without them.
pub(crate) async fn fetch(client: &Client) -> Vec<Object> {
    let (api, dns) = tokio::join!(api_server(client), dns(client));
    let mut objects = Vec::new();
    for found in [api, dns] {
        match found {
            Ok(found) => objects.extend(found),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot ask for the first Services")
            }
        }
    }
    objects
}

async fn api_server(client: &Client) -> Result<Vec<Object>, RequestError> {
    let body = client::get(client, &watch::list_of_one("default", "kubernetes")).await?;
    let mut objects = slices(client, "default", "kubernetes").await?;
    objects.extend(watch::objects_of_list(Kind::Service, &body)?);
    Ok(objects)
}

async fn dns(client: &Client) -> Result<Vec<Object>, RequestError> {
    let body = client::get(client, "/api/v1/namespaces/kube-system/services?limit=500").await?;
    let serves_dns = |object: &Object| match object {
        Object::Service(service) => service.spec.ports.iter().any(|port| port.port == DNS),
        _ => false,
    };
    let services = watch::objects_of_list(Kind::Service, &body)?
        .into_iter()
        .filter(serves_dns)
        .take(MOST_DNS);
    let mut objects = Vec::new();
    for service in services {
        objects.extend(slices(client, "kube-system", &service.metadata().name).await?);
        objects.push(service);
    }
    Ok(objects)
}

async fn slices(
    client: &Client,
    namespace: &str,
    service: &str,
) -> Result<Vec<Object>, RequestError> {
    let label = SERVICE_NAME.replace('/', "%2F");
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={label}%3D{service}&limit=500"
    );
    watch::objects_of_list(Kind::Slice, &client::get(client, &path).await?)
}
