use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

fn object(name: &str, uid: &str, version: &str) -> ConfigMap {
    let metadata = json!({"namespace": "shop", "name": name, "uid": uid, "resourceVersion": version,
        "labels": {"version": version}});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// A process with subscribers and no watch: what happens there is told by the test.
struct Rig(State<ConfigMap>);

impl Rig {
    fn new() -> Self {
        Self(State::default())
    }

    fn take(&mut self, event: Event<ConfigMap>) {
        self.0.take(Ok(event), |_| {});
    }

    fn list(&mut self, objects: &[ConfigMap]) {
        self.take(Event::Init);
        for object in objects {
            self.take(Event::InitApply(object.clone()));
        }
        self.take(Event::InitDone);
    }

    /// What a subscriber has not taken yet: `+a1` for the object `a` of version 1.
    fn taken(&mut self, subscriber: u64) -> Vec<String> {
        let events = std::iter::from_fn(|| self.0.next(subscriber));
        events.map(|event| shown(&event)).collect()
    }
}

fn shown(event: &SharedResult<ConfigMap>) -> String {
    let name = |sign: &str, object: &Arc<ConfigMap>| {
        let meta = &object.metadata;
        let (name, version) = (meta.name.as_deref(), meta.resource_version.as_deref());
        format!("{sign}{}{}", name.unwrap(), version.unwrap())
    };
    match event {
        Ok(Event::Init) => "begin".to_owned(),
        Ok(Event::InitDone) => "end".to_owned(),
        Ok(Event::InitApply(object)) => name("=", object),
        Ok(Event::Apply(object)) => name("+", object),
        Ok(Event::Delete(object)) => name("-", object),
        Err(_) => "failed".to_owned(),
    }
}

#[test]
fn one_who_comes_later_begins_with_what_there_is() {
    let mut rig = Rig::new();
    let early = rig.0.subscribe();
    assert!(rig.taken(early).is_empty());
    rig.list(&[object("a", "1", "1"), object("b", "2", "2")]);
    assert_eq!(rig.taken(early), ["begin", "=a1", "=b2", "end"]);
    rig.take(Event::Apply(object("a", "1", "3")));
    rig.take(Event::Delete(object("b", "2", "4")));
    let late = rig.0.subscribe();
    assert_eq!(rig.taken(early), ["+a3", "-b4"]);
    assert_eq!(rig.taken(late), ["begin", "=a3", "end"]);
    rig.take(Event::Apply(object("c", "3", "5")));
    assert_eq!(
        (rig.taken(early), rig.taken(late)),
        (vec!["+c5".to_owned()], vec!["+c5".to_owned()])
    );
}

#[test]
fn one_who_comes_while_a_list_is_under_way_gets_the_rest_of_it() {
    let mut rig = Rig::new();
    rig.list(&[object("gone", "1", "1")]);
    rig.take(Event::Init);
    rig.take(Event::InitApply(object("a", "2", "2")));
    let late = rig.0.subscribe();
    assert_eq!(rig.taken(late), ["begin", "=a2"]);
    rig.take(Event::InitApply(object("b", "3", "3")));
    rig.take(Event::InitDone);
    assert_eq!(rig.taken(late), ["=b3", "end"]);
    assert_eq!(rig.0.objects.len(), 2);
}

#[test]
fn a_slow_subscriber_sees_each_object_once_in_the_order_of_the_last_change() {
    let mut rig = Rig::new();
    let slow = rig.0.subscribe();
    rig.list(&[]);
    rig.taken(slow);
    for version in 1..1000 {
        rig.take(Event::Apply(object("a", "1", &version.to_string())));
        rig.take(Event::Apply(object("b", "2", "7")));
    }
    rig.take(Event::Apply(object("a", "1", "1000")));
    assert_eq!(rig.taken(slow), ["+b7", "+a1000"]);
    rig.take(Event::Apply(object("a", "1", "1001")));
    rig.take(Event::Delete(object("a", "1", "1002")));
    assert_eq!(rig.taken(slow), ["-a1002"]);
}

#[test]
fn the_end_of_an_object_is_told_before_the_next_of_its_name() {
    let mut rig = Rig::new();
    let slow = rig.0.subscribe();
    rig.list(&[object("a", "first", "1")]);
    rig.taken(slow);
    rig.take(Event::Delete(object("a", "first", "2")));
    rig.take(Event::Apply(object("a", "second", "3")));
    rig.take(Event::Apply(object("a", "second", "4")));
    assert_eq!(rig.taken(slow), ["-a2", "+a4"]);
}

#[test]
fn what_changes_while_a_list_waits_to_be_taken_is_in_it() {
    let mut rig = Rig::new();
    let slow = rig.0.subscribe();
    rig.take(Event::Apply(object("before", "9", "9")));
    rig.list(&[object("a", "1", "1"), object("b", "2", "2")]);
    rig.take(Event::Apply(object("a", "1", "4")));
    rig.take(Event::Delete(object("b", "2", "5")));
    rig.take(Event::Apply(object("d", "4", "6")));
    assert_eq!(rig.taken(slow), ["begin", "=a4", "=d6", "end"]);
}

#[test]
fn what_changes_while_a_list_is_being_taken_is_told_once() {
    let mut rig = Rig::new();
    let slow = rig.0.subscribe();
    let first = |rig: &mut Rig| shown(&rig.0.next(slow).unwrap());
    rig.list(&[
        object("a", "1", "1"),
        object("b", "2", "2"),
        object("c", "3", "3"),
    ]);
    assert_eq!(first(&mut rig), "begin");
    assert_eq!(first(&mut rig), "=a1");
    rig.take(Event::Delete(object("a", "1", "4")));
    rig.take(Event::Delete(object("b", "2", "5")));
    rig.take(Event::Apply(object("c", "3", "6")));
    rig.take(Event::Apply(object("d", "4", "7")));
    assert_eq!(rig.taken(slow), ["=c6", "end", "-a4", "+d7"]);
    // Another list begins before the first one was taken.
    rig.list(&[object("c", "3", "6")]);
    rig.list(&[object("d", "4", "7")]);
    assert_eq!(rig.taken(slow), ["begin", "=d7", "end"]);
}

#[test]
fn an_outage_is_told_and_a_list_that_works_ends_it() {
    let mut rig = Rig::new();
    let (one, other) = (rig.0.subscribe(), rig.0.subscribe());
    let failure = || Err(watcher::Error::NoResourceVersion);
    rig.0.take(failure(), |_| {});
    rig.0.take(failure(), |_| {});
    assert_eq!(rig.taken(one), ["failed"]);
    rig.list(&[]);
    assert_eq!(rig.taken(one), ["begin", "end"]);
    assert_eq!(rig.taken(other), ["begin", "end"]);
}

/// An API server that has one ConfigMap, whose watch never says anything, and which counts lists.
fn server(lists: &Arc<AtomicUsize>) -> Client {
    let lists = Arc::clone(lists);
    let answer = move |request: http::Request<Body>| {
        let lists = Arc::clone(&lists);
        async move {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=") {
                return std::future::pending().await;
            }
            lists.fetch_add(1, Ordering::Relaxed);
            let item: Value = serde_json::to_value(object("a", "1", "1")).unwrap();
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
                "metadata": {"resourceVersion": "7"}, "items": [item]});
            let body = Body::from(serde_json::to_vec(&list).unwrap());
            Ok::<_, Infallible>(http::Response::new(body))
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test]
async fn all_of_a_process_share_one_watch_which_ends_with_the_last_of_them() {
    let lists = Arc::default();
    let api = Api::<ConfigMap>::all(server(&lists));
    let reflector = Reflector::new(api, Backoff::of_controllers(), |object| {
        object.metadata.labels = None;
    });
    assert_eq!(lists.load(Ordering::Relaxed), 0, "nobody has asked");
    let mut first = reflector.subscribe(|_| true);
    let mut second = reflector.subscribe(|object| object.metadata.labels.is_some());
    // The list begins when both know of it.
    assert_eq!(shown(&first.next().await.unwrap()), "begin");
    assert_eq!(shown(&second.next().await.unwrap()), "begin");
    assert_eq!(shown(&first.next().await.unwrap()), "=a1");
    assert_eq!(shown(&first.next().await.unwrap()), "end");
    // What nobody reads was cut before anybody is asked whether he wants the object.
    assert_eq!(shown(&second.next().await.unwrap()), "end");
    drop(first);
    assert!(reflector.shared.lock().task.is_some());
    drop(second);
    assert!(reflector.shared.lock().task.is_none());
    assert!(reflector.shared.lock().objects.is_empty());
    let mut third = reflector.subscribe(|_| true);
    while shown(&third.next().await.unwrap()) != "end" {}
    assert_eq!(lists.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_object_that_is_not_wanted_any_more_is_deleted_for_that_subscriber() {
    let reflector = Reflector::new(
        Api::<ConfigMap>::all(server(&Arc::default())),
        Backoff::of_controllers(),
        |_| {},
    );
    let mut odd = reflector.subscribe(|object| {
        let version = object.metadata.resource_version.as_deref();
        version.is_some_and(|version| version.ends_with(['1', '3', '5']))
    });
    while shown(&odd.next().await.unwrap()) != "end" {}
    let tell = |event| reflector.shared.lock().take(Ok(event), |_| {});
    tell(Event::Apply(object("b", "2", "2")));
    tell(Event::Delete(object("c", "3", "3")));
    tell(Event::Apply(object("a", "1", "4")));
    assert_eq!(shown(&odd.next().await.unwrap()), "-a4");
    tell(Event::Apply(object("a", "1", "6")));
    tell(Event::Apply(object("a", "1", "15")));
    assert_eq!(shown(&odd.next().await.unwrap()), "+a15");
}
