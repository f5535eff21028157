//! Reads our tables from the kernel.

use super::element::{Element, Raw, Set};
use super::encode::{COMMENT, FINGERPRINT};
use super::expr::family_number;
use super::sets::Definition;
use super::snapshot::{FoundBase, FoundChain, FoundSet, FoundTable, Snapshot};
use crate::netlink::message::Attributes;
use crate::netlink::uapi::*;
use crate::netlink::{Attribute, Message, Messages, Socket, flags};
use portico_model::table::Family;
use std::io;
use std::sync::Arc;

/// The whole table as of one moment, unless rules change all the time; a batch with its generation
/// is refused if they changed since.
pub(crate) fn snapshot(socket: &mut Socket, name: &str) -> io::Result<Snapshot> {
    const ATTEMPTS: usize = 5;
    let mut snapshot = Snapshot::default();
    for _ in 0..ATTEMPTS {
        snapshot = Snapshot {
            generation: generation(socket)?,
            ..Snapshot::default()
        };
        let mut vanished = false;
        for family in Family::BOTH {
            match table(socket, family, name) {
                Ok(table) => *snapshot.tables.get_mut(family) = table,
                // It went while it was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => vanished = true,
                Err(error) => return Err(error),
            }
        }
        if !vanished && generation(socket)? == snapshot.generation {
            break;
        }
    }
    Ok(snapshot)
}

/// The number of the current rule set.
pub(crate) fn generation(socket: &mut Socket) -> io::Result<u32> {
    let mut request = Messages::new();
    request.netfilter(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN, 0, 0, |_| {});
    let answers = socket.query(&request, |m| {
        m.attributes(4).find_kind(NFTA_GEN_ID)?.u32_be()
    })?;
    answers
        .first()
        .copied()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no generation in the answer"))
}

/// The fingerprints of the rules of a table; `None` for a rule without one.
pub(crate) fn fingerprints(
    socket: &mut Socket,
    family: Family,
    name: &str,
) -> io::Result<Vec<Option<u64>>> {
    let ours = |message: &Message| {
        message
            .attributes(4)
            .find_kind(NFTA_TABLE_NAME)
            .and_then(|found| found.text())
            == Some(name)
    };
    dump(
        socket,
        family,
        NFT_MSG_GETRULE,
        &[(NFTA_RULE_TABLE, name)],
        |m| ours(&m).then(|| Some(rule(m)?.1))?,
    )
}

/// Whether there is a table of that name.
pub(crate) fn has_table(socket: &mut Socket, family: Family, name: &str) -> io::Result<bool> {
    Ok(table_flags(socket, family, name)?.is_some())
}

fn table_flags(socket: &mut Socket, family: Family, name: &str) -> io::Result<Option<u32>> {
    let found = dump(socket, family, NFT_MSG_GETTABLE, &[], |message| {
        let (mut found, mut flags) = (false, 0);
        for attribute in message.attributes(4) {
            match attribute.kind {
                NFTA_TABLE_NAME => found = attribute.text() == Some(name),
                NFTA_TABLE_FLAGS => flags = attribute.u32_be()?,
                _ => {}
            }
        }
        found.then_some(flags)
    })?;
    Ok(found.first().copied())
}

fn table(socket: &mut Socket, family: Family, name: &str) -> io::Result<Option<FoundTable>> {
    let Some(flags) = table_flags(socket, family, name)? else {
        return Ok(None);
    };
    let mut table = FoundTable {
        flags,
        ..FoundTable::default()
    };
    let ours = |message: &Message| {
        message
            .attributes(4)
            .find_kind(NFTA_TABLE_NAME)
            .and_then(|found| found.text())
            == Some(name)
    };
    let chains = dump(socket, family, NFT_MSG_GETCHAIN, &[], |m| {
        ours(&m).then(|| chain(m))?
    })?;
    table.chains.extend(chains);
    let rules = dump(
        socket,
        family,
        NFT_MSG_GETRULE,
        &[(NFTA_RULE_TABLE, name)],
        |m| ours(&m).then(|| rule(m))?,
    )?;
    for (chain, fingerprint) in rules {
        if let Some(chain) = table.chains.get_mut(&*chain) {
            chain.rules.push(fingerprint);
        }
    }
    table.sets.extend(dump(
        socket,
        family,
        NFT_MSG_GETSET,
        &[(NFTA_SET_TABLE, name)],
        |m| ours(&m).then(|| set(m))?,
    )?);
    for (set, found) in &mut table.sets {
        match Set::by_name(set) {
            None | Some(Set::Affinity) => {}
            Some(set) if set.definition(family) != found.definition => {}
            Some(set) => read_elements(socket, family, name, set, found)?,
        }
    }
    Ok(Some(table))
}

