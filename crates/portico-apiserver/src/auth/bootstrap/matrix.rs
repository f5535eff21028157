//! The table of identities, resources and verbs, and what each role comes to in the end: both are
//! made from the roles and compared with what is written down beside this file. A live server is
//! held against the table by `tests/hostile`.
//!
//! `PORTICO_WRITE_DOCS=1 cargo test -p portico-apiserver --lib written_down` writes them anew.

use super::*;
use crate::auth::rbac::{Action, Rbac, Request, uncovered};
use crate::auth::user::User;
use crate::auth::{impersonate, join};
use crate::request::{Place, ResourcePath};
use portico_api::object;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// `USER@GROUP`.
const IDENTITIES: &[&str] = &[
    "root@system:masters",
    "ada@portico:admins",
    "vic@portico:viewers",
    "lb@portico:controllers",
    "system:node:n1@system:nodes",
    "system:bootstrap:abcdef@system:bootstrappers",
    "system:kube-proxy",
    "mon@system:monitoring",
    "pat",
    "system:serviceaccount:default:robot",
    "system:anonymous",
];

const VERBS: &[(char, &str)] = &[
    ('g', "get"),
    ('l', "list"),
    ('w', "watch"),
    ('c', "create"),
    ('u', "update"),
    ('p', "patch"),
    ('d', "delete"),
    ('x', "deletecollection"),
    ('r', "get"),
];

const ALL: &str = "glwcupdx";
/// The verbs for one object, in the order of the matrix.
const ONE: &str = "gupd";
const STATUS: &str = "gup";
/// Paths (with the subresource after a plus) and the verbs that there are for them.
const PLACES: &[(&str, &str)] = &[
    ("/api/v1/namespaces/default/services/x", ALL),
    ("/api/v1/namespaces/default/services/x+status", STATUS),
    ("/api/v1/namespaces/default/endpoints/x", ALL),
    ("/api/v1/namespaces/default/pods/x", ALL),
    ("/api/v1/namespaces/default/pods/x+status", STATUS),
    ("/api/v1/namespaces/default/configmaps/x", ALL),
    ("/api/v1/namespaces/default/secrets/x", ALL),
    ("/api/v1/namespaces/default/serviceaccounts/x", ALL),
    ("/api/v1/namespaces/default/serviceaccounts/x+token", "c"),
    ("/api/v1/namespaces/default/events/x", ALL),
    ("/apis/events.k8s.io/v1/namespaces/default/events/x", ALL),
    (
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/x",
        ALL,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
        ALL,
    ),
    ("/apis/portico.dev/v1/namespaces/default/services/x", ALL),
    (
        "/apis/portico.dev/v1/namespaces/default/services/x+status",
        STATUS,
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/x",
        ALL,
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/x",
        ALL,
    ),
    ("/api/v1/namespaces/kube-system/configmaps/x", ALL),
    ("/api/v1/namespaces/kube-system/secrets/x", ALL),
    (
        "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef",
        ONE,
    ),
    (
        "/api/v1/namespaces/kube-system/secrets/portico-announce",
        ONE,
    ),
    ("/api/v1/namespaces/kube-system/secrets/portico-bgp", ONE),
    (
        "/api/v1/namespaces/kube-system/serviceaccounts/x+token",
        "c",
    ),
    (
        "/api/v1/namespaces/kube-system/serviceaccounts/portico-node+token",
        "c",
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
        ALL,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/portico-controller",
        ONE,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/portico-node-n1",
        ONE,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/portico-node-n2",
        ONE,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
        ALL,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2",
        ONE,
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/portico-system/leases/x",
        ALL,
    ),
    ("/api/v1/services/x", "lw"),
    ("/api/v1/secrets/x", "lw"),
    ("/api/v1/pods/x", "lw"),
    ("/api/v1/namespaces/x", "glwcupd"),
    ("/api/v1/namespaces/x+status", STATUS),
    ("/api/v1/namespaces/x+finalize", "u"),
    ("/api/v1/nodes/n1", ALL),
    ("/api/v1/nodes/n1+status", STATUS),
    ("/api/v1/nodes/n2", ONE),
    ("/api/v1/nodes/n2+status", STATUS),
    ("/apis/networking.k8s.io/v1/servicecidrs/x", ALL),
    ("/apis/networking.k8s.io/v1/servicecidrs/x+status", STATUS),
    ("/apis/portico.dev/v1/addresspools/x", ALL),
    ("/apis/portico.dev/v1/addresspools/x+status", STATUS),
    ("/apis/portico.dev/v1/addressblocks/x", ALL),
    ("/apis/portico.dev/v1/bgppeers/x", ALL),
    ("/apis/portico.dev/v1/portpartitions/x", ALL),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles/x", ALL),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/x",
        ALL,
    ),
    ("/apis/authentication.k8s.io/v1/tokenreviews/x", "c"),
    ("/apis/authentication.k8s.io/v1/selfsubjectreviews/x", "c"),
    ("/apis/authorization.k8s.io/v1/subjectaccessreviews/x", "c"),
    (
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x",
        "c",
    ),
    (
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews/x",
        "c",
    ),
    (
        "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews/x",
        "c",
    ),
    ("/healthz", "r"),
    ("/livez/x", "r"),
    ("/version", "r"),
    ("/api", "r"),
    ("/openapi/v3", "r"),
    ("/metrics", "r"),
    ("/openid/v1/jwks", "r"),
    ("/debug/claims", "r"),
];

