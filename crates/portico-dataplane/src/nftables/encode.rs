//! Plans as netlink messages.

use super::element::{Element, Set};
use super::expr::family_number;
use super::plan::{Plan, Step};
use super::rules::{Base, Rule};
use crate::netlink::uapi::*;
use crate::netlink::{Messages, flags};
use portico_model::table::Family;

/// A comment and a fingerprint in the user data of a rule. `nft` ignores kinds that it does not
/// know.
pub(super) const COMMENT: u8 = 0;
pub(super) const FINGERPRINT: u8 = 0x70;

/// Elements are put into messages of at most about this size; an attribute can have 64 KiB.
const MESSAGE_SIZE: usize = 48 << 10;
/// What most elements take: those of endpoints.
const ELEMENT_SIZE: usize = 48;
const LONGEST_COMMENT: usize = 127;

/// A batch that is done as a whole or not at all, and whose last operation is answered. With a
/// generation it is only done if the rule set still is that one.
pub(super) fn batch(
    messages: &mut Messages,
    generation: Option<u32>,
    operations: impl FnOnce(&mut Messages),
) {
    marker(messages, NFNL_MSG_BATCH_BEGIN, generation);
    operations(messages);
    messages.acknowledge_last();
    marker(messages, NFNL_MSG_BATCH_END, None);
}

fn marker(messages: &mut Messages, kind: u16, generation: Option<u32>) {
    messages.message(kind, 0, |m| {
        m.raw(&[0, 0, 0, NFNL_SUBSYS_NFTABLES]);
        if let Some(generation) = generation {
            m.put_u32_be(NFNL_BATCH_GENID, generation);
        }
    });
}

