//! The expressions that rules are made of, as the kernel takes them.
//!
//! Registers hold four bytes each and are numbered from [`REGISTER`]; an IPv6 address takes four of
//! them.

use super::element::Set;
use crate::early_packets::{Queue, Way};
use crate::netlink::Messages;
use portico_model::edge::SLOTS;
use portico_model::edge::hash::SEED;
use portico_model::table::Family;

/// The first register.
pub const REGISTER: u32 = 8;
/// The register that holds a verdict.
const VERDICT: u32 = 0;

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const GREATER: u32 = 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

const META_PRIORITY: u32 = 2;
const META_MARK: u32 = 3;
const META_INPUT_INTERFACE: u32 = 6;
const META_PROTOCOL: u32 = 16;

const CT_STATE: u32 = 0;
const CT_STATUS: u32 = 2;
const STATE_INVALID: u32 = 1;
const STATE_NEW: u32 = 8;
const STATUS_DNAT: u32 = 1 << 5;

const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;
const DROP: i32 = 0;

/// Of the packet that an ICMP error quotes: its IP header begins here.
const QUOTED: u32 = 8;
/// The first of the registers that the address of a node is put into.
const NODE: u32 = REGISTER + 8;

const FULLY_RANDOM: u32 = 1 << 4;

/// What is hashed of a packet that belongs to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    AddressAndPort,
    Address,
    /// Of the client that an ICMP error was sent on behalf of: it quotes an answer to this client.
    QuotedAddressAndPort,
    QuotedAddress,
}

/// One expression after the other, in the order in which the kernel runs them.
pub struct Expressions {
    family: Family,
    out: Messages,
}

