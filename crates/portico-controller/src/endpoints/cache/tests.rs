use k8s_openapi::api::core::v1::Endpoints;
use portico_view::key_of;

use super::*;

fn cache() -> Cache<Endpoints> {
    let mut cache = Cache::new(|object: &Endpoints| Some(key_of(&object.metadata)));
    cache.begin_list();
    cache.finish_list();
    cache
}

fn object(name: &str, uid: &str, version: u64) -> Endpoints {
    Endpoints {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..Endpoints::default()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

fn version_of(cache: &Cache<Endpoints>, name: &str) -> Option<String> {
    cache
        .of_service(&key(name))
        .next()
        .and_then(|object| object.metadata.resource_version.clone())
}

#[test]
fn a_write_counts_at_once_and_its_echo_is_no_news() {
    let mut cache = cache();
    cache.wrote(object("a", "u", 5), 1);
    assert_eq!(version_of(&cache, "a").as_deref(), Some("5"));
    assert!(cache.observe(object("a", "u", 5)).is_empty());
    assert_eq!(cache.observe(object("a", "u", 6)), [key("a"), key("a")]);
}

#[test]
fn news_older_than_a_write_is_ignored() {
    let mut cache = cache();
    cache.observe(object("a", "u", 3));
    cache.wrote(object("a", "u", 7), 1);
    assert!(cache.observe(object("a", "u", 5)).is_empty());
    assert_eq!(version_of(&cache, "a").as_deref(), Some("7"));
}

#[test]
fn an_answer_that_comes_after_its_echo_changes_nothing() {
    let mut cache = cache();
    cache.observe(object("a", "u", 5));
    cache.observe_deleted(&object("a", "u", 6));
    cache.wrote(object("a", "u", 5), 1);
    assert_eq!(
        version_of(&cache, "a"),
        None,
        "it was created and deleted before the answer came"
    );
}

#[test]
fn an_own_deletion_counts_at_once_and_late_news_does_not_bring_it_back() {
    let mut cache = cache();
    cache.observe(object("a", "u", 5));
    cache.removed(&object("a", "u", 5));
    assert_eq!(version_of(&cache, "a"), None);
    assert!(cache.observe(object("a", "u", 6)).is_empty());
    assert_eq!(
        cache.observe_deleted(&object("a", "u", 7)),
        None,
        "expected, so no news"
    );
    assert_eq!(
        cache.observe(object("a", "u2", 8)),
        [key("a")],
        "another object of the same name"
    );
}

#[test]
fn a_deletion_shown_before_the_answer_leaves_no_trace() {
    let mut cache = cache();
    cache.observe(object("a", "u", 5));
    assert_eq!(cache.observe_deleted(&object("a", "u", 6)), Some(key("a")));
    cache.removed(&object("a", "u", 5));
    assert!(cache.deleted.is_empty());
}

#[test]
fn a_list_drops_what_it_does_not_contain() {
    let mut cache = cache();
    cache.observe(object("a", "u1", 5));
    cache.wrote(object("b", "u2", 6), 1);
    cache.begin_list();
    cache.observe(object("a", "u1", 5));
    assert_eq!(
        cache.finish_list(),
        [key("b")],
        "written before the list began, so it was deleted since"
    );
}

#[test]
fn a_list_does_not_drop_what_was_written_while_it_was_made() {
    let mut cache = cache();
    cache.begin_list();
    cache.wrote(object("b", "u2", 6), 2);
    assert!(cache.finish_list().is_empty());
    assert!(version_of(&cache, "b").is_some());
}

#[test]
fn an_answer_from_before_the_list_is_left_to_the_watch() {
    let mut cache = cache();
    cache.begin_list();
    cache.finish_list();
    cache.wrote(object("b", "u2", 6), 1);
    assert_eq!(version_of(&cache, "b"), None);
}

#[test]
fn a_list_that_still_contains_an_own_deletion_does_not_bring_it_back() {
    let mut cache = cache();
    cache.observe(object("a", "u", 5));
    cache.begin_list();
    cache.removed(&object("a", "u", 5));
    cache.observe(object("a", "u", 5));
    cache.finish_list();
    assert_eq!(version_of(&cache, "a"), None);
    cache.begin_list();
    cache.finish_list();
    assert!(
        cache.deleted.is_empty(),
        "not listed any more, so nothing more will come"
    );
}

#[test]
fn a_server_restored_from_an_older_state_is_believed() {
    let mut cache = cache();
    cache.observe(object("a", "u", 500));
    cache.begin_list();
    assert!(!cache.observe(object("a", "u", 20)).is_empty());
    cache.finish_list();
    assert_eq!(version_of(&cache, "a").as_deref(), Some("20"));
    cache.wrote(object("a", "u", 21), 2);
    assert_eq!(version_of(&cache, "a").as_deref(), Some("21"));
}