/// The base chains of a family, by which packets enter rules of any table: the table, the chain and
/// its hook.
pub(crate) fn base_chains(
    socket: &mut Socket,
    family: Family,
) -> io::Result<Vec<(String, Arc<str>, FoundBase)>> {
    let mut all = Vec::new();
    for number in [family_number(family), NFPROTO_INET] {
        let base = |message: Message| {
            let table = message
                .attributes(4)
                .find_kind(NFTA_CHAIN_TABLE)?
                .text()?
                .to_owned();
            let (name, chain) = chain(message)?;
            Some((table, name, chain.base?))
        };
        all.extend(dump_number(socket, number, NFT_MSG_GETCHAIN, &[], base)?);
    }
    Ok(all)
}

fn dump<T>(
    socket: &mut Socket,
    family: Family,
    command: u8,
    filter: &[(u16, &str)],
    parse: impl FnMut(Message) -> Option<T>,
) -> io::Result<Vec<T>> {
    dump_number(socket, family_number(family), command, filter, parse)
}

fn dump_number<T>(
    socket: &mut Socket,
    family: u8,
    command: u8,
    filter: &[(u16, &str)],
    parse: impl FnMut(Message) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut request = Messages::new();
    request.netfilter(NFNL_SUBSYS_NFTABLES, command, flags::DUMP, family, |m| {
        filter
            .iter()
            .for_each(|(kind, text)| m.put_str(*kind, text));
    });
    socket.query(&request, parse)
}

fn chain(message: Message) -> Option<(Arc<str>, FoundChain)> {
    let (mut name, mut hook, mut kind, mut accepts) = (None, None, String::new(), true);
    for attribute in message.attributes(4) {
        match attribute.kind {
            NFTA_CHAIN_NAME => name = attribute.text(),
            NFTA_CHAIN_HOOK => hook = Some(attribute.nested()),
            NFTA_CHAIN_POLICY => accepts = attribute.u32_be() == Some(NF_ACCEPT),
            NFTA_CHAIN_TYPE => kind = attribute.text()?.to_owned(),
            _ => {}
        }
    }
    let number = |hook: &Attributes, kind| {
        hook.clone()
            .find_kind(kind)
            .and_then(|a| a.u32_be())
            .unwrap_or_default()
    };
    let base = hook.map(|hook| FoundBase {
        kind,
        hook: number(&hook, NFTA_HOOK_HOOKNUM),
        priority: number(&hook, NFTA_HOOK_PRIORITY) as i32,
        accepts,
    });
    Some((
        Arc::from(name?),
        FoundChain {
            base,
            rules: Vec::new(),
        },
    ))
}

fn rule(message: Message) -> Option<(Box<str>, Option<u64>)> {
    let (mut chain, mut fingerprint) = (None, None);
    for attribute in message.attributes(4) {
        match attribute.kind {
            NFTA_RULE_CHAIN => chain = attribute.text(),
            NFTA_RULE_USERDATA => fingerprint = userdata(attribute.data, FINGERPRINT),
            _ => {}
        }
    }
    let fingerprint = fingerprint
        .and_then(|bytes: &[u8]| bytes.first_chunk())
        .map(|bytes| u64::from_be_bytes(*bytes));
    Some((Box::from(chain?), fingerprint))
}

