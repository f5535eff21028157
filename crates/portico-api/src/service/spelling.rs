//! The two spellings of a Service.
//!
//! Stored is the spelling of `core/v1`. The other one speaks of `visibility` (`type`), `hostPort`
//! (`nodePort`), `portalIP` (`clusterIP`), `createExternalLoadBalancer` (`type` again, deprecated)
//! and `publicIPs` (`externalIPs` in the spec, the ingress points of the load balancer in the
//! status). The visibilities that are narrower than `cluster` are the type ClusterIP with an
//! annotation. `to_core` folds these words into core fields wherever they come from; `to_portico`
//! writes the view that `portico.dev/v1` shows. Reading the view and writing it back changes
//! nothing.
//!
//! The view says some things twice: `publicIPs` of the status is copied to the spec if it is set,
//! and from the spec if it is not. So where two words disagree and the stored object is known, the
//! one that was changed counts; otherwise the disagreement is an error.

use crate::field::{Error, Errors, Path};
use crate::names;
use crate::object;
use serde_json::{Map, Value, json};

pub(crate) const API_VERSION: &str = "portico.dev/v1";

const TYPES: [(&str, &str); 3] = [
    ("cluster", "ClusterIP"),
    ("public", "NodePort"),
    ("loadbalancer", "LoadBalancer"),
];
/// Words for Services that not everything in the cluster reaches. In the spelling of `core/v1`, which
/// has no field for it, they are the value of [`VISIBILITY`].
pub(crate) const NARROW: [&str; 2] = ["namespace", "dmz"];
/// The annotation that a ClusterIP Service with a narrow visibility carries.
pub(crate) const VISIBILITY: &str = "portico.dev/visibility";
/// Where `kubectl apply` keeps the file that it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The word for a type, or for what the annotation narrows it to; an ExternalName has none.
pub(crate) fn visibility_of(type_: &str, annotation: Option<&str>) -> Option<&'static str> {
    let narrow = NARROW.into_iter().find(|word| Some(*word) == annotation);
    narrow.filter(|_| type_ == "ClusterIP").or_else(|| {
        TYPES
            .iter()
            .find(|(_, core)| *core == type_)
            .map(|(word, _)| *word)
    })
}

fn annotation(service: &Value) -> Option<&str> {
    service
        .get("metadata")?
        .get("annotations")?
        .get(VISIBILITY)?
        .as_str()
}

fn visibility_of_object(service: &Value) -> Option<&'static str> {
    visibility_of(object::text(service, "spec.type"), annotation(service))
}

/// Words of the spec that are other names for a core field.
const NAMES: [(&str, &str); 4] = [
    ("visibility", "type"),
    ("createExternalLoadBalancer", "type"),
    ("portalIP", "clusterIP"),
    ("publicIPs", "externalIPs"),
];

fn spec_path(field: &str) -> Path {
    Path::new("spec").child(field)
}

/// Two words for one thing. `old` is what is stored.
struct Pair<'a> {
    word: (Path, Option<Value>),
    core: (&'a str, Option<Value>),
    old: Option<Value>,
}

impl Pair<'_> {
    /// What the core field shall be: the value both give, or the only one, or the one that was
    /// changed.
    fn settle(self) -> Result<Option<Value>, Error> {
        let ((path, word), (field, core)) = (self.word, self.core);
        let (Some(word), Some(core)) = (&word, &core) else {
            return Ok(word.or(core));
        };
        match &self.old {
            _ if word == core => Ok(Some(core.clone())),
            Some(old) if core == old => Ok(Some(word.clone())),
            Some(old) if word == old => Ok(Some(core.clone())),
            _ => Err(Error::invalid(
                &path,
                word.clone(),
                format!("disagrees with {field}, which is {core}"),
            )),
        }
    }
}

/// A field, unless it has the zero value, which says nothing.
fn take(map: &mut Map<String, Value>, key: &str) -> Option<Value> {
    map.remove(key).filter(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    })
}

fn put(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
}

fn stored(old: Option<&Value>, path: &str) -> Option<Value> {
    old.map(|old| object::at(old, path))
        .filter(|value| !value.is_null())
        .cloned()
}

/// Fold the other words into core fields and remove them. `old` is the stored object that this one
/// was made from, where the client has not written all of it himself: a patch, or a view that was
/// read and written back.
pub(crate) fn to_core(service: &mut Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    // The status goes first: what the spec says twice is told apart by it.
    let copied = status_copy(service);
    if service.get("status").is_some() {
        errors.extend(status(service, old, copied).err());
    }
    if service.get("spec").is_some() {
        errors.extend(spec(service, old));
    }
    errors
}