impl Expressions {
    pub fn new(family: Family) -> Expressions {
        Expressions {
            family,
            out: Messages::new(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.out.bytes()
    }

    /// Registers that an address takes.
    fn width(&self) -> u32 {
        self.address_length() / 4
    }

    fn address_length(&self) -> u32 {
        match self.family {
            Family::V4 => 4,
            Family::V6 => 16,
        }
    }

    fn add(mut self, name: &str, body: impl FnOnce(&mut Messages)) -> Self {
        self.out.nested(1, |m| {
            m.put_str(1, name);
            m.nested(2, body);
        });
        self
    }

    fn payload(self, base: u32, offset: u32, length: u32, to: u32) -> Self {
        self.add("payload", |m| {
            m.put_u32_be(1, to);
            m.put_u32_be(2, base);
            m.put_u32_be(3, offset);
            m.put_u32_be(4, length);
        })
    }

    fn meta(self, key: u32, to: u32) -> Self {
        self.add("meta", |m| {
            m.put_u32_be(1, to);
            m.put_u32_be(2, key);
        })
    }

    fn set_meta(self, key: u32, from: u32) -> Self {
        self.add("meta", |m| {
            m.put_u32_be(2, key);
            m.put_u32_be(3, from);
        })
    }

    fn bitwise(self, register: u32, mask: &[u8], xor: &[u8]) -> Self {
        self.add("bitwise", |m| {
            m.put_u32_be(1, register);
            m.put_u32_be(2, register);
            m.put_u32_be(3, mask.len() as u32);
            m.nested(4, |m| m.put(1, mask));
            m.nested(5, |m| m.put(1, xor));
        })
    }

    fn bits(self, register: u32, mask: u32, xor: u32) -> Self {
        self.bitwise(register, &mask.to_ne_bytes(), &xor.to_ne_bytes())
    }

    fn compare(self, register: u32, operation: u32, value: &[u8]) -> Self {
        self.add("cmp", |m| {
            m.put_u32_be(1, register);
            m.put_u32_be(2, operation);
            m.nested(3, |m| m.put(1, value));
        })
    }

    fn look_up(self, set: Set, from: u32, to: Option<u32>, inverted: bool) -> Self {
        self.add("lookup", |m| {
            m.put_str(1, set.name());
            m.put_u32_be(2, from);
            if let Some(to) = to {
                m.put_u32_be(3, to);
            }
            if inverted {
                m.put_u32_be(5, 1);
            }
        })
    }

    fn constant(self, to: u32, value: &[u8]) -> Self {
        self.add("immediate", |m| {
            m.put_u32_be(1, to);
            m.nested(2, |m| m.put(1, value));
        })
    }

    fn verdict(self, code: i32, chain: Option<&str>) -> Self {
        self.add("immediate", |m| {
            m.put_u32_be(1, VERDICT);
            m.nested(2, |m| {
                m.nested(2, |m| {
                    m.put_u32_be(1, code as u32);
                    if let Some(chain) = chain {
                        m.put_str(2, chain);
                    }
                });
            });
        })
    }

    fn source(self, to: u32) -> Self {
        let (offset, length) = (
            if self.family == Family::V4 { 12 } else { 8 },
            self.address_length(),
        );
        self.payload(NETWORK_HEADER, offset, length, to)
    }

    fn destination(self, to: u32) -> Self {
        let (offset, length) = (
            if self.family == Family::V4 { 16 } else { 24 },
            self.address_length(),
        );
        self.payload(NETWORK_HEADER, offset, length, to)
    }

    /// `meta l4proto . th dport`
    fn service(self, to: u32) -> Self {
        self.meta(META_PROTOCOL, to)
            .payload(TRANSPORT_HEADER, 2, 2, to + 1)
    }

    /// `ip daddr . meta l4proto . th dport`
    fn destination_service(self, to: u32) -> Self {
        let width = self.width();
        self.destination(to).service(to + width)
    }

    // What rules say, below this line.

    /// `ct state new`
    pub fn when_new(self) -> Self {
        self.connection(CT_STATE, STATE_NEW)
    }

    /// `ct state new,invalid`
    pub fn when_unknown(self) -> Self {
        self.connection(CT_STATE, STATE_NEW | STATE_INVALID)
    }

    /// `ct status dnat`
    pub fn when_translated(self) -> Self {
        self.connection(CT_STATUS, STATUS_DNAT)
    }

    fn connection(self, key: u32, bit: u32) -> Self {
        self.add("ct", |m| {
            m.put_u32_be(1, REGISTER);
            m.put_u32_be(2, key);
        })
        .bits(REGISTER, bit, 0)
        .compare(REGISTER, NOT_EQUAL, &[0; 4])
    }

    pub fn jump(self, chain: &str) -> Self {
        self.verdict(JUMP, Some(chain))
    }

    pub fn goto(self, chain: &str) -> Self {
        self.verdict(GOTO, Some(chain))
    }

    pub fn drop(self) -> Self {
        self.verdict(DROP, None)
    }

    pub fn leave(self) -> Self {
        self.verdict(RETURN, None)
    }

    /// ICMP port unreachable.
    pub fn reject(self) -> Self {
        let code = if self.family == Family::V4 { 3 } else { 4 };
        self.add("reject", |m| {
            m.put_u32_be(1, 0);
            m.put_u8(2, code);
        })
    }

    /// `ip daddr . meta l4proto . th dport @set`
    pub fn service_in(self, set: Set) -> Self {
        self.destination_service(REGISTER)
            .look_up(set, REGISTER, None, false)
    }

    /// `meta l4proto . th dport @set`
    pub fn port_in(self, set: Set) -> Self {
        self.service(REGISTER).look_up(set, REGISTER, None, false)
    }

    /// `ip daddr . meta l4proto . th dport . ip saddr != @set`
    pub fn service_and_source_not_in(self, set: Set) -> Self {
        let source = REGISTER + self.width() + 2;
        self.destination_service(REGISTER)
            .source(source)
            .look_up(set, REGISTER, None, true)
    }

    /// `ip saddr . ip daddr @set`
    pub fn both_addresses_in(self, set: Set) -> Self {
        let destination = REGISTER + self.width();
        self.source(REGISTER)
            .destination(destination)
            .look_up(set, REGISTER, None, false)
    }

    /// `ip saddr @set`, or `!=`
    pub fn source_in(self, set: Set, within: bool) -> Self {
        self.source(REGISTER).look_up(set, REGISTER, None, !within)
    }

    /// `ip daddr @set`
    pub fn destination_in(self, set: Set) -> Self {
        self.destination(REGISTER)
            .look_up(set, REGISTER, None, false)
    }

    /// `ip daddr != @set`
    pub fn destination_not_in(self, set: Set) -> Self {
        self.destination(REGISTER)
            .look_up(set, REGISTER, None, true)
    }

    /// `ip saddr 10.0.0.0/8`, or `!=`
    pub fn source_network(self, network: &ipnet::IpNet, within: bool) -> Self {
        self.source(REGISTER).network(network, within)
    }

    /// `ip daddr 10.0.0.0/8`, or `!=`
    pub fn destination_network(self, network: &ipnet::IpNet, within: bool) -> Self {
        self.destination(REGISTER).network(network, within)
    }

    fn network(self, network: &ipnet::IpNet, within: bool) -> Self {
        let operation = if within { EQUAL } else { NOT_EQUAL };
        let (mask, address) = (octets(network.netmask()), octets(network.network()));
        let masked = match network.prefix_len() == network.max_prefix_len() {
            true => self,
            false => self.bitwise(REGISTER, &mask, &vec![0; mask.len()]),
        };
        masked.compare(REGISTER, operation, &address)
    }

    /// `meta l4proto tcp`
    pub fn tcp(self) -> Self {
        const TCP: u8 = 6;
        self.meta(META_PROTOCOL, REGISTER)
            .compare(REGISTER, EQUAL, &[TCP])
    }

    /// `ip daddr address tcp dport port`
    pub fn tcp_to(self, at: std::net::SocketAddr) -> Self {
        self.destination(REGISTER)
            .compare(REGISTER, EQUAL, &octets(at.ip()))
            .tcp()
            .payload(TRANSPORT_HEADER, 2, 2, REGISTER)
            .compare(REGISTER, EQUAL, &at.port().to_be_bytes())
    }

    /// `tcp flags & (fin | syn | rst | ack) != syn`
    pub fn unless_opening(self) -> Self {
        const FLAGS: u32 = 13;
        const FIN_SYN_RST_ACK: u8 = 0x17;
        const SYN: u8 = 0x02;
        self.payload(TRANSPORT_HEADER, FLAGS, 1, REGISTER)
            .bitwise(REGISTER, &[FIN_SYN_RST_ACK], &[0])
            .compare(REGISTER, NOT_EQUAL, &[SYN])
    }

    /// `ip ttl > hops`, or `ip6 hoplimit`
    pub fn more_hops_than(self, hops: u8) -> Self {
        let at = if self.family == Family::V4 { 8 } else { 7 };
        self.payload(NETWORK_HEADER, at, 1, REGISTER)
            .compare(REGISTER, GREATER, &[hops])
    }

    /// `ip ttl > hops ip ttl set hops`, or `ip6 hoplimit`
    pub fn lower_hops(self, hops: u8) -> Self {
        let fresh = self.more_hops_than(hops);
        match fresh.family {
            Family::V4 => {
                let (at, checksum) = (8, 10);
                // With the byte behind it: a checksum is over pairs.
                let lowered = fresh.payload(NETWORK_HEADER, at, 2, REGISTER).bitwise(
                    REGISTER,
                    &[0, 0xff],
                    &[hops, 0],
                );
                lowered.set_payload(at, 2, Some(checksum))
            }
            Family::V6 => {
                let at = 7;
                fresh.constant(REGISTER, &[hops]).set_payload(at, 1, None)
            }
        }
    }

    /// Writes to the network header, and to its checksum.
    fn set_payload(self, offset: u32, length: u32, checksum: Option<u32>) -> Self {
        self.add("payload", |m| {
            m.put_u32_be(2, NETWORK_HEADER);
            m.put_u32_be(3, offset);
            m.put_u32_be(4, length);
            m.put_u32_be(5, REGISTER);
            if let Some(checksum) = checksum {
                m.put_u32_be(6, 1);
                m.put_u32_be(7, checksum);
            }
        })
    }

    /// `limit rate per_second/second burst per_second packets`
    pub fn at_most(self, per_second: u32) -> Self {
        self.add("limit", |m| {
            m.put_u64_be(1, per_second.into());
            m.put_u64_be(2, 1);
            m.put_u32_be(3, per_second);
            m.put_u32_be(4, 0);
        })
    }

    /// `queue num number bypass`: to who listens there, and on as if nothing were where nobody
    /// does.
    pub fn queue(self, queue: Queue) -> Self {
        const BYPASS: u16 = 1;
        match queue.way {
            Way::Own => self.add("queue", |m| {
                m.put_u16_be(1, queue.number);
                m.put_u16_be(2, 1);
                m.put_u16_be(3, BYPASS);
            }),
            Way::Xtables => self.add("target", |m| {
                // The number, how many queues from there on, flags; with what aligns it.
                let info = [queue.number, 1, BYPASS, 0].map(u16::to_ne_bytes);
                m.put_str(1, "NFQUEUE");
                m.put_u32_be(2, 3);
                m.put(3, info.as_flattened());
            }),
        }
    }

    /// `counter`
    pub fn count(self) -> Self {
        self.add("counter", |_| {})
    }

    /// `dup to address device link`
    pub fn copy_to(self, host: std::net::IpAddr, link: u32) -> Self {
        let device = REGISTER + self.width();
        self.constant(REGISTER, &octets(host))
            .constant(device, &link.to_ne_bytes())
            .add("dup", |m| {
                m.put_u32_be(1, REGISTER);
                m.put_u32_be(2, device);
            })
    }

    /// `ct state invalid meta l4proto icmp icmp type kind`, where the quoted packet has no options.
    pub fn unknown_error(self, kind: u8) -> Self {
        let (protocol, version): (u8, u8) = match self.family {
            Family::V4 => (1, 0x45),
            Family::V6 => (58, 0x60),
        };
        let error = self
            .connection(CT_STATE, STATE_INVALID)
            .meta(META_PROTOCOL, REGISTER)
            .compare(REGISTER, EQUAL, &[protocol])
            .payload(TRANSPORT_HEADER, 0, 1, REGISTER)
            .compare(REGISTER, EQUAL, &[kind])
            .payload(TRANSPORT_HEADER, QUOTED, 1, REGISTER);
        match error.family {
            Family::V4 => error.compare(REGISTER, EQUAL, &[version]),
            Family::V6 => {
                error
                    .bitwise(REGISTER, &[0xf0], &[0])
                    .compare(REGISTER, EQUAL, &[version])
            }
        }
    }

    /// Where the quoted packet has its protocol, its source and what follows its IP header.
    fn quoted(&self) -> (u32, u32, u32) {
        match self.family {
            Family::V4 => (QUOTED + 9, QUOTED + 12, QUOTED + 20),
            Family::V6 => (QUOTED + 6, QUOTED + 8, QUOTED + 40),
        }
    }

    /// As [`number_of_service`](Expressions::number_of_service), by the source of the packet that
    /// an ICMP error quotes: that was an answer.
    pub fn number_of_quoted_service(self, set: Set) -> Self {
        let (protocol, source, transport) = self.quoted();
        let (width, length) = (self.width(), self.address_length());
        self.payload(TRANSPORT_HEADER, source, length, REGISTER)
            .payload(TRANSPORT_HEADER, protocol, 1, REGISTER + width)
            .payload(TRANSPORT_HEADER, transport, 2, REGISTER + width + 1)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority & mask . jhash client mod slots seed seed map @set`, kept for
    /// [`send_to_node`](Expressions::send_to_node).
    pub fn node_of_slot(self, client: Client, mask: u32, set: Set) -> Self {
        let from = REGISTER + 2;
        let (_, source, transport) = self.quoted();
        let (port_at, width, length) = (from + self.width(), self.width(), self.address_length());
        let (loaded, words) = match client {
            Client::Address => (self.source(from), width),
            Client::AddressAndPort => {
                let loaded = self.source(from).payload(TRANSPORT_HEADER, 0, 2, port_at);
                (loaded, width + 1)
            }
            Client::QuotedAddress | Client::QuotedAddressAndPort => {
                let destination = source + length;
                let loaded = self.payload(TRANSPORT_HEADER, destination, length, from);
                match client {
                    Client::QuotedAddress => (loaded, width),
                    _ => {
                        let port = transport + 2;
                        let loaded = loaded.payload(TRANSPORT_HEADER, port, 2, port_at);
                        (loaded, width + 1)
                    }
                }
            }
        };
        loaded
            .add("hash", |m| {
                m.put_u32_be(1, from);
                m.put_u32_be(2, REGISTER + 1);
                m.put_u32_be(3, words * 4);
                m.put_u32_be(4, SLOTS.into());
                m.put_u32_be(5, SEED);
            })
            .masked_number(mask, REGISTER)
            .look_up(set, REGISTER, Some(NODE), false)
    }

    /// There is a way to the node that was looked up, or (`false`) there is none.
    pub fn node_is_near(self, near: bool) -> Self {
        let unspecified = vec![0; self.address_length() as usize];
        self.compare(NODE, if near { NOT_EQUAL } else { EQUAL }, &unspecified)
    }

    /// `dup to` the node that was looked up.
    pub fn send_to_node(self) -> Self {
        self.add("dup", |m| m.put_u32_be(1, NODE))
    }

    /// `iifname "name"`, or `"name*"` if it is a prefix; or `!=`
    pub fn input_interface(self, name: &str, is_prefix: bool, equal: bool) -> Self {
        let mut bytes: Vec<u8> = name.bytes().take(15).collect();
        if !is_prefix {
            bytes.resize(16, 0);
        }
        self.meta(META_INPUT_INTERFACE, REGISTER).compare(
            REGISTER,
            if equal { EQUAL } else { NOT_EQUAL },
            &bytes,
        )
    }

    /// `fib daddr type local`
    pub fn destination_is_local(self) -> Self {
        self.address_is_local(1 << 1)
    }

    /// `fib saddr type local`
    pub fn source_is_local(self) -> Self {
        self.address_is_local(1 << 0)
    }

    fn address_is_local(self, which: u32) -> Self {
        const ADDRESS_TYPE: u32 = 3;
        const LOCAL: u32 = 2;
        self.add("fib", |m| {
            m.put_u32_be(1, REGISTER);
            m.put_u32_be(2, ADDRESS_TYPE);
            m.put_u32_be(3, which);
        })
        .compare(REGISTER, EQUAL, &LOCAL.to_ne_bytes())
    }

    /// `meta mark set meta mark | bit`
    pub fn set_mark(self, bit: u32) -> Self {
        self.meta(META_MARK, REGISTER)
            .bits(REGISTER, !bit, bit)
            .set_meta(META_MARK, REGISTER)
    }

    /// `meta mark & bit != 0 meta mark set meta mark ^ bit`
    pub fn take_mark(self, bit: u32) -> Self {
        self.meta(META_MARK, REGISTER)
            .bits(REGISTER, bit, 0)
            .compare(REGISTER, NOT_EQUAL, &[0; 4])
            .meta(META_MARK, REGISTER)
            .bits(REGISTER, u32::MAX, bit)
            .set_meta(META_MARK, REGISTER)
    }

    /// `masquerade fully-random`
    pub fn masquerade(self) -> Self {
        self.add("masq", |m| m.put_u32_be(1, FULLY_RANDOM))
    }

    /// `meta priority set ip daddr . meta l4proto . th dport map @set`
    pub fn number_of_service(self, set: Set) -> Self {
        self.destination_service(REGISTER)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority set meta l4proto . th dport map @set`
    pub fn number_of_port(self, set: Set) -> Self {
        self.service(REGISTER)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    fn keep_number(self) -> Self {
        self.set_meta(META_PRIORITY, REGISTER)
    }

    fn masked_number(self, mask: u32, to: u32) -> Self {
        self.meta(META_PRIORITY, to).bits(to, mask, 0)
    }

    /// `meta priority & mask == value`
    pub fn number_is(self, mask: u32, value: u32) -> Self {
        self.masked_number(mask, REGISTER)
            .compare(REGISTER, EQUAL, &value.to_ne_bytes())
    }

    /// `meta priority & mask vmap @set`
    pub fn number_verdict(self, mask: u32, set: Set) -> Self {
        self.masked_number(mask, REGISTER)
            .look_up(set, REGISTER, Some(VERDICT), false)
    }

    /// `meta priority set meta priority & mask map @set`
    pub fn translate_number(self, mask: u32, set: Set) -> Self {
        self.masked_number(mask, REGISTER)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority set meta priority & mask | bits`
    pub fn change_number(self, mask: u32, bits: u32) -> Self {
        self.meta(META_PRIORITY, REGISTER)
            .bits(REGISTER, mask, bits)
            .keep_number()
    }

    /// `meta priority set number`
    pub fn set_number(self, number: u32) -> Self {
        self.constant(REGISTER, &number.to_ne_bytes()).keep_number()
    }

    /// `meta priority set none`
    pub fn forget_number(self) -> Self {
        self.constant(REGISTER, &[0; 4]).keep_number()
    }

    /// `numgen random mod count`
    fn slot(self, count: u32, to: u32) -> Self {
        self.add("numgen", |m| {
            m.put_u32_be(1, to);
            m.put_u32_be(2, count);
            m.put_u32_be(3, 1);
            m.put_u32_be(4, 0);
        })
    }

    /// `meta priority set none dnat to meta priority & mask . numgen random mod count map @set`
    pub fn translate_to_slot(self, mask: u32, count: u32, set: Set) -> Self {
        let target = REGISTER + 2;
        self.masked_number(mask, REGISTER)
            .slot(count, REGISTER + 1)
            .look_up(set, REGISTER, Some(target), false)
            .forget_number()
            .translate_destination(target)
    }

    /// `meta priority set meta priority & mask . numgen random mod count map @set`
    pub fn choose_member(self, mask: u32, count: u32, set: Set) -> Self {
        self.masked_number(mask, REGISTER)
            .slot(count, REGISTER + 1)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority set none dnat to meta priority map @set`
    pub fn translate_to_member(self, set: Set) -> Self {
        let target = REGISTER + 1;
        self.meta(META_PRIORITY, REGISTER)
            .look_up(set, REGISTER, Some(target), false)
            .forget_number()
            .translate_destination(target)
    }

    /// `meta priority set meta priority & mask . ip saddr map @set`
    pub fn member_of_client(self, mask: u32, set: Set) -> Self {
        self.client(mask)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority & mask . ip saddr`
    fn client(self, mask: u32) -> Self {
        self.masked_number(mask, REGISTER).source(REGISTER + 1)
    }

    /// `update @set { client timeout … : meta priority } meta priority set none dnat to meta priority map @members`
    pub fn remember_client(self, mask: u32, set: Set, timeout: u32, members: Set) -> Self {
        let member = REGISTER + 1 + self.width();
        let target = member + 1;
        self.meta(META_PRIORITY, member)
            .look_up(members, member, Some(target), false)
            .client(mask)
            .change_set(set, 1, member, Some(timeout))
            .forget_number()
            .translate_destination(target)
    }

    /// `delete @set { client : meta priority }`
    pub fn forget_client(self, mask: u32, set: Set) -> Self {
        let member = REGISTER + 1 + self.width();
        self.client(mask)
            .meta(META_PRIORITY, member)
            .change_set(set, 2, member, None)
    }

    fn change_set(self, set: Set, operation: u32, data: u32, timeout: Option<u32>) -> Self {
        self.add("dynset", |m| {
            m.put_str(1, set.name());
            m.put_u32_be(3, operation);
            m.put_u32_be(4, REGISTER);
            m.put_u32_be(5, data);
            if let Some(seconds) = timeout {
                m.put_u64_be(6, u64::from(seconds) * 1000);
            }
        })
    }

    /// `dnat to address . port`, both in registers.
    fn translate_destination(self, target: u32) -> Self {
        const DESTINATION: u32 = 1;
        let (family, port) = (self.family, target + self.width());
        self.add("nat", |m| {
            m.put_u32_be(1, DESTINATION);
            m.put_u32_be(2, u32::from(family_number(family)));
            m.put_u32_be(3, target);
            m.put_u32_be(5, port);
        })
    }
}

/// As netfilter numbers families.
pub fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

fn octets(address: std::net::IpAddr) -> Vec<u8> {
    match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    }
}
