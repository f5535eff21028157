//! CustomResourceDefinitions from the schema of the built-in kinds, so that a real cluster has the
//! same objects. What the schema has no words for (limits, patterns, rules) stands here, field by
//! field.

use portico_api::kinds::{self, Info, Kind};
use portico_api::schema::{Field, ListKind, Type, TypeDef, schema};
use serde_json::{Map, Value, json};

/// The kinds that a cluster does not have by itself.
pub(crate) const KINDS: [&str; 4] = ["AddressBlock", "AddressPool", "BgpPeer", "PortPartition"];

/// A column as `kubectl get` shows it: name, type, path and priority.
type Column = (&'static str, &'static str, &'static str, u8);

/// The kind, and the columns that can be told as paths.
pub(crate) fn kind(name: &str) -> Box<dyn Kind> {
    kinds::all()
        .into_iter()
        .find(|kind| kind.info().kind == name)
        .unwrap()
}

pub(crate) fn columns(kind: &str) -> &'static [Column] {
    match kind {
        "AddressPool" => &[
            ("Addresses", "string", ".spec.addresses", 0),
            ("Auto", "boolean", ".spec.autoAssign", 0),
            ("Assigned", "integer", ".status.assigned", 0),
            ("Free-IPv4", "integer", ".status.ipv4.available", 0),
            ("Free-IPv6", "integer", ".status.ipv6.available", 0),
            ("Announce", "string", ".spec.announce", 1),
        ],
        "PortPartition" => &[("Addresses", "string", ".spec.addresses", 0)],
        // How many claims there are is no path.
        "AddressBlock" => &[("CIDR", "string", ".spec.cidr", 0)],
        _ => &[
            ("ASN", "integer", ".spec.peerASN", 0),
            ("Address", "string", ".spec.peerAddress", 0),
            ("My-ASN", "integer", ".spec.myASN", 1),
        ],
    }
}

pub(crate) fn definition(kind: &dyn Kind) -> Value {
    let Info {
        group,
        version,
        kind: name,
        plural,
        singular,
        short_names,
        status,
        schema: ty,
        ..
    } = kind.info();
    let mut columns: Vec<Value> = columns(name)
        .iter()
        .map(|(column, ty, path, priority)| {
            let described = kind.info().columns.iter().find(|known| known.name == *column).unwrap();
            json!({"name": column, "type": ty, "jsonPath": path, "priority": priority, "description": described.description})
        })
        .collect();
    columns.push(json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
    let mut names = json!({"kind": name, "listKind": format!("{name}List"), "plural": plural, "singular": singular});
    if !short_names.is_empty() {
        names["shortNames"] = json!(short_names);
    }
    let mut served = json!({
        "name": version, "served": true, "storage": true, "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": root(schema().get(ty).unwrap())},
    });
    if *status {
        served["subresources"] = json!({"status": {}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [served]},
    })
}

fn root(ty: &TypeDef) -> Value {
    let mut root = object(ty);
    root["properties"]["metadata"] = json!({"type": "object"});
    root["required"] = json!(["spec"]);
    root
}

fn object(ty: &TypeDef) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    add(ty, &mut properties, &mut required);
    let mut object = json!({"type": "object", "properties": properties});
    if !ty.doc.is_empty() {
        object["description"] = ty.doc.as_str().into();
    }
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if ty.atomic {
        object["x-kubernetes-map-type"] = "atomic".into();
    }
    let rules = rules(&ty.name);
    if !rules.is_empty() {
        object["x-kubernetes-validations"] = rules.iter().map(rule).collect();
    }
    object
}

fn add(ty: &TypeDef, properties: &mut Map<String, Value>, required: &mut Vec<String>) {
    for field in &ty.fields {
        match &field.ty {
            Type::Object(inner) if field.inline => {
                add(schema().get(inner).unwrap(), properties, required)
            }
            _ => {
                properties.insert(field.name.clone(), property(ty, field));
                required.extend(field.required.then(|| field.name.clone()));
            }
        }
    }
}