/// In a merge patch to the core view, the removal of a word is that of the core field. It is what
/// `kubectl apply` sends when a word is no longer in the file. It sends the same when the file says
/// the thing by the core field now: what is stored has that value already, so the patch does not
/// have it, but the file does, which `kubectl` puts into an annotation.
pub(crate) fn removals_to_core(patch: &mut Value) {
    let applied = applied_file(patch);
    let Some(spec) = patch.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let applied_visibility = applied["metadata"]["annotations"].get(VISIBILITY);
    let widens = spec.get("visibility").is_some_and(Value::is_null) && applied_visibility.is_none();
    for (word, core) in NAMES {
        remove_by_other_name(spec, word, core, &applied["spec"]);
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    let ports = ports.into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        let is_same = |other: &&Value| port.get("port") == other.get("port");
        let applied = object::items(&applied, "spec.ports").iter().find(is_same);
        let applied = applied.unwrap_or(&Value::Null);
        remove_by_other_name(port, "hostPort", "nodePort", applied);
    }
    if widens {
        let metadata = object::child(patch, "metadata");
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        // Null removes all of them.
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.entry(VISIBILITY).or_insert(Value::Null);
        }
    }
}

/// The file that `kubectl apply` makes the patch for; null for a patch of another kind.
fn applied_file(patch: &Value) -> Value {
    let text = patch["metadata"]["annotations"][LAST_APPLIED].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn remove_by_other_name(map: &mut Map<String, Value>, word: &str, core: &str, applied: &Value) {
    if !map.get(word).is_some_and(Value::is_null) {
        return;
    }
    // Where the patch, or the file behind it, says what the core field shall be, that counts.
    let says = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    map.remove(word);
    if !map.contains_key(core) && !says(applied.get(core)) {
        map.insert(core.to_owned(), Value::Null);
    }
}

/// A client that removes `publicIPs` from the view of a load balancer has seen the balancer's
/// addresses there, with those that were asked for beside them: the latter are meant.
pub(crate) fn remove_public_ips(view: &mut Value, old: &Value) {
    let shown = mirror(old).is_some();
    let asked = object::at(old, "spec.externalIPs");
    let Some(spec) = view.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let removed = match spec.get("publicIPs") {
        None | Some(Value::Null) => true,
        Some(left) => left.as_array().is_some_and(Vec::is_empty),
    };
    if shown && removed && spec.get("externalIPs") == Some(asked) {
        spec.remove("externalIPs");
    }
}

/// Ends of core field names with what this request calls them.
pub(crate) fn other_words(request: &Value) -> Vec<(&'static str, &'static str)> {
    let ports = object::items(request, "spec.ports");
    let says = |field| ports.iter().any(|port| port.get(field).is_some());
    let mut words = Vec::new();
    if says("hostPort") && !says("nodePort") {
        words.push(("].nodePort", "].hostPort"));
    }
    let spec = object::at(request, "spec");
    if spec.get("publicIPs").is_some() && spec.get("externalIPs").is_none() {
        words.push(("spec.externalIPs[", "spec.publicIPs["));
    }
    words
}

fn spec(service: &mut Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    // In the spec, what the ingress points show is a copy of them and no wish of the client.
    let copies = [mirror(service), old.and_then(mirror)];
    errors.extend(narrow(service, old));
    let spec = object::child(service, "spec");
    errors.extend(ports(spec, old));
    errors.extend(visibility(spec, old));
    errors.extend(same(spec, "portalIP", "clusterIP", old));
    if spec
        .get("publicIPs")
        .is_some_and(|given| copies.iter().flatten().any(|copy| copy == given))
    {
        spec.remove("publicIPs");
    }
    errors.extend(same(spec, "publicIPs", "externalIPs", old));
    errors
}

/// A word that is another name for a core field and nothing more.
fn same(
    spec: &mut Map<String, Value>,
    word: &str,
    core: &str,
    old: Option<&Value>,
) -> Option<Error> {
    let other = take(spec, word);
    // Without the other word, what the core field says stays as it was said: an apply may own a
    // zero.
    other.as_ref()?;
    let pair = Pair {
        word: (spec_path(word), other),
        core: (&format!("spec.{core}"), take(spec, core)),
        old: stored(old, &format!("spec.{core}")),
    };
    pair.settle().map(|value| put(spec, core, value)).err()
}

/// The annotation follows the word, unless it is the annotation that was changed.
fn narrow(service: &mut Value, old: Option<&Value>) -> Option<Error> {
    let word = object::text(service, "spec.visibility").to_owned();
    let wanted = NARROW.into_iter().find(|narrow| *narrow == word);
    let given = annotation(service).map(str::to_owned);
    if word.is_empty() || given.as_deref() == wanted {
        return None;
    }
    let was = old.and_then(annotation);
    if given.is_some() && given.as_deref() != was {
        let is_unchanged = old.and_then(visibility_of_object) == Some(word.as_str());
        if is_unchanged {
            object::child(service, "spec").remove("visibility");
            return None;
        }
        let given = given.unwrap_or_default();
        let detail =
            format!("disagrees with metadata.annotations[{VISIBILITY}], which is {given:?}");
        return Some(Error::invalid(&spec_path("visibility"), word, detail));
    }
    annotate(service, wanted);
    None
}

fn annotate(service: &mut Value, value: Option<&str>) {
    let metadata = object::child(service, "metadata");
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    let Some(annotations) = annotations.as_object_mut() else {
        // Null, or something that the metadata's own checks refuse.
        if let (Some(value), true) = (value, annotations.is_null()) {
            *annotations = json!({VISIBILITY: value});
        }
        return;
    };
    put(annotations, VISIBILITY, value.map(Value::from));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn visibility(spec: &mut Map<String, Value>, old: Option<&Value>) -> Option<Error> {
    let (path, old) = (spec_path("visibility"), stored(old, "spec.type"));
    let given = take(spec, "visibility");
    let word = match given.as_ref().and_then(Value::as_str) {
        Some(word) if NARROW.contains(&word) => Some(json!("ClusterIP")),
        Some(word) => match TYPES.iter().find(|(name, _)| *name == word) {
            Some((_, core)) => Some(json!(core)),
            None => return Some(no_such_visibility(&path, word)),
        },
        None => None,
    };
    let create = spec
        .remove("createExternalLoadBalancer")
        .and_then(|value| value.as_bool());
    if word.is_none() && create.is_none() {
        return None;
    }
    let core = take(spec, "type");
    let pair = Pair {
        word: (path.clone(), word),
        core: ("spec.type", core.clone()),
        old: old.clone(),
    };
    let settled = pair.settle().map_err(|_| {
        let core = core.unwrap_or_default();
        Error::invalid(
            &path,
            given.unwrap_or_default(),
            format!("disagrees with spec.type, which is {core}"),
        )
    });
    match settled.and_then(|settled| with_deprecated_switch(create, settled, old)) {
        Ok(settled) => put(spec, "type", settled),
        Err(error) => return Some(error),
    }
    None
}

/// `createExternalLoadBalancer` says whether the type is LoadBalancer. The view shows it with every
/// load balancer, so one that was not changed follows a change of the visibility.
fn with_deprecated_switch(
    create: Option<bool>,
    core: Option<Value>,
    old: Option<Value>,
) -> Result<Option<Value>, Error> {
    let Some(create) = create else {
        return Ok(core);
    };
    let by_switch = Some(json!(if create { "LoadBalancer" } else { "ClusterIP" }));
    let Some(core) = core else {
        return Ok(by_switch);
    };
    let agrees = |value: &Value| create == (value == "LoadBalancer");
    match old {
        _ if agrees(&core) => Ok(Some(core)),
        Some(old) if agrees(&old) => Ok(Some(core)),
        Some(old) if old == core => Ok(by_switch),
        _ => {
            let detail = format!("disagrees with spec.visibility or spec.type, which is {core}");
            Err(Error::invalid(
                &spec_path("createExternalLoadBalancer"),
                create,
                detail,
            ))
        }
    }
}

fn no_such_visibility(path: &Path, word: &str) -> Error {
    let words: Vec<&str> = NARROW
        .into_iter()
        .chain(TYPES.map(|(word, _)| word))
        .collect();
    Error::not_supported(path, word, &words)
}

fn ports(spec: &mut Map<String, Value>, old: Option<&Value>) -> Errors {
    let word = spec.get("visibility").and_then(Value::as_str);
    let inside = word.filter(|word| *word == "cluster" || NARROW.contains(word));
    let inside = inside.map(str::to_owned);
    let old_ports: Vec<&Value> = old
        .map(|old| object::items(old, "spec.ports"))
        .unwrap_or_default()
        .iter()
        .filter_map(|port| port.get("nodePort"))
        .collect();
    let ports = spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    let mut errors = Errors::new();
    for (index, port) in ports
        .enumerate()
        .filter_map(|(index, port)| Some((index, port.as_object_mut()?)))
    {
        let path = spec_path("ports").index(index);
        let Some(word) = take(port, "hostPort") else {
            continue;
        };
        let (word, core) = (Some(word), take(port, "nodePort"));
        // Ports have no fixed place, so a node port counts as unchanged wherever it was.
        let known = |value: &Option<Value>| {
            value
                .as_ref()
                .filter(|value| old_ports.contains(value))
                .cloned()
        };
        // One that is left over from a wider visibility goes with it later.
        if let Some(visibility) = &inside
            && word.is_some()
            && known(&word).is_none()
        {
            let detail = format!("must be omitted or zero when visibility is {visibility}");
            errors.push(Error::invalid(&path.child("hostPort"), word, detail));
            continue;
        }
        let old = known(&core).or_else(|| known(&word));
        let field = path.child("nodePort").to_string();
        match (Pair {
            word: (path.child("hostPort"), word),
            core: (&field, core),
            old,
        })
        .settle()
        {
            Ok(value) => put(port, "nodePort", value),
            Err(error) => errors.push(error),
        }
    }
    errors
}

// publicIPs

/// The addresses and host names of the ingress points, as `publicIPs` shows them.
fn mirror(service: &Value) -> Option<Value> {
    let points = object::items(service, "status.loadBalancer.ingress");
    let texts = points.iter().filter_map(|point| {
        [object::text(point, "ip"), object::text(point, "hostname")]
            .into_iter()
            .find(|text| !text.is_empty())
    });
    let texts: Vec<Value> = texts.map(Value::from).collect();
    (!texts.is_empty()).then_some(Value::Array(texts))
}

/// Whether `publicIPs` of the status is the copy of the spec's that the view shows while there is
/// no load balancer.
fn status_copy(service: &Value) -> bool {
    let (spec, status) = (
        object::at(service, "spec.publicIPs"),
        object::at(service, "status.publicIPs"),
    );
    mirror(service).is_none() && !spec.is_null() && spec == status
}

fn status(service: &mut Value, old: Option<&Value>, copied: bool) -> Result<(), Error> {
    let current = mirror(service);
    let status = object::child(service, "status");
    let Some(given) = take(status, "publicIPs").filter(|_| !copied) else {
        return Ok(());
    };
    let pair = Pair {
        word: (Path::new("status").child("publicIPs"), Some(given)),
        core: ("status.loadBalancer.ingress", current.clone()),
        old: old.and_then(mirror),
    };
    let settled = pair.settle()?;
    if settled != current {
        let texts = settled
            .as_ref()
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let known = old
            .map(|old| object::items(old, "status.loadBalancer.ingress"))
            .unwrap_or_default();
        let points: Vec<Value> = texts
            .iter()
            .filter_map(Value::as_str)
            .map(|text| ingress_point(text, known))
            .collect();
        status.insert("loadBalancer".to_owned(), json!({"ingress": points}));
    }
    Ok(())
}

/// The point that is known under this address or name, with all that was said of it, or a new one.
fn ingress_point(text: &str, known: &[Value]) -> Value {
    let found = known
        .iter()
        .find(|point| object::text(point, "ip") == text || object::text(point, "hostname") == text);
    match found {
        Some(point) => point.clone(),
        None if names::address(text).is_ok() => json!({"ip": text, "ipMode": "VIP"}),
        None => json!({"hostname": text}),
    }
}

/// The view of a stored Service in the words of `portico.dev/v1`.
pub(crate) fn to_portico(service: &Value) -> Value {
    let mut view = service.clone();
    if let Some(version) = view.get_mut("apiVersion") {
        *version = json!(API_VERSION);
    }
    let mirror = mirror(service);
    let visibility = visibility_of_object(service);
    if visibility.is_some_and(|word| NARROW.contains(&word)) {
        annotate(&mut view, None);
    }
    if let Some(spec) = view.get_mut("spec").and_then(Value::as_object_mut) {
        spec_to_portico(spec, visibility, mirror.as_ref());
    }
    let public = mirror.or_else(|| stored(Some(service), "spec.externalIPs"));
    if let (Some(status), Some(public)) = (
        view.get_mut("status").and_then(Value::as_object_mut),
        public,
    ) {
        status.insert("publicIPs".to_owned(), public);
    }
    view
}

fn spec_to_portico(
    spec: &mut Map<String, Value>,
    visibility: Option<&str>,
    mirror: Option<&Value>,
) {
    spec.remove("type");
    // An ExternalName is known by its name alone.
    if let Some(word) = visibility {
        spec.insert("visibility".to_owned(), json!(word));
        if word == "loadbalancer" {
            spec.insert("createExternalLoadBalancer".to_owned(), json!(true));
        }
    }
    rename(spec, "clusterIP", "portalIP");
    match mirror {
        Some(mirror) => put(spec, "publicIPs", Some(mirror.clone())),
        None => rename(spec, "externalIPs", "publicIPs"),
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(port) = port.as_object_mut() {
            rename(port, "nodePort", "hostPort");
        }
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

/// The inverse of `to_portico`.
pub(crate) fn from_portico(service: &mut Value, old: Option<&Value>) -> Errors {
    if let Some(version) = service.get_mut("apiVersion") {
        *version = json!("v1");
    }
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        let says_type = ["visibility", "createExternalLoadBalancer", "type"]
            .iter()
            .any(|key| spec.contains_key(*key));
        if !says_type && spec.contains_key("externalName") {
            spec.insert("type".to_owned(), json!("ExternalName"));
        }
    }
    to_core(service, old)
}

#[cfg(test)]
mod tests;
