use super::*;
use crate::schema::schema;

const SERVICE: Info = Info {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    namespaced: true,
    status: true,
    schema: "Service",
    storage: "services",
    ..Info::USUAL
};
const OTHER: Info = Info {
    group: "portico.dev",
    schema: "PorticoService",
    ..SERVICE
};
const ROLE: Info = Info {
    group: "rbac.authorization.k8s.io",
    kind: "ClusterRole",
    plural: "clusterroles",
    namespaced: false,
    status: false,
    schema: "ClusterRole",
    ..SERVICE
};
const REVIEW: Info = Info {
    group: "authentication.k8s.io",
    kind: "TokenReview",
    plural: "tokenreviews",
    namespaced: false,
    status: false,
    schema: "TokenReview",
    ..SERVICE
};
const ALL: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

fn served() -> Vec<Served<'static>> {
    let one = |info, verbs| Served { info, verbs };
    vec![
        one(&SERVICE, ALL),
        one(&OTHER, ALL),
        one(&ROLE, ALL),
        one(&REVIEW, &["create"]),
    ]
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Every text below a `$ref`.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => found.push(text.clone()),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let documents = Documents::build(schema(), &served());
    let v3 = documents.v3.values().map(|bytes| parsed(bytes));
    for document in v3.chain([parsed(&documents.v2)]) {
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 10);
        for reference in found {
            assert!(
                document
                    .pointer(reference.trim_start_matches('#'))
                    .is_some(),
                "{reference}"
            );
        }
    }
}

#[test]
fn the_index_lists_the_groups_with_a_hash_of_their_document() {
    let documents = Documents::build(schema(), &served());
    let index = parsed(&documents.v3_index);
    let groups: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        groups,
        [
            "api/v1",
            "apis/authentication.k8s.io/v1",
            "apis/portico.dev/v1",
            "apis/rbac.authorization.k8s.io/v1"
        ]
    );
    let address = index["paths"]["api/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    assert!(address.starts_with("/openapi/v3/api/v1?hash="), "{address}");
    let fewer = Documents::build(
        schema(),
        &[Served {
            info: &SERVICE,
            verbs: &["get"],
        }],
    );
    assert_ne!(
        parsed(&fewer.v3_index)["paths"]["api/v1"],
        index["paths"]["api/v1"]
    );
}

#[test]
fn a_port_list_says_how_it_merges() {
    let documents = Documents::build(schema(), &served());
    let document = parsed(&documents.v2);
    let spec = &document["definitions"]["io.k8s.api.core.v1.ServiceSpec"]["properties"];
    assert_eq!(spec["ports"]["x-kubernetes-list-type"], "map");
    assert_eq!(
        spec["ports"]["x-kubernetes-list-map-keys"],
        json!(["port", "protocol"])
    );
    assert_eq!(spec["ports"]["x-kubernetes-patch-merge-key"], "port");
    assert_eq!(spec["ports"]["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(spec["selector"]["x-kubernetes-map-type"], "atomic");
    assert_eq!(spec["portalIP"], Value::Null);
    assert_eq!(spec["allocateLoadBalancerHCNodePort"]["type"], "boolean");
    let port = &document["definitions"]["io.k8s.api.core.v1.ServicePort"];
    assert_eq!(port["required"], json!(["port"]));
    assert_eq!(port["properties"]["protocol"]["default"], "TCP");
    let portico = &document["definitions"]["dev.portico.v1.ServiceSpec"]["properties"];
    assert_eq!(
        portico["visibility"]["enum"],
        json!(["namespace", "dmz", "cluster", "public", "loadbalancer"])
    );
    let kind =
        &document["definitions"]["io.k8s.api.core.v1.Service"]["x-kubernetes-group-version-kind"];
    assert_eq!(
        *kind,
        json!([{"group": "", "version": "v1", "kind": "Service"}])
    );
}

#[test]
fn operations_are_there_for_the_verbs_and_only_for_them() {
    let documents = Documents::build(schema(), &served());
    let document = parsed(&documents.v2);
    let paths = &document["paths"];
    let patch = &paths["/api/v1/namespaces/{namespace}/services/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Service");
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedService");
    let names: Vec<&Value> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    for wanted in ["body", "dryRun", "fieldManager", "fieldValidation", "force"] {
        assert!(names.iter().any(|name| *name == wanted), "{wanted}");
    }
    assert!(paths["/api/v1/services"]["get"].is_object());
    assert!(paths["/api/v1/services"].get("post").is_none());
    assert!(paths["/api/v1/namespaces/{namespace}/services/{name}/status"]["put"].is_object());
    let reviews = paths["/apis/authentication.k8s.io/v1/tokenreviews"]
        .as_object()
        .unwrap();
    assert_eq!(reviews.keys().collect::<Vec<_>>(), ["parameters", "post"]);
    let roles = &paths["/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"];
    assert_eq!(
        roles["delete"]["operationId"],
        "deleteRbacAuthorizationV1ClusterRole"
    );
    assert_eq!(roles["delete"]["tags"], json!(["rbacAuthorization_v1"]));
}

#[test]
fn operation_names_are_unique() {
    let documents = Documents::build(schema(), &served());
    let document = parsed(&documents.v2);
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| *key != "parameters")
        {
            assert!(
                names.insert(operation["operationId"].to_string()),
                "{method} {path}"
            );
        }
    }
}