fn set(message: Message) -> Option<(Arc<str>, FoundSet)> {
    let (mut name, mut size) = (None, 0);
    let mut definition = Definition {
        flags: 0,
        key_type: 0,
        key_length: 0,
        data_type: 0,
        data_length: 0,
    };
    for attribute in message.attributes(4) {
        match attribute.kind {
            NFTA_SET_NAME => name = attribute.text(),
            NFTA_SET_FLAGS => definition.flags = attribute.u32_be()?,
            NFTA_SET_KEY_TYPE => definition.key_type = attribute.u32_be()?,
            NFTA_SET_KEY_LEN => definition.key_length = attribute.u32_be()?,
            NFTA_SET_DATA_TYPE => definition.data_type = attribute.u32_be()?,
            NFTA_SET_DATA_LEN => definition.data_length = attribute.u32_be()?,
            NFTA_SET_DESC => {
                size = attribute
                    .nested()
                    .find_kind(NFTA_SET_DESC_SIZE)
                    .and_then(|size| size.u32_be())
                    .unwrap_or_default()
            }
            _ => {}
        }
    }
    if definition.data_type == NFT_DATA_VERDICT {
        definition.data_length = 0;
    }
    let is_named = definition.flags & NFT_SET_ANONYMOUS == 0;
    is_named.then_some((
        Arc::from(name?),
        FoundSet {
            definition,
            size,
            elements: Vec::new(),
            unknown: 0,
        },
    ))
}

fn read_elements(
    socket: &mut Socket,
    family: Family,
    table: &str,
    set: Set,
    found: &mut FoundSet,
) -> io::Result<()> {
    let filter = [
        (NFTA_SET_ELEM_LIST_TABLE, table),
        (NFTA_SET_ELEM_LIST_SET, set.name()),
    ];
    let parts = dump(socket, family, NFT_MSG_GETSETELEM, &filter, |message| {
        elements(message, family, set)
    })?;
    for (mut known, unknown) in parts {
        found.elements.append(&mut known);
        found.unknown += unknown;
    }
    found.elements.sort_unstable();
    Ok(())
}

/// Those that are known, and how many are not.
fn elements(message: Message, family: Family, set: Set) -> Option<(Vec<Element>, usize)> {
    let (mut known, mut unknown) = (Vec::new(), 0);
    for attribute in message
        .attributes(4)
        .find_kind(NFTA_SET_ELEM_LIST_ELEMENTS)?
        .nested()
    {
        match Element::decode(set, family, &raw(attribute.nested())) {
            Some(element) => known.push(element),
            None => unknown += 1,
        }
    }
    Some((known, unknown))
}

/// How many readers understand a message, for the fuzzer.
pub(crate) fn understood(message: Message) -> usize {
    let chain = usize::from(chain(message).is_some());
    let parts = [rule(message).is_some(), set(message).is_some()]
        .into_iter()
        .map(usize::from);
    let in_set = |family, set| elements(message, family, set).map_or(0, |(known, _)| known.len());
    let elements = Family::BOTH
        .into_iter()
        .flat_map(|family| Set::ALL.map(|set| in_set(family, set)));
    chain + parts.sum::<usize>() + elements.sum::<usize>()
}

fn raw(attributes: Attributes<'_>) -> Raw<'_> {
    fn value(attribute: Attribute<'_>) -> Option<&[u8]> {
        attribute
            .nested()
            .find_kind(NFTA_DATA_VALUE)
            .map(|value| value.data)
    }
    let mut raw = Raw::default();
    for attribute in attributes {
        match attribute.kind {
            NFTA_SET_ELEM_KEY => raw.key = value(attribute).unwrap_or_default(),
            NFTA_SET_ELEM_DATA => {
                raw.data = value(attribute).unwrap_or_default();
                let verdict = attribute.nested().find_kind(NFTA_DATA_VERDICT);
                raw.chain = verdict
                    .and_then(|v| v.nested().find_kind(NFTA_VERDICT_CHAIN))
                    .and_then(|chain| chain.text());
            }
            NFTA_SET_ELEM_USERDATA => {
                raw.comment = userdata(attribute.data, COMMENT)
                    .and_then(|data| Attribute { kind: 0, data }.text())
            }
            NFTA_SET_ELEM_KEY_END => raw.key_end = value(attribute),
            _ => {}
        }
    }
    raw
}

/// User data is kind, length and bytes, one after the other.
fn userdata(mut bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, length, rest @ ..] = bytes {
        let (data, next) = rest.split_at_checked(usize::from(*length))?;
        if *kind == wanted {
            return Some(data);
        }
        bytes = next;
    }
    None
}
