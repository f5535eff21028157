//! The file of `--cloud-config`, with the keys that the vendor's cloud controller has where they
//! mean something here.

use crate::cloud::{Ini, IniError};

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Named, or of the zone.
    pub region: Option<String>,
    /// The id of the VPC, in place of the instance's.
    pub vpc: Option<String>,
    /// Where the controller runs: for balancers where no other fits.
    pub subnet: Option<String>,
    /// In place of `--cluster-name`.
    pub cluster: Option<String>,
    /// The role that is assumed (AssumeRole) for all calls.
    pub role: Option<String>,
    /// Groups of the nodes, in place of those that are tagged for the cluster.
    pub node_groups: Vec<String>,
    /// The security groups of nodes are left alone: the operator opens node ports.
    pub leave_nodes: bool,
    /// Addresses of services, in place of the usual ones.
    pub endpoints: Vec<Endpoint>,
}

/// Another address of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the service.
    pub service: String,
    /// Its address.
    pub url: String,
    /// The region in signatures, if it is another.
    pub signing_region: Option<String>,
}

const KEYS: &[&str] = &[
    "zone",
    "region",
    "vpc",
    "subnetid",
    "kubernetesclustertag",
    "kubernetesclusterid",
    "rolearn",
    "nodesecuritygroup",
    "disablesecuritygroupingress",
    // Of other parts of a cloud controller.
    "routetableid",
    "disablestrictzonecheck",
    "nodeipfamilies",
];

impl Config {
    /// Reads the text of the file; a key that is not known is an error.
    pub fn parse(text: &str) -> Result<Self, IniError> {
        let ini = Ini::parse(text)?;
        let global = ini.section("global");
        global.only(KEYS)?;
        let get = |key| global.get(key).map(str::to_owned);
        let region = match global.get("zone") {
            Some(zone) => Some(
                region_of(zone)
                    .ok_or_else(|| global.wrong("zone", "is not a zone"))?
                    .to_owned(),
            ),
            None => None,
        };
        let overrides = ini
            .section_names()
            .filter(|name| name.starts_with("serviceoverride"));
        Ok(Self {
            region: get("region").or(region),
            vpc: get("vpc"),
            subnet: get("subnetid"),
            cluster: get("kubernetesclusterid").or_else(|| get("kubernetesclustertag")),
            role: get("rolearn"),
            node_groups: global.all("nodesecuritygroup"),
            leave_nodes: global.bool("disablesecuritygroupingress")?.unwrap_or(false),
            endpoints: overrides
                .map(|name| endpoint(&ini, name))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn endpoint(ini: &Ini, name: &str) -> Result<Endpoint, IniError> {
    let section = ini.section(name);
    section.only(&[
        "service",
        "region",
        "url",
        "signingregion",
        "signingmethod",
        "signingname",
    ])?;
    let needed = |key| {
        section
            .get(key)
            .map(str::to_owned)
            .ok_or_else(|| section.wrong(key, "is needed"))
    };
    let (service, url) = (needed("service")?, needed("url")?);
    Ok(Endpoint {
        service,
        url,
        signing_region: section.get("signingregion").map(str::to_owned),
    })
}

/// A zone without its letter; zones at the edge have more behind the region's number.
fn region_of(zone: &str) -> Option<&str> {
    let digit = zone.find(|letter: char| letter.is_ascii_digit())?;
    let rest = zone[digit..].trim_start_matches(|letter: char| letter.is_ascii_digit());
    (!rest.is_empty()).then(|| &zone[..zone.len() - rest.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_vendors_controller() {
        let text = "[Global]\nZone = us-west-2b\nVPC = vpc-1\nSubnetID = subnet-1\nKubernetesClusterID = shop\n\
                    RoleARN = arn:aws:iam::1:role/r\nDisableSecurityGroupIngress = true\nRouteTableID = rtb-1\n\
                    [ServiceOverride \"1\"]\nService = ec2\nRegion = us-west-2\nURL = https://ec2.test\n\
                    SigningRegion = us-west-1\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.region.as_deref(), Some("us-west-2"));
        assert_eq!(
            (config.cluster.as_deref(), config.leave_nodes),
            (Some("shop"), true)
        );
        let (service, url) = ("ec2".to_owned(), "https://ec2.test".to_owned());
        assert_eq!(
            config.endpoints,
            [Endpoint {
                service,
                url,
                signing_region: Some("us-west-1".to_owned())
            }]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text| Config::parse(text).unwrap_err().to_string();
        assert!(
            error("[global]\nelbsecuritygroup = sg-1\n").starts_with("not known: elbsecuritygroup")
        );
        assert_eq!(
            error("[global]\nzone = here\n"),
            "[global] zone = \"here\": is not a zone"
        );
        assert!(
            error("[serviceoverride \"1\"]\nservice = ec2\n").contains("url = \"\": is needed")
        );
    }

    #[test]
    fn the_region_of_a_zone() {
        assert_eq!(region_of("us-east-1a"), Some("us-east-1"));
        assert_eq!(region_of("us-gov-west-1b"), Some("us-gov-west-1"));
        assert_eq!(region_of("us-west-2-lax-1a"), Some("us-west-2"));
        assert_eq!(region_of("us-west-2"), None);
    }
}