#[test]
fn version_3_keeps_descriptions_beside_references() {
    let documents = Documents::build(schema(), &served());
    let document = parsed(&documents.v3["apis/portico.dev/v1"]);
    let metadata =
        &document["components"]["schemas"]["dev.portico.v1.Service"]["properties"]["metadata"];
    assert!(metadata["description"].is_string());
    assert_eq!(
        metadata["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let patch =
        &document["paths"]["/apis/portico.dev/v1/namespaces/{namespace}/services/{name}"]["patch"];
    assert!(
        patch["requestBody"]["content"]["application/apply-patch+yaml"]["schema"]["$ref"]
            .is_string()
    );
}

/// The values of a field in a message, as bytes.
fn fields(message: &[u8], wanted: u32) -> Vec<&[u8]> {
    let mut reader = crate::codec::proto::wire::Reader::new(message);
    let mut found = Vec::new();
    while let Some((number, value)) = reader.field().unwrap() {
        if number == wanted {
            found.push(value.bytes().unwrap());
        }
    }
    found
}

/// Follow field numbers from message to message.
fn follow<'a>(message: &'a [u8], numbers: &[u32]) -> Vec<&'a [u8]> {
    numbers.iter().fold(vec![message], |messages, number| {
        messages
            .into_iter()
            .flat_map(|message| fields(message, *number))
            .collect()
    })
}

#[test]
fn kubectl_finds_patch_parameters_in_the_protobuf_form() {
    let documents = Documents::build(schema(), &served());
    let (paths, path, patch) = (8, 2, 8);
    let mut found = 0;
    for operation in follow(&documents.v2_protobuf, &[paths, path, 2, patch]) {
        // The extension is YAML text; the parameter names lie four messages deep.
        let kinds = follow(operation, &[13]);
        let kind = kinds
            .iter()
            .find(|pair| fields(pair, 1) == [b"x-kubernetes-group-version-kind"])
            .unwrap();
        let kind: Value = serde_json::from_slice(follow(kind, &[2, 2])[0]).unwrap();
        let names = follow(operation, &[8, 1, 2, 3, 4]);
        assert!(
            names.contains(&b"dryRun".as_slice()) && names.contains(&b"fieldValidation".as_slice()),
            "{kind}"
        );
        found += 1;
    }
    assert_eq!(found, 5); // two Services with status, one ClusterRole
    let definitions = follow(&documents.v2_protobuf, &[9, 1, 1]);
    assert!(definitions.contains(&b"io.k8s.api.core.v1.ServicePort".as_slice()));
}
