use super::*;

#[test]
fn a_new_namespace() {
    let created = create(
        "namespaces",
        json!({"metadata": {"labels": {"x": "y"}}, "spec": {"finalizers": ["a.b/c"]}}),
    )
    .unwrap();
    assert_eq!(
        created["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "a", "x": "y"})
    );
    assert_eq!(
        created["spec"]["finalizers"],
        json!(["a.b/c", "kubernetes"])
    );
    assert_eq!(created["status"], json!({"phase": "Active"}));
    assert_eq!(
        cells("namespaces", &created),
        [json!("a"), json!("Active"), json!("10m")]
    );
}

#[test]
fn names_are_labels() {
    let found = create("namespaces", json!({"metadata": {"name": "a.b"}}));
    assert_eq!(found, Err(vec![("metadata.name".to_owned(), INVALID)]));
    // The name is a label value too.
    let found = create("namespaces", json!({"metadata": {"name": "n".repeat(64)}}));
    assert_eq!(
        found,
        Err(vec![
            ("metadata.name".to_owned(), INVALID),
            ("metadata.labels".to_owned(), INVALID)
        ])
    );
}

#[test]
fn an_update_keeps_label_finalizers_and_status() {
    let old = create("namespaces", json!({})).unwrap();
    let new = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}, "spec": {"finalizers": []}});
    let new = update("namespaces", new, &old).unwrap();
    assert_eq!(
        (&new["spec"], &new["status"], &new["metadata"]["labels"]),
        (&old["spec"], &old["status"], &old["metadata"]["labels"])
    );
}

#[test]
fn the_phase_follows_the_deletion() {
    let old = create("namespaces", json!({})).unwrap();
    let terminating = with(&old, &[("status.phase", json!("Terminating"))]);
    assert_eq!(
        update_status("namespaces", terminating.clone(), &old),
        Err(vec![("status.Phase".to_owned(), INVALID)])
    );
    let deleted = with(
        &old,
        &[("metadata.deletionTimestamp", json!("2024-01-02T03:04:05Z"))],
    );
    update_status("namespaces", terminating, &deleted).unwrap();
    assert_eq!(
        update_status("namespaces", deleted.clone(), &deleted),
        Err(vec![("status.Phase".to_owned(), INVALID)])
    );
}

#[test]
fn deleting_and_finalizing() {
    let namespace = kind("namespaces");
    let mut object = create("namespaces", json!({})).unwrap();
    assert!(namespace.is_held(&object));
    namespace.mark_deleted(&mut object);
    assert_eq!(object["status"]["phase"], "Terminating");
    let mut finalized = json!({"metadata": {"name": "a"}, "spec": {"finalizers": []}});
    namespace::prepare_finalize(&mut finalized, &object);
    assert_eq!(finalized["status"]["phase"], "Terminating");
    assert!(!namespace.is_held(&finalized));
    assert_eq!(namespace::validate_finalize(&finalized), []);
    let errors =
        namespace::validate_finalize(&json!({"spec": {"finalizers": ["kubernetes", "hold"]}}));
    assert_eq!(
        errors.first().map(|error| error.field.as_str()),
        Some("spec.finalizers[1]")
    );
}
