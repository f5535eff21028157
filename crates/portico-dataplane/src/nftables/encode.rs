//! Plans as netlink messages.

use super::element::{Element, Set};
use super::expr::family_number;
use super::plan::{Plan, Step};
use super::rules::{Base, Rule};
use crate::netlink::{Messages, flags};
use portico_model::table::Family;

/// The netfilter subsystem.
pub const NFTABLES: u8 = 10;

/// Kinds of messages (`enum nf_tables_msg_types`).
pub mod command {
    pub const NEW_TABLE: u8 = 0;
    pub const GET_TABLE: u8 = 1;
    pub const DELETE_TABLE: u8 = 2;
    pub const NEW_CHAIN: u8 = 3;
    pub const GET_CHAIN: u8 = 4;
    pub const DELETE_CHAIN: u8 = 5;
    pub const NEW_RULE: u8 = 6;
    pub const GET_RULE: u8 = 7;
    pub const DELETE_RULE: u8 = 8;
    pub const NEW_SET: u8 = 9;
    pub const GET_SET: u8 = 10;
    pub const DELETE_SET: u8 = 11;
    pub const NEW_ELEMENT: u8 = 12;
    pub const GET_ELEMENT: u8 = 13;
    pub const DELETE_ELEMENT: u8 = 14;
    pub const GET_GENERATION: u8 = 16;
}

/// A comment and a fingerprint in the user data of a rule. `nft` ignores kinds that it does not
/// know.
pub const COMMENT: u8 = 0;
pub const FINGERPRINT: u8 = 0x70;

const GOTO: i32 = -4;
/// Elements are put into messages of at most about this size; an attribute can have 64 KiB.
const MESSAGE_SIZE: usize = 48 << 10;
/// What most elements take: those of endpoints.
const ELEMENT_SIZE: usize = 48;
const LONGEST_COMMENT: usize = 127;

/// A batch that is done as a whole or not at all, and whose last operation is answered. With a
/// generation it is only done if the rule set still is that one.
pub fn batch(
    messages: &mut Messages,
    generation: Option<u32>,
    operations: impl FnOnce(&mut Messages),
) {
    marker(messages, 0x10, generation);
    operations(messages);
    messages.acknowledge_last();
    marker(messages, 0x11, None);
}

fn marker(messages: &mut Messages, kind: u16, generation: Option<u32>) {
    messages.message(kind, 0, |m| {
        m.raw(&[0, 0, 0, NFTABLES]);
        if let Some(generation) = generation {
            m.put_u32_be(1, generation);
        }
    });
}

pub fn plan(m: &mut Messages, table: &str, plan: &Plan) {
    m.reserve(plan.operations() * ELEMENT_SIZE);
    plan.before.iter().for_each(|one| step(m, table, one));
    for family in Family::BOTH {
        elements(m, Place { family, table }, plan.removed.get(family), false);
    }
    for family in Family::BOTH {
        elements(m, Place { family, table }, plan.added.get(family), true);
    }
    plan.after.iter().for_each(|one| step(m, table, one));
}

pub fn delete_table(m: &mut Messages, family: Family, table: &str) {
    send(m, command::DELETE_TABLE, 0, Place { family, table }, |_| {});
}

/// The table that a message is about.
#[derive(Clone, Copy)]
struct Place<'a> {
    family: Family,
    table: &'a str,
}

/// Every message begins with the name of the table.
fn send(
    m: &mut Messages,
    command: u8,
    flags: u16,
    place: Place<'_>,
    body: impl FnOnce(&mut Messages),
) {
    m.netfilter(NFTABLES, command, flags, family_number(place.family), |m| {
        m.put_str(1, place.table);
        body(m);
    });
}

fn step(m: &mut Messages, table: &str, step: &Step) {
    let create = flags::CREATE;
    let at = |family: &Family| Place {
        family: *family,
        table,
    };
    match step {
        Step::AddTable(family) => send(m, command::NEW_TABLE, create, at(family), |m| {
            m.put_u32_be(2, 0)
        }),
        Step::DeleteTable(family) => delete_table(m, *family, table),
        Step::AddSet(family, set, size) => add_set(m, at(family), *set, *size),
        Step::DeleteSet(family, name) => named(m, command::DELETE_SET, at(family), 2, name),
        Step::EmptySet(family, set) => named(m, command::DELETE_ELEMENT, at(family), 2, set.name()),
        Step::AddChain(family, name, base) => send(
            m,
            command::NEW_CHAIN,
            create | flags::EXCLUSIVE,
            at(family),
            |m| {
                m.put_str(3, name);
                base.iter().for_each(|base| hook(m, base));
            },
        ),
        Step::DeleteChain(family, name) => named(m, command::DELETE_CHAIN, at(family), 3, name),
        Step::EmptyChain(family, name) => named(m, command::DELETE_RULE, at(family), 2, name),
        Step::AddRule(family, chain, rule) => add_rule(m, at(family), chain, rule),
    }
}

