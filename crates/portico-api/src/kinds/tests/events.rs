use super::*;

const EVENTS: &str = "events.k8s.io/events";

fn older() -> Value {
    json!({"involvedObject": {"kind": "Service", "namespace": "n", "name": "web"}, "reason": "Synced", "count": 2,
        "message": " done\n", "type": "Normal", "source": {"component": "lb"}, "lastTimestamp": "2024-01-02T03:13:05Z"})
}

fn newer() -> Value {
    json!({"regarding": {"kind": "Service", "namespace": "n", "name": "web"}, "reason": "Synced", "note": "done",
        "type": "Normal", "action": "Sync", "eventTime": "2024-01-02T03:04:05.000000Z",
        "reportingController": "example.com/lb", "reportingInstance": "lb-1"})
}

#[test]
fn older_events() {
    refuses(
        "events",
        &older(),
        &[
            (
                "involvedObject.namespace",
                json!("other"),
                "involvedObject.namespace",
                INVALID,
            ),
            (
                "involvedObject.namespace",
                json!(""),
                "involvedObject.namespace",
                INVALID,
            ),
        ],
    );
    let elsewhere = with(
        &older(),
        &[
            ("involvedObject.namespace", json!("")),
            ("metadata.namespace", json!("default")),
        ],
    );
    create("events", elsewhere).unwrap();
    create(
        "events",
        with(&older(), &[("metadata.name", json!("Any_Name"))]),
    )
    .unwrap();
    let wanted = json!([
        "60s",
        "Normal",
        "Synced",
        "service/web",
        "",
        "lb",
        "done",
        "<unknown>",
        2,
        "a"
    ]);
    assert_eq!(
        Value::from(cells("events", &create("events", older()).unwrap())),
        wanted
    );
}

#[test]
fn two_spellings_of_one_object() {
    let stored = create(EVENTS, newer()).unwrap();
    assert_eq!(stored["involvedObject"]["name"], "web");
    assert_eq!(
        (&stored["message"], &stored["reportingComponent"]),
        (&json!("done"), &json!("example.com/lb"))
    );
    let shown = kind(EVENTS).from_stored(stored.clone());
    for (key, value) in newer().as_object().unwrap() {
        assert_eq!(shown[key], *value, "{key}");
    }
    assert_eq!(update(EVENTS, shown, &stored), Ok(stored.clone()));
    assert_eq!(kind("events").from_stored(stored.clone()), stored);
    let shown = kind(EVENTS).from_stored(create("events", older()).unwrap());
    assert_eq!(
        (shown.get("reportingController"), &shown["deprecatedSource"]),
        (None, &json!({"component": "lb"}))
    );
}

#[test]
fn newer_events_say_more() {
    refuses(
        EVENTS,
        &newer(),
        &[
            ("metadata.name", json!("Any_Name"), "metadata.name", INVALID),
            ("eventTime", Value::Null, "eventTime", REQUIRED),
            (
                "reportingController",
                json!("a b"),
                "reportingController",
                INVALID,
            ),
            (
                "reportingInstance",
                json!(""),
                "reportingInstance",
                REQUIRED,
            ),
            ("action", json!("x".repeat(129)), "action", INVALID),
            ("reason", json!(""), "reason", REQUIRED),
            ("note", json!("x".repeat(1025)), "message", INVALID),
            ("type", json!("Odd"), "type", INVALID),
            ("deprecatedCount", json!(1), "count", INVALID),
            ("deprecatedSource", json!({"host": "h"}), "source", INVALID),
            (
                "series",
                json!({"count": 1, "lastObservedTime": "2024-01-02T03:04:05.000000Z"}),
                "series.count",
                INVALID,
            ),
        ],
    );
    let old = create(EVENTS, newer()).unwrap();
    let series = json!({"count": 2, "lastObservedTime": "2024-01-02T03:04:05.000000Z"});
    update(EVENTS, with(&newer(), &[("series", series)]), &old).unwrap();
    for (key, field) in [
        ("note", "message"),
        ("action", "action"),
        ("reportingController", "reportingController"),
    ] {
        let found = update(EVENTS, with(&newer(), &[(key, json!("other"))]), &old);
        assert_eq!(found, Err(vec![(field.to_owned(), INVALID)]), "{key}");
    }
}

#[test]
fn fields_to_select_by() {
    let stored = create(EVENTS, newer()).unwrap();
    for (api, field, value) in [
        ("events", "involvedObject.name", "web"),
        ("events", "source", "example.com/lb"),
        (EVENTS, "regarding.name", "web"),
        (EVENTS, "reportingController", "example.com/lb"),
        (EVENTS, "reason", "Synced"),
    ] {
        let kind = kind(api);
        assert!(kind.info().selectable_fields.contains(&field), "{field}");
        assert_eq!(kind.selectable_field(&stored, field), value, "{field}");
    }
}
