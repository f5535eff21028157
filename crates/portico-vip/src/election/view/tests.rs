use super::*;

fn link(index: u32, name: &str, running: bool) -> Event {
    Event::Link {
        link: Link {
            index,
            name: name.to_owned(),
            mac: [0; 6],
            running,
        },
        present: true,
    }
}

fn gone(index: u32, name: &str) -> Event {
    Event::Link {
        link: Link {
            index,
            name: name.to_owned(),
            mac: [0; 6],
            running: false,
        },
        present: false,
    }
}

fn address(link: u32, text: &str, present: bool, usable: bool) -> Event {
    let held = Held {
        link,
        address: text.parse().unwrap(),
        prefix: 24,
        usable,
        ours: false,
    };
    Event::Address { held, present }
}

#[test]
fn the_link_is_usable_while_it_runs_and_has_our_address() {
    let mut view = View::new("eth0", "10.0.0.1".parse().unwrap());
    let missing = Err("there is no link eth0");
    let down = Err("eth0 is down or has no carrier");
    let bare = Err("10.0.0.1 is not on eth0");
    // What happens, whether the kernel has to be asked, and what comes of it.
    let story = [
        (link(2, "eth1", true), false, missing),
        (address(3, "10.0.0.1", true, true), false, missing),
        (link(3, "eth0", false), true, down),
        (link(3, "eth0", true), false, bare),
        (address(2, "10.0.0.1", true, true), false, bare),
        (address(3, "10.0.0.2", true, true), false, bare),
        (address(3, "10.0.0.1", true, false), false, bare),
        (address(3, "10.0.0.1", true, true), false, Ok(3)),
        (gone(2, "eth1"), false, Ok(3)),
        (link(3, "eth0", false), false, down),
        (link(3, "eth0", true), false, Ok(3)),
        (Event::Lost, true, Ok(3)),
        (address(3, "10.0.0.1", false, true), false, bare),
        (address(3, "10.0.0.1", true, true), false, Ok(3)),
        (link(3, "renamed", true), false, missing),
        (link(4, "eth0", true), true, bare),
        (gone(4, "eth0"), false, missing),
    ];
    for (number, (event, ask, expected)) in story.into_iter().enumerate() {
        assert_eq!(view.apply(&event), ask, "{number}: {event:?}");
        let usable = view.usable().map(|link| link.index);
        assert_eq!(
            usable.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|why| *why),
            "{number}: {event:?}"
        );
    }
}