fn named(m: &mut Messages, command: u8, place: Place<'_>, attribute: u16, name: &str) {
    send(m, command, 0, place, |m| m.put_str(attribute, name));
}

fn hook(m: &mut Messages, base: &Base) {
    const ACCEPT: u32 = 1;
    m.nested(4, |m| {
        m.put_u32_be(1, base.hook);
        m.put_u32_be(2, base.priority as u32);
    });
    m.put_u32_be(5, ACCEPT);
    m.put_str(7, base.kind);
}

fn add_rule(m: &mut Messages, place: Place<'_>, chain: &str, rule: &Rule) {
    send(
        m,
        command::NEW_RULE,
        flags::CREATE | flags::APPEND,
        place,
        |m| {
            m.put_str(2, chain);
            m.nested(4, |m| m.raw(&rule.expressions));
            let mut userdata = vec![FINGERPRINT, 8];
            userdata.extend(rule.fingerprint.to_be_bytes());
            userdata.extend(rule.comment.map(comment).unwrap_or_default());
            m.put(7, &userdata);
        },
    );
}

/// As `nft` stores comments: kind, length, text with a zero byte at its end.
fn comment(text: &str) -> Vec<u8> {
    let text = as_comment(text);
    [COMMENT, text.len() as u8 + 1]
        .into_iter()
        .chain(text.bytes())
        .chain([0])
        .collect()
}

/// As much of it as a comment can have, which is what comes back.
pub fn as_comment(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST_COMMENT))
        .unwrap_or_default()
}

fn add_set(m: &mut Messages, place: Place<'_>, set: Set, size: u32) {
    let (definition, details) = (set.definition(place.family), set.details(place.family));
    send(
        m,
        command::NEW_SET,
        flags::CREATE | flags::EXCLUSIVE,
        place,
        |m| {
            m.put_str(2, set.name());
            m.put_u32_be(3, definition.flags);
            m.put_u32_be(4, definition.key_type);
            m.put_u32_be(5, definition.key_length);
            if definition.data_type != 0 {
                m.put_u32_be(6, definition.data_type);
                m.put_u32_be(7, definition.data_length);
            }
            // The kernel wants a number that is unlike others in the batch.
            m.put_u32_be(10, set as u32 + 1);
            m.nested(9, |m| {
                if size > 0 {
                    m.put_u32_be(1, size);
                }
                if !details.parts.is_empty() {
                    let part = |m: &mut Messages, length: &u8| {
                        m.nested(1, |m| m.put_u32_be(1, u32::from(*length)))
                    };
                    m.nested(2, |m| {
                        details.parts.iter().for_each(|length| part(m, length))
                    });
                }
            });
            m.put(13, &details.userdata);
        },
    );
}

/// Elements, which are in the order of their sets, in as few messages as they fit into.
fn elements(m: &mut Messages, place: Place<'_>, mut elements: &[Element], add: bool) {
    let (command, flags) = match add {
        true => (command::NEW_ELEMENT, flags::CREATE | flags::EXCLUSIVE),
        false => (command::DELETE_ELEMENT, 0),
    };
    while let Some(first) = elements.first() {
        let set = first.set();
        let mut sent = 0;
        send(m, command, flags, place, |m| {
            m.put_str(2, set.name());
            let start = m.len();
            m.nested(3, |m| {
                for one in elements.iter().take_while(|one| one.set() == set) {
                    if m.len() - start > MESSAGE_SIZE {
                        break;
                    }
                    element(m, one, add);
                    sent += 1;
                }
            });
        });
        elements = elements.get(sent..).unwrap_or_default();
    }
}

fn element(m: &mut Messages, element: &Element, with_data: bool) {
    m.nested(1, |m| {
        m.nested(1, |m| m.put(1, element.key().as_slice()));
        if let Some(end) = element.key_end() {
            m.nested(10, |m| m.put(1, end.as_slice()));
        }
        if !with_data {
            return;
        }
        if let Some(data) = element.data() {
            m.nested(2, |m| m.put(1, data.as_slice()));
        }
        if let Element::Class { chain, .. } = element {
            m.nested(2, |m| {
                m.nested(2, |m| {
                    m.put_u32_be(1, GOTO as u32);
                    m.put_str(2, chain);
                });
            });
        }
        if let Some(text) = element.comment().filter(|text| !text.is_empty()) {
            m.put(6, &comment(text));
        }
    });
}