fn started() -> Rbac {
    let mut rbac = Rbac::default();
    objects().iter().for_each(|object| rbac.apply(object));
    rbac
}

/// The user that the server makes of an impersonated identity.
fn user(identity: &str) -> User {
    let (name, group) = identity.split_once('@').unwrap_or((identity, ""));
    let group = (!group.is_empty()).then_some(("impersonate-group", group));
    let headers = [("impersonate-user", name)].into_iter().chain(group);
    let root = User::new("root", &[MASTERS]);
    let headers = headers.map(|(name, value)| (name, value.as_bytes()));
    impersonate::impersonated(&started(), &root, headers)
        .unwrap()
        .unwrap()
}

fn allowed(rbac: &Rbac, user: &User, path: &str, letter: char) -> bool {
    let verb = VERBS.iter().find(|(own, _)| *own == letter).unwrap().1;
    let plain = path.replace('+', "/");
    let place = match ResourcePath::parse(&plain) {
        Place::Resource(place) if letter != 'r' => place,
        _ => {
            let action = Action::NonResource { verb, path };
            return rbac.decide(user, &action).allowed;
        }
    };
    let whole = matches!(letter, 'l' | 'w' | 'x') || letter == 'c' && place.subresource.is_empty();
    let request = Request {
        verb,
        group: &place.group,
        resource: &place.resource,
        subresource: &place.subresource,
        name: if whole { "" } else { &place.name },
        // A Namespace is an object in itself, but not where all of them are meant.
        namespace: match place.resource.as_str() {
            "namespaces" if whole => "",
            _ => &place.namespace,
        },
    };
    rbac.decide(user, &request.into()).allowed
}

fn matrix() -> String {
    let mut text = "\
        # Who may do what on a fresh server; made from the roles, see matrix.rs.\n\
        # get, list, watch, create, update, patch, delete, x: deletecollection, r: read a page\n"
        .to_owned();
    let rbac = started();
    let users: Vec<User> = IDENTITIES.iter().map(|identity| user(identity)).collect();
    let _ = writeln!(text, "{}", IDENTITIES.join(" "));
    for (path, verbs) in PLACES {
        let _ = write!(text, "{path} {verbs}");
        for user in &users {
            let may: String = verbs
                .chars()
                .filter(|verb| allowed(&rbac, user, path, *verb))
                .collect();
            let _ = write!(text, " {}", if may.is_empty() { "-" } else { &may });
        }
        text.push('\n');
    }
    text
}

/// What the rights of a user lead to: identities that the user can become, and rights that weigh as
/// much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Everything,
    AnyUser,
    AnyServiceAccount,
    AnySecret,
    SecretsOfNodes,
    AnyNode,
    Joiner,
    Node,
    LabelsOfNodes,
    Traffic,
    Pods,
}