pub(super) fn plan(m: &mut Messages, table: &str, plan: &Plan) {
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

pub(super) fn delete_table(m: &mut Messages, family: Family, table: &str) {
    send(m, NFT_MSG_DELTABLE, 0, Place { family, table }, |_| {});
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
    m.netfilter(
        NFNL_SUBSYS_NFTABLES,
        command,
        flags,
        family_number(place.family),
        |m| {
            m.put_str(NFTA_TABLE_NAME, place.table);
            body(m);
        },
    );
}

fn step(m: &mut Messages, table: &str, step: &Step) {
    let create = flags::CREATE;
    let at = |family: &Family| Place {
        family: *family,
        table,
    };
    match step {
        Step::AddTable(family) => send(m, NFT_MSG_NEWTABLE, create, at(family), |m| {
            m.put_u32_be(NFTA_TABLE_FLAGS, 0)
        }),
        Step::DeleteTable(family) => delete_table(m, *family, table),
        Step::AddSet(family, set, size) => add_set(m, at(family), *set, *size),
        Step::DeleteSet(family, name) => named(m, NFT_MSG_DELSET, at(family), NFTA_SET_NAME, name),
        Step::EmptySet(family, set) => named(
            m,
            NFT_MSG_DELSETELEM,
            at(family),
            NFTA_SET_ELEM_LIST_SET,
            set.name(),
        ),
        Step::AddChain(family, name, base) => send(
            m,
            NFT_MSG_NEWCHAIN,
            create | flags::EXCLUSIVE,
            at(family),
            |m| {
                m.put_str(NFTA_CHAIN_NAME, name);
                base.iter().for_each(|base| hook(m, base));
            },
        ),
        Step::DeleteChain(family, name) => {
            named(m, NFT_MSG_DELCHAIN, at(family), NFTA_CHAIN_NAME, name)
        }
        Step::EmptyChain(family, name) => {
            named(m, NFT_MSG_DELRULE, at(family), NFTA_RULE_CHAIN, name)
        }
        Step::AddRule(family, chain, rule) => add_rule(m, at(family), chain, rule),
    }
}

fn named(m: &mut Messages, command: u8, place: Place<'_>, attribute: u16, name: &str) {
    send(m, command, 0, place, |m| m.put_str(attribute, name));
}

fn hook(m: &mut Messages, base: &Base) {
    m.nested(NFTA_CHAIN_HOOK, |m| {
        m.put_u32_be(NFTA_HOOK_HOOKNUM, base.hook);
        m.put_u32_be(NFTA_HOOK_PRIORITY, base.priority as u32);
    });
    m.put_u32_be(NFTA_CHAIN_POLICY, NF_ACCEPT);
    m.put_str(NFTA_CHAIN_TYPE, base.kind);
}

fn add_rule(m: &mut Messages, place: Place<'_>, chain: &str, rule: &Rule) {
    send(
        m,
        NFT_MSG_NEWRULE,
        flags::CREATE | flags::APPEND,
        place,
        |m| {
            m.put_str(NFTA_RULE_CHAIN, chain);
            m.nested(NFTA_RULE_EXPRESSIONS, |m| m.raw(&rule.expressions));
            let mut userdata = vec![FINGERPRINT, 8];
            userdata.extend(rule.fingerprint.to_be_bytes());
            userdata.extend(rule.comment.map(comment).unwrap_or_default());
            m.put(NFTA_RULE_USERDATA, &userdata);
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

/// The part of a text that fits into a comment, which is what the kernel returns.
pub(super) fn as_comment(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST_COMMENT))
        .unwrap_or_default()
}

fn add_set(m: &mut Messages, place: Place<'_>, set: Set, size: u32) {
    let (definition, details) = (set.definition(place.family), set.details(place.family));
    send(
        m,
        NFT_MSG_NEWSET,
        flags::CREATE | flags::EXCLUSIVE,
        place,
        |m| {
            m.put_str(NFTA_SET_NAME, set.name());
            m.put_u32_be(NFTA_SET_FLAGS, definition.flags);
            m.put_u32_be(NFTA_SET_KEY_TYPE, definition.key_type);
            m.put_u32_be(NFTA_SET_KEY_LEN, definition.key_length);
            if definition.data_type != 0 {
                m.put_u32_be(NFTA_SET_DATA_TYPE, definition.data_type);
                m.put_u32_be(NFTA_SET_DATA_LEN, definition.data_length);
            }
            // The kernel wants a number that is unlike others in the batch.
            m.put_u32_be(NFTA_SET_ID, set as u32 + 1);
            m.nested(NFTA_SET_DESC, |m| {
                if size > 0 {
                    m.put_u32_be(NFTA_SET_DESC_SIZE, size);
                }
                if !details.parts.is_empty() {
                    let part = |m: &mut Messages, length: &u8| {
                        m.nested(NFTA_LIST_ELEM, |m| {
                            m.put_u32_be(NFTA_SET_FIELD_LEN, u32::from(*length))
                        })
                    };
                    m.nested(NFTA_SET_DESC_CONCAT, |m| {
                        details.parts.iter().for_each(|length| part(m, length))
                    });
                }
            });
            m.put(NFTA_SET_USERDATA, &details.userdata);
        },
    );
}

/// Elements, which are in the order of their sets, in as few messages as they fit into.
fn elements(m: &mut Messages, place: Place<'_>, mut elements: &[Element], add: bool) {
    let (command, flags) = match add {
        true => (NFT_MSG_NEWSETELEM, flags::CREATE | flags::EXCLUSIVE),
        false => (NFT_MSG_DELSETELEM, 0),
    };
    while let Some(first) = elements.first() {
        let set = first.set();
        let mut sent = 0;
        send(m, command, flags, place, |m| {
            m.put_str(NFTA_SET_ELEM_LIST_SET, set.name());
            let start = m.len();
            m.nested(NFTA_SET_ELEM_LIST_ELEMENTS, |m| {
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
    m.nested(NFTA_LIST_ELEM, |m| {
        m.nested(NFTA_SET_ELEM_KEY, |m| {
            m.put(NFTA_DATA_VALUE, element.key().as_slice())
        });
        if let Some(end) = element.key_end() {
            m.nested(NFTA_SET_ELEM_KEY_END, |m| {
                m.put(NFTA_DATA_VALUE, end.as_slice())
            });
        }
        if !with_data {
            return;
        }
        if let Some(data) = element.data() {
            m.nested(NFTA_SET_ELEM_DATA, |m| {
                m.put(NFTA_DATA_VALUE, data.as_slice())
            });
        }
        if let Element::Class { chain, .. } = element {
            m.nested(NFTA_SET_ELEM_DATA, |m| {
                m.nested(NFTA_DATA_VERDICT, |m| {
                    m.put_u32_be(NFTA_VERDICT_CODE, libc::NFT_GOTO as u32);
                    m.put_str(NFTA_VERDICT_CHAIN, chain);
                });
            });
        }
        if let Some(text) = element.comment().filter(|text| !text.is_empty()) {
            m.put(NFTA_SET_ELEM_USERDATA, &comment(text));
        }
    });
}
