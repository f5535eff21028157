//! `portico bench` measures, whatever it finds.

use crate::rig::portico;

#[tokio::test]
async fn something_is_measured() {
    let figures = portico(&[
        "bench",
        "--services",
        "20",
        "--at-most",
        "10m",
        "-o",
        "json",
    ])
    .await
    .json(0);
    assert_eq!(figures["services"], 20);
    let figures = figures["figures"].as_array().unwrap();
    let names: Vec<&str> = figures
        .iter()
        .map(|figure| figure["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "cold start",
            "new Service live",
            "moved endpoint live",
            "connection through a Service"
        ]
    );
    for figure in figures {
        let number = |field: &str| figure[field].as_f64().unwrap();
        assert!(
            number("medianSeconds") > 0.0 && number("p99Seconds") >= number("medianSeconds"),
            "{figure}"
        );
        assert!(number("kernelSeconds") > 0.0, "{figure}");
    }
}