/// One step: what the rules of a user give at once.
fn steps(rbac: &Rbac, user: &User) -> BTreeSet<Reach> {
    let may = |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let request = Request {
            verb,
            group,
            resource,
            subresource,
            name,
            namespace,
        };
        rbac.decide(user, &request.into()).allowed
    };
    let system = "kube-system";
    let core = |verb: &str, resource: &str, name: &str| may(verb, "", resource, system, name);
    let any = |verbs: &[&str], resource: &str, name: &str| {
        verbs.iter().any(|verb| core(verb, resource, name))
    };
    let rights = "rbac.authorization.k8s.io";
    let writes: &[&str] = &["update", "patch"];
    let token = "bootstrap-token-abcdef";
    let makes_token = core("create", "secrets", "") || any(writes, "secrets", token);
    let reads_token = any(&["get", "list", "watch"], "secrets", token);
    let hands_out = |verb: &str| {
        any_of(&["clusterroles", "roles"], |r| {
            may(verb, rights, r, system, "cluster-admin")
        })
    };
    let everything = uncovered(&rbac.rules_for(user, ""), &Rule::everything()).is_empty();
    let traffic = any(writes, "services", "x")
        || core("create", "services", "")
        || core("create", "endpoints", "")
        || may("create", "discovery.k8s.io", "endpointslices", system, "");
    // Tokens of nodes and of joining machines are guarded beyond the RBAC rules.
    let guarded = user.is_in(NODES) || join::joiner(user).is_some();
    let own_token = core("create", "serviceaccounts/token", join::ACCOUNT);
    [
        (
            Reach::Everything,
            everything || hands_out("bind") || hands_out("escalate"),
        ),
        (Reach::AnyUser, any(&["impersonate"], "users", "x")),
        (
            Reach::AnyServiceAccount,
            !guarded && core("create", "serviceaccounts/token", "x")
                || core("impersonate", "serviceaccounts", "x"),
        ),
        (
            Reach::AnySecret,
            core("get", "secrets", "x") || core("list", "secrets", ""),
        ),
        (
            Reach::SecretsOfNodes,
            any(&["get", "update", "patch"], "secrets", "portico-announce")
                || core("get", "secrets", "portico-bgp"),
        ),
        (Reach::AnyNode, !guarded && own_token),
        (Reach::Joiner, makes_token || reads_token),
        (
            Reach::Node,
            user.is_in(NODES)
                || join::joiner(user).is_some() && own_token && may("create", "", "nodes", "", ""),
        ),
        (Reach::LabelsOfNodes, !guarded && (any_node(rbac, user))),
        (Reach::Traffic, traffic),
        (Reach::Pods, core("create", "pods", "")),
    ]
    .into_iter()
    .filter_map(|(reach, does)| does.then_some(reach))
    .collect()
}

fn any_of(names: &[&str], test: impl Fn(&str) -> bool) -> bool {
    names.iter().any(|name| test(name))
}

fn any_node(rbac: &Rbac, user: &User) -> bool {
    [
        ("update", ""),
        ("patch", ""),
        ("patch", "status"),
        ("update", "status"),
    ]
    .into_iter()
    .any(|(verb, subresource)| {
        let request = Request {
            verb,
            resource: "nodes",
            subresource,
            name: "n2",
            ..Request::default()
        };
        rbac.decide(user, &request.into()).allowed
    })
}

/// The closure of all steps: a user who can become another has the other's rights too.
fn closure(rbac: &Rbac, user: &User) -> BTreeSet<Reach> {
    let become_ = |reach: &Reach| match reach {
        Reach::Joiner => Some(super::matrix::user(
            "system:bootstrap:abcdef@system:bootstrappers",
        )),
        Reach::Node | Reach::AnyNode => Some(super::matrix::user("system:node:n1@system:nodes")),
        Reach::AnyUser => Some(User::new("root", &[MASTERS])),
        _ => None,
    };
    let mut found = steps(rbac, user);
    loop {
        let more: BTreeSet<Reach> = found
            .iter()
            .filter_map(become_)
            .flat_map(|user| steps(rbac, &user))
            .collect();
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

/// What each role comes to for a user with that role alone: in the whole cluster if it is a
/// ClusterRole.
fn reach() -> String {
    let mut text = "\
        # What each role comes to in the end, step by step; made from the roles, see matrix.rs.\n"
        .to_owned();
    let all = objects();
    for role in all.iter().filter(|object| object.get("roleRef").is_none()) {
        let (kind, name) = (object::text(role, "kind"), object::name(role));
        let namespace = object::namespace(role);
        let mut rbac = started();
        rbac.apply(&binding(
            kind,
            name,
            namespace,
            vec![json!({"kind": "User", "name": "eve"})],
        ));
        let found = closure(&rbac, &User::new("eve", &[]).authenticated());
        let found: Vec<String> = found.iter().map(|reach| format!("{reach:?}")).collect();
        let place = if namespace.is_empty() { "" } else { " in " };
        let _ = writeln!(
            text,
            "{kind} {name}{place}{namespace}: {}",
            if found.is_empty() {
                "-".to_owned()
            } else {
                found.join(" ")
            }
        );
    }
    for identity in IDENTITIES {
        let found = closure(&started(), &user(identity));
        let found: Vec<String> = found.iter().map(|reach| format!("{reach:?}")).collect();
        let _ = writeln!(
            text,
            "{identity}: {}",
            if found.is_empty() {
                "-".to_owned()
            } else {
                found.join(" ")
            }
        );
    }
    text
}

fn compare(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/auth/bootstrap")
        .join(file);
    if std::env::var_os("PORTICO_WRITE_DOCS").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let differs = made
        .lines()
        .filter(|line| !written.lines().any(|other| other == *line));
    let differs: Vec<&str> = differs.collect();
    assert!(
        written == made,
        "{file} is not what the roles give:\n{}",
        differs.join("\n")
    );
}

#[test]
fn who_may_do_what_is_written_down() {
    compare("matrix.txt", &matrix());
}

#[test]
fn what_each_role_comes_to_is_written_down() {
    compare("reach.txt", &reach());
}