fn property(ty: &TypeDef, field: &Field) -> Value {
    let mut property = of_type(&field.ty);
    if !field.doc.is_empty() {
        property["description"] = field.doc.as_str().into();
    }
    if !field.words.is_empty() {
        property["enum"] = json!(field.words);
    }
    if let Some(default) = &field.default {
        property["default"] = default.clone();
    }
    if matches!(field.ty, Type::List(_)) {
        match &field.list {
            ListKind::Atomic => property["x-kubernetes-list-type"] = "atomic".into(),
            ListKind::Set => property["x-kubernetes-list-type"] = "set".into(),
            ListKind::Map(keys) => {
                property["x-kubernetes-list-type"] = "map".into();
                property["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
    }
    merge(&mut property, limits(&ty.name, &field.name));
    property
}

fn of_type(ty: &Type) -> Value {
    match ty {
        Type::String => json!({"type": "string"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Time => json!({"type": "string", "format": "date-time"}),
        Type::List(item) => json!({"type": "array", "items": of_type(item)}),
        Type::Map(item) => json!({"type": "object", "additionalProperties": of_type(item)}),
        Type::Object(inner) if inner == "ObjectMeta" => json!({"type": "object"}),
        Type::Object(inner) => object(schema().get(inner).unwrap()),
        other => panic!("no custom resource has had a {other:?} so far"),
    }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.into_iter()
                .for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, more) => *into = more,
    }
}

fn rule((rule, message): &(&str, &str)) -> Value {
    json!({"rule": rule, "message": message})
}

fn ruled(length: u32, checked: &str, message: &str) -> Value {
    json!({"maxLength": length, "x-kubernetes-validations": [rule(&(checked, message))]})
}

const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const COMMUNITY: &str = "^(no-export|no-advertise|no-export-subconfed|[0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10})$";
const RANGE: &str = "self.contains('-') ? self.split('-').size() == 2 && self.split('-').all(end, isIP(end.trim())) && \
                     ip(self.split('-')[0].trim()).family() == ip(self.split('-')[1].trim()).family() \
                     : isCIDR(self) && cidr(self) == cidr(self).masked()";

/// What a field may be, beyond its type.
fn limits(ty: &str, field: &str) -> Value {
    let names = |pattern: &str, length: u32| json!({"items": {"pattern": pattern, "minLength": 1, "maxLength": length}});
    let asn = json!({"minimum": 1, "maximum": u32::MAX});
    match (ty, field) {
        ("AddressPoolSpec", "addresses") => {
            let message = "must be a network (192.0.2.0/24, 2001:db8::/112) or a range \
                           (192.0.2.10-192.0.2.20)";
            json!({"minItems": 1, "maxItems": 256, "items": ruled(91, RANGE, message)})
        }
        ("PortPartitionSpec", "addresses") => {
            let message = "must be a network (192.0.2.0/24, 2001:db8::/112) or a range \
                           (192.0.2.10-192.0.2.20)";
            json!({"maxItems": 256, "items": ruled(91, RANGE, message)})
        }
        ("AddressPoolSpec", "namespaces") => names(LABEL, 63),
        ("AddressPoolSpec", "announce") => {
            json!({"minItems": 1, "items": {"enum": ["Layer2", "BGP"]}})
        }
        ("AddressPoolSpec", "interfaces") => names(r"^[^/:\s]+$", 15),
        ("AddressPoolBgp", "communities") => names(COMMUNITY, 32),
        ("AddressPoolBgp", "peers") => names(SUBDOMAIN, 253),
        ("AddressPoolBgp", "localPreference") => json!({"minimum": 0, "maximum": u32::MAX}),
        ("AddressPoolBgp", "aggregationLength") => json!({"minimum": 1, "maximum": 32}),
        ("AddressPoolBgp", "aggregationLengthV6") => json!({"minimum": 1, "maximum": 128}),
        ("LabelSelectorRequirement", "operator") => {
            json!({"enum": ["In", "NotIn", "Exists", "DoesNotExist"]})
        }
        ("AddressBlockSpec", "cidr") => {
            let mut cidr = ruled(43, "self == oldSelf", "cannot be changed");
            cidr["pattern"] = r"^([0-9.]+/24|[0-9a-f:.]+/120)$".into();
            cidr
        }
        ("AddressBlockSpec", "claims") => json!({"maxItems": 256}),
        ("AddressClaim", "address") => json!({"maxLength": 45}),
        ("AddressClaim", "services") => json!({"minItems": 1, "maxItems": 256}),
        ("AddressClaimService", "namespace" | "name" | "uid") => json!({"minLength": 1}),
        ("BgpPeerSpec", "myASN" | "peerASN") => asn,
        ("BgpPeerSpec", "peerAddress") => ruled(45, "isIP(self)", "must be an IP address"),
        ("BgpPeerSpec", "sourceAddress") => {
            ruled(45, "self == '' || isIP(self)", "must be an IP address")
        }
        ("BgpPeerSpec", "routerID") => {
            let checked = "self == '' || isIP(self) && ip(self).family() == 4 && self != '0.0.0.0'";
            ruled(
                45,
                checked,
                "must be written like an IPv4 address other than 0.0.0.0",
            )
        }
        ("BgpPeerSpec", "peerPort") => json!({"minimum": 1, "maximum": 65535}),
        ("BgpPeerSpec", "holdTime") => seconds(
            "duration(self) == duration('0s') || duration(self) >= duration('3s') && \
             duration(self) <= duration('65535s')",
            "must be 0s (no limit) or 3s to 65535s, in whole seconds such as 90s or 1m30s",
        ),
        ("BgpPeerSpec", "keepaliveTime") => seconds(
            "self == '' || duration(self) >= duration('1s')",
            "must be at least 1s, in whole seconds",
        ),
        ("BgpPeerSpec", "connectTime") => seconds(
            "duration(self) >= duration('1s') && duration(self) <= duration('65535s')",
            "must be 1s to 65535s, in whole seconds",
        ),
        ("BgpPeerSpec", "restartTime") => seconds(
            "duration(self) <= duration('4095s')",
            "must be whole seconds, at most 4095s",
        ),
        ("SecretKeyReference", "namespace") => json!({"pattern": LABEL, "maxLength": 63}),
        ("SecretKeyReference", "name") => {
            json!({"pattern": SUBDOMAIN, "minLength": 1, "maxLength": 253})
        }
        ("SecretKeyReference", "key") => json!({"pattern": "^[-._a-zA-Z0-9]+$", "maxLength": 253}),
        _ => json!({}),
    }
}

fn seconds(checked: &str, message: &str) -> Value {
    let mut seconds = ruled(16, checked, message);
    seconds["pattern"] = "^([0-9]+[hms])*$".into();
    seconds
}

/// What the fields of a type may be together.
fn rules(ty: &str) -> &'static [(&'static str, &'static str)] {
    match ty {
        "AddressBlock" => &[(
            "self.spec.cidr.contains(':') || self.metadata.name == self.spec.cidr.replace('/', \
             '-')",
            "must have the name of its network: 192.0.2.0-24 for 192.0.2.0/24",
        )],
        "AddressBlockSpec" => &[(
            "!has(self.claims) || self.claims.all(claim, isIP(claim.address) && \
             cidr(self.cidr).containsIP(claim.address))",
            "every claim must be for an address of the network",
        )],
        "AddressClaim" => &[(
            "has(self.services) && (self.services.size() == 1 || has(self.sharingKey) && \
             self.sharingKey != '')",
            "an address has one Service, or a sharing key",
        )],
        "PortPartitionSpec" => &[(
            "has(self.addresses) && self.addresses.size() > 0 || has(self.nodeSelector)",
            "give networks or ranges of addresses, a nodeSelector, or both",
        )],
        "BgpPeerSpec" => &[
            (
                "!has(self.ebgpMultiHop) || !self.ebgpMultiHop || self.myASN != self.peerASN",
                "ebgpMultiHop is only for different autonomous systems: internal sessions may \
                 have any number of hops",
            ),
            (
                "!has(self.sourceAddress) || self.sourceAddress == '' || \
                 ip(self.sourceAddress).family() == ip(self.peerAddress).family()",
                "sourceAddress must be of the family of peerAddress",
            ),
            (
                "!has(self.keepaliveTime) || self.keepaliveTime == '' || duration(self.holdTime) == duration('0s') || \
                 duration(self.keepaliveTime) < duration(self.holdTime)",
                "keepaliveTime must be less than holdTime; a third of it is usual",
            ),
        ],
        _ => &[],
    }
}
