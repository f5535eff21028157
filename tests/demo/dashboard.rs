//! The dashboard of the demo in a real browser: what it shows, how it follows what happens, and
//! that it can be used without a mouse and by a screen reader. Screenshots for the docs are made with
//! `PORTICO_SCREENSHOTS=docs/pictures`.

use crate::browser::Browser;
use crate::rig::{Demo, good, shell};
use std::path::PathBuf;

const PICTURE: &str = "return document.getElementById('picture').textContent";

fn screenshot(browser: &Browser, name: &str) {
    let folder =
        std::env::var_os("PORTICO_SCREENSHOTS").map_or_else(std::env::temp_dir, PathBuf::from);
    browser.screenshot(&folder.join(format!("portico-{name}.png")));
}

#[test]
fn the_page_shows_what_there_is_and_follows_it() {
    let demo = Demo::start("test-dashboard");
    let browser = Browser::start();
    browser.resize(1280, 1180);
    browser.open(&demo.dashboard);
    browser.until(
        "three Services and the API server's own are listed",
        "return document.querySelectorAll('#services li').length === 4",
    );
    browser.until(
        "the key is no longer in the address",
        "return location.hash === ''",
    );
    browser.until(
        "all nodes are well",
        "return document.getElementById('summary').textContent.includes('3 of 3 nodes well')",
    );
    for condition in ["Allocated", "Programmed", "Announced", "Reachable"] {
        let row = format!(
            "return [...document.querySelectorAll('#conditions tbody tr')].some(row => \
             row.textContent.startsWith('{condition}well'))"
        );
        browser.until(condition, &row);
    }
    let drawn = browser.until(
        "the picture is drawn",
        &format!(
            "{PICTURE}.includes('web-3')&&{}",
            &PICTURE["return ".len()..]
        ),
    );
    for wanted in [
        "clients",
        "192.0.2.200",
        "node1",
        "node2",
        "node3",
        "web-1",
        "web-2",
    ] {
        assert!(
            drawn.as_str().unwrap().contains(wanted),
            "{wanted} is not in {drawn}"
        );
    }
    screenshot(&browser, "dashboard");
    browser.prefer("dark");
    screenshot(&browser, "dashboard-dark");
    browser.resize(390, 844);
    let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
    browser.until("nothing is wider than a phone", fits);
    screenshot(&browser, "dashboard-phone");

    good(&shell(&format!(
        "kubectl --kubeconfig {} delete pod web-1",
        demo.kubeconfig
    )));
    browser.until(
        "the endpoint leaves the picture",
        &format!("{PICTURE}.includes('web-1') === false"),
    );
    browser.until(
        "it is told and drawn how long the change took on each node",
        "return [...document.querySelectorAll('#nodes tbody tr')].filter(row => / ms, at worst [0-9.]+ ms/.test(row.textContent) \
         && row.querySelector('svg polyline')?.getAttribute('points')).length === 3",
    );
    good(&shell(&format!(
        "kubectl --kubeconfig {} delete service web",
        demo.kubeconfig
    )));
    browser.until(
        "the Service is said to be gone",
        "return document.getElementById('detail-title').textContent === 'default/web is gone'",
    );
}

#[test]
fn the_page_is_used_with_keys_and_a_screen_reader() {
    let demo = Demo::start("test-keys");
    let browser = Browser::start();
    browser.open(&demo.dashboard);
    browser.until(
        "Services are listed",
        "return document.querySelectorAll('#services li').length === 4",
    );
    // From the search over the list to a Service, without a mouse.
    browser.type_into("#search", "internal");
    browser.until(
        "one is found",
        "return document.querySelectorAll('#services li').length === 1",
    );
    browser.press("\u{e004}\u{e007}");
    browser.until(
        "it is chosen",
        "return document.getElementById('detail-title').textContent === 'default/web-internal'",
    );
    browser.until(
        "the focus is there",
        "return document.activeElement.id === 'detail'",
    );
    for (selector, role, name) in [
        ("#picture", "img", "The way of its traffic"),
        ("#search", "searchbox", "Find a Service"),
        ("nav", "navigation", "Services"),
        ("#nodes", "table", ""),
        ("#explain button", "button", "Explain"),
    ] {
        let (spoken_role, spoken_name) = browser.spoken(selector);
        assert!(
            spoken_role == role || (role == "img" && spoken_role == "image"),
            "{selector} is {spoken_role}"
        );
        assert!(
            spoken_name.contains(name),
            "{selector} is called {spoken_name}"
        );
    }
    browser.until(
        "the picture is told in words",
        "return document.getElementById('picture-text').textContent.includes('Served by web-1 on \
         node1')",
    );

    browser.type_into("[name=from]", "198.51.100.10");
    browser.type_into("[name=to]", "192.0.2.200:80/tcp");
    browser.press("\u{e007}");
    let told = browser.until(
        "a packet is explained",
        "return document.getElementById('explanation').textContent",
    );
    assert!(
        told.as_str().unwrap().contains("10.244.1.10:8080"),
        "{told}"
    );
    browser.type_into("[name=to]", "nonsense");
    browser.press("\u{e007}");
    browser.until(
        "nonsense is answered",
        "return document.getElementById('explanation').textContent.includes('write ADDRESS:PORT')",
    );
}

#[test]
fn without_the_key_nothing_is_seen() {
    let demo = Demo::start("test-key");
    let (address, key) = demo.dashboard.split_once("#token=").unwrap();
    // The fleet goes on for as long as the page is open: two seconds show how it is answered.
    let curl = "curl -s -o /dev/null -m 2 -w '%{http_code}'";
    let status = |path: &str, header: &str| {
        let command = format!("{curl} -H '{header}' {address}{path} || [ $? = 28 ]");
        good(&shell(&command))
    };
    assert_eq!(status("", ""), "200");
    assert_eq!(status("fleet", ""), "401");
    assert_eq!(status("fleet", "Authorization: Bearer guess"), "401");
    let right = format!("Authorization: Bearer {key}");
    assert_eq!(status("fleet", &right), "200");
    for other in ["api/v1/secrets", "api/v1/services", "apis", "../etc/passwd"] {
        assert_eq!(status(other, &right), "404", "{other}");
    }
    let post = good(&shell(&format!(
        "{curl} -X POST -H '{right}' {address}fleet"
    )));
    assert_eq!(post, "405");
    let browser = Browser::start();
    browser.open(address);
    browser.until(
        "the visitor is asked for a token",
        "return document.getElementById('login').open",
    );
    browser.type_into("#token", key);
    browser.press("\u{e007}");
    browser.until(
        "the right one opens",
        "return document.querySelectorAll('#services li').length === 4",
    );
}
