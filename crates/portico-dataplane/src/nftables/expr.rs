//! The expressions that rules are made of, as the kernel takes them.
//!
//! Registers hold four bytes each and are numbered from [`REGISTER`]; an IPv6 address takes four of
//! them.

mod edge;

use super::element::Set;
use crate::early_packets::{Queue, Way};
use crate::netlink::Messages;
use crate::netlink::uapi::*;
use portico_model::table::Family;

pub(super) use edge::Client;

/// The first register.
pub(super) const REGISTER: u32 = NFT_REG32_00;

/// One expression after the other, in the order in which the kernel runs them.
pub(super) struct Expressions {
    family: Family,
    out: Messages,
}

impl Expressions {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            out: Messages::new(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
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
        self.out.nested(NFTA_LIST_ELEM, |m| {
            m.put_str(NFTA_EXPR_NAME, name);
            m.nested(NFTA_EXPR_DATA, body);
        });
        self
    }

    fn payload(self, base: u32, offset: u32, length: u32, to: u32) -> Self {
        self.add("payload", |m| {
            m.put_u32_be(NFTA_PAYLOAD_DREG, to);
            m.put_u32_be(NFTA_PAYLOAD_BASE, base);
            m.put_u32_be(NFTA_PAYLOAD_OFFSET, offset);
            m.put_u32_be(NFTA_PAYLOAD_LEN, length);
        })
    }

    fn meta(self, key: u32, to: u32) -> Self {
        self.add("meta", |m| {
            m.put_u32_be(NFTA_META_DREG, to);
            m.put_u32_be(NFTA_META_KEY, key);
        })
    }

    fn set_meta(self, key: u32, from: u32) -> Self {
        self.add("meta", |m| {
            m.put_u32_be(NFTA_META_KEY, key);
            m.put_u32_be(NFTA_META_SREG, from);
        })
    }

    fn bitwise(self, register: u32, mask: &[u8], xor: &[u8]) -> Self {
        self.add("bitwise", |m| {
            m.put_u32_be(NFTA_BITWISE_SREG, register);
            m.put_u32_be(NFTA_BITWISE_DREG, register);
            m.put_u32_be(NFTA_BITWISE_LEN, mask.len() as u32);
            m.nested(NFTA_BITWISE_MASK, |m| m.put(NFTA_DATA_VALUE, mask));
            m.nested(NFTA_BITWISE_XOR, |m| m.put(NFTA_DATA_VALUE, xor));
        })
    }

    fn bits(self, register: u32, mask: u32, xor: u32) -> Self {
        self.bitwise(register, &mask.to_ne_bytes(), &xor.to_ne_bytes())
    }

    fn compare(self, register: u32, operation: u32, value: &[u8]) -> Self {
        self.add("cmp", |m| {
            m.put_u32_be(NFTA_CMP_SREG, register);
            m.put_u32_be(NFTA_CMP_OP, operation);
            m.nested(NFTA_CMP_DATA, |m| m.put(NFTA_DATA_VALUE, value));
        })
    }

    fn look_up(self, set: Set, from: u32, to: Option<u32>, inverted: bool) -> Self {
        self.add("lookup", |m| {
            m.put_str(NFTA_LOOKUP_SET, set.name());
            m.put_u32_be(NFTA_LOOKUP_SREG, from);
            if let Some(to) = to {
                m.put_u32_be(NFTA_LOOKUP_DREG, to);
            }
            if inverted {
                m.put_u32_be(NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
            }
        })
    }

    fn constant(self, to: u32, value: &[u8]) -> Self {
        self.add("immediate", |m| {
            m.put_u32_be(NFTA_IMMEDIATE_DREG, to);
            m.nested(NFTA_IMMEDIATE_DATA, |m| m.put(NFTA_DATA_VALUE, value));
        })
    }

    fn verdict(self, code: i32, chain: Option<&str>) -> Self {
        self.add("immediate", |m| {
            m.put_u32_be(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
            m.nested(NFTA_IMMEDIATE_DATA, |m| {
                m.nested(NFTA_DATA_VERDICT, |m| {
                    m.put_u32_be(NFTA_VERDICT_CODE, code as u32);
                    if let Some(chain) = chain {
                        m.put_str(NFTA_VERDICT_CHAIN, chain);
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
        self.payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length, to)
    }

    fn destination(self, to: u32) -> Self {
        let (offset, length) = (
            if self.family == Family::V4 { 16 } else { 24 },
            self.address_length(),
        );
        self.payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length, to)
    }

    /// `meta l4proto . th dport`
    fn service(self, to: u32) -> Self {
        self.meta(NFT_META_L4PROTO, to)
            .payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, to + 1)
    }

    /// `ip daddr . meta l4proto . th dport`
    fn destination_service(self, to: u32) -> Self {
        let width = self.width();
        self.destination(to).service(to + width)
    }

    // What rules say, below this line.

    /// `ct state new`
    pub(super) fn when_new(self) -> Self {
        self.connection(NFT_CT_STATE, NF_CT_STATE_NEW)
    }

    /// `ct state new,invalid`
    pub(super) fn when_unknown(self) -> Self {
        self.connection(NFT_CT_STATE, NF_CT_STATE_NEW | NF_CT_STATE_INVALID)
    }

    /// `ct status dnat`
    pub(super) fn when_translated(self) -> Self {
        self.connection(NFT_CT_STATUS, IPS_DST_NAT)
    }

    fn connection(self, key: u32, bit: u32) -> Self {
        self.add("ct", |m| {
            m.put_u32_be(NFTA_CT_DREG, REGISTER);
            m.put_u32_be(NFTA_CT_KEY, key);
        })
        .bits(REGISTER, bit, 0)
        .compare(REGISTER, NFT_CMP_NEQ, &[0; 4])
    }

    pub(super) fn jump(self, chain: &str) -> Self {
        self.verdict(libc::NFT_JUMP, Some(chain))
    }

    pub(super) fn goto(self, chain: &str) -> Self {
        self.verdict(libc::NFT_GOTO, Some(chain))
    }

    pub(super) fn drop(self) -> Self {
        self.verdict(libc::NF_DROP, None)
    }

    pub(super) fn leave(self) -> Self {
        self.verdict(libc::NFT_RETURN, None)
    }

    /// ICMP port unreachable.
    pub(super) fn reject(self) -> Self {
        let code = if self.family == Family::V4 { 3 } else { 4 };
        self.add("reject", |m| {
            m.put_u32_be(NFTA_REJECT_TYPE, NFT_REJECT_ICMP_UNREACH);
            m.put_u8(NFTA_REJECT_ICMP_CODE, code);
        })
    }

    /// `ip daddr . meta l4proto . th dport @set`
    pub(super) fn service_in(self, set: Set) -> Self {
        self.destination_service(REGISTER)
            .look_up(set, REGISTER, None, false)
    }

    /// `meta l4proto . th dport @set`
    pub(super) fn port_in(self, set: Set) -> Self {
        self.service(REGISTER).look_up(set, REGISTER, None, false)
    }

    /// `ip daddr . meta l4proto . th dport . ip saddr != @set`
    pub(super) fn service_and_source_not_in(self, set: Set) -> Self {
        let source = REGISTER + self.width() + 2;
        self.destination_service(REGISTER)
            .source(source)
            .look_up(set, REGISTER, None, true)
    }

    /// `ip saddr . ip daddr @set`
    pub(super) fn both_addresses_in(self, set: Set) -> Self {
        let destination = REGISTER + self.width();
        self.source(REGISTER)
            .destination(destination)
            .look_up(set, REGISTER, None, false)
    }

    /// `ip saddr @set`, or `!=`
    pub(super) fn source_in(self, set: Set, within: bool) -> Self {
        self.source(REGISTER).look_up(set, REGISTER, None, !within)
    }

    /// `ip daddr @set`
    pub(super) fn destination_in(self, set: Set) -> Self {
        self.destination(REGISTER)
            .look_up(set, REGISTER, None, false)
    }

    /// `ip daddr != @set`
    pub(super) fn destination_not_in(self, set: Set) -> Self {
        self.destination(REGISTER)
            .look_up(set, REGISTER, None, true)
    }

    /// `ip saddr 10.0.0.0/8`, or `!=`
    pub(super) fn source_network(self, network: &ipnet::IpNet, within: bool) -> Self {
        self.source(REGISTER).network(network, within)
    }

    /// `ip daddr 10.0.0.0/8`, or `!=`
    pub(super) fn destination_network(self, network: &ipnet::IpNet, within: bool) -> Self {
        self.destination(REGISTER).network(network, within)
    }

    fn network(self, network: &ipnet::IpNet, within: bool) -> Self {
        let operation = if within { NFT_CMP_EQ } else { NFT_CMP_NEQ };
        let (mask, address) = (octets(network.netmask()), octets(network.network()));
        let masked = match network.prefix_len() == network.max_prefix_len() {
            true => self,
            false => self.bitwise(REGISTER, &mask, &vec![0; mask.len()]),
        };
        masked.compare(REGISTER, operation, &address)
    }

    /// `meta l4proto tcp`
    pub(super) fn tcp(self) -> Self {
        const TCP: u8 = libc::IPPROTO_TCP as u8;
        self.meta(NFT_META_L4PROTO, REGISTER)
            .compare(REGISTER, NFT_CMP_EQ, &[TCP])
    }

    /// `ip daddr address tcp dport port`
    pub(super) fn tcp_to(self, at: std::net::SocketAddr) -> Self {
        self.destination(REGISTER)
            .compare(REGISTER, NFT_CMP_EQ, &octets(at.ip()))
            .tcp()
            .payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, REGISTER)
            .compare(REGISTER, NFT_CMP_EQ, &at.port().to_be_bytes())
    }

    /// `tcp flags & (fin | syn | rst | ack) != syn`
    pub(super) fn unless_opening(self) -> Self {
        const FLAGS: u32 = 13;
        const FIN_SYN_RST_ACK: u8 = 0x17;
        const SYN: u8 = 0x02;
        self.payload(NFT_PAYLOAD_TRANSPORT_HEADER, FLAGS, 1, REGISTER)
            .bitwise(REGISTER, &[FIN_SYN_RST_ACK], &[0])
            .compare(REGISTER, NFT_CMP_NEQ, &[SYN])
    }

    /// `ip ttl > hops`, or `ip6 hoplimit`
    pub(super) fn more_hops_than(self, hops: u8) -> Self {
        let at = if self.family == Family::V4 { 8 } else { 7 };
        self.payload(NFT_PAYLOAD_NETWORK_HEADER, at, 1, REGISTER)
            .compare(REGISTER, NFT_CMP_GT, &[hops])
    }

    /// `ip ttl > hops ip ttl set hops`, or `ip6 hoplimit`
    pub(super) fn lower_hops(self, hops: u8) -> Self {
        let fresh = self.more_hops_than(hops);
        match fresh.family {
            Family::V4 => {
                let (at, checksum) = (8, 10);
                // With the byte behind it: a checksum is over pairs.
                let lowered = fresh
                    .payload(NFT_PAYLOAD_NETWORK_HEADER, at, 2, REGISTER)
                    .bitwise(REGISTER, &[0, 0xff], &[hops, 0]);
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
            m.put_u32_be(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
            m.put_u32_be(NFTA_PAYLOAD_OFFSET, offset);
            m.put_u32_be(NFTA_PAYLOAD_LEN, length);
            m.put_u32_be(NFTA_PAYLOAD_SREG, REGISTER);
            if let Some(checksum) = checksum {
                m.put_u32_be(NFTA_PAYLOAD_CSUM_TYPE, NFT_PAYLOAD_CSUM_INET);
                m.put_u32_be(NFTA_PAYLOAD_CSUM_OFFSET, checksum);
            }
        })
    }

    /// `limit rate per_second/second burst per_second packets`
    pub(super) fn at_most(self, per_second: u32) -> Self {
        self.add("limit", |m| {
            m.put_u64_be(NFTA_LIMIT_RATE, per_second.into());
            m.put_u64_be(NFTA_LIMIT_UNIT, 1);
            m.put_u32_be(NFTA_LIMIT_BURST, per_second);
            m.put_u32_be(NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
        })
    }

    /// `queue num number bypass`: the packet goes to the queue's listener, and past the rule where
    /// there is none.
    pub(super) fn queue(self, queue: Queue) -> Self {
        match queue.way {
            Way::Own => self.add("queue", |m| {
                m.put_u16_be(NFTA_QUEUE_NUM, queue.number);
                m.put_u16_be(NFTA_QUEUE_TOTAL, 1);
                m.put_u16_be(NFTA_QUEUE_FLAGS, NFT_QUEUE_FLAG_BYPASS);
            }),
            Way::Xtables => self.add("target", |m| {
                // The number, how many queues from there on, flags; with what aligns it.
                let info = [queue.number, 1, NFT_QUEUE_FLAG_BYPASS, 0].map(u16::to_ne_bytes);
                m.put_str(NFTA_TARGET_NAME, "NFQUEUE");
                m.put_u32_be(NFTA_TARGET_REV, 3);
                m.put(NFTA_TARGET_INFO, info.as_flattened());
            }),
        }
    }

    /// `counter`
    pub(super) fn count(self) -> Self {
        self.add("counter", |_| {})
    }

    /// `dup to address device link`
    pub(super) fn copy_to(self, host: std::net::IpAddr, link: u32) -> Self {
        let device = REGISTER + self.width();
        self.constant(REGISTER, &octets(host))
            .constant(device, &link.to_ne_bytes())
            .add("dup", |m| {
                m.put_u32_be(NFTA_DUP_SREG_ADDR, REGISTER);
                m.put_u32_be(NFTA_DUP_SREG_DEV, device);
            })
    }

    /// `iifname "name"`, or `"name*"` if it is a prefix; or `!=`
    pub(super) fn input_interface(self, name: &str, is_prefix: bool, equal: bool) -> Self {
        let mut bytes: Vec<u8> = name.bytes().take(15).collect();
        if !is_prefix {
            bytes.resize(16, 0);
        }
        self.meta(NFT_META_IIFNAME, REGISTER).compare(
            REGISTER,
            if equal { NFT_CMP_EQ } else { NFT_CMP_NEQ },
            &bytes,
        )
    }

    /// `fib daddr type local`
    pub(super) fn destination_is_local(self) -> Self {
        self.address_is_local(NFTA_FIB_F_DADDR)
    }

    /// `fib saddr type local`
    pub(super) fn source_is_local(self) -> Self {
        self.address_is_local(NFTA_FIB_F_SADDR)
    }

    fn address_is_local(self, which: u32) -> Self {
        const LOCAL: u32 = libc::RTN_LOCAL as u32;
        self.add("fib", |m| {
            m.put_u32_be(NFTA_FIB_DREG, REGISTER);
            m.put_u32_be(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
            m.put_u32_be(NFTA_FIB_FLAGS, which);
        })
        .compare(REGISTER, NFT_CMP_EQ, &LOCAL.to_ne_bytes())
    }

    /// `meta mark set meta mark | bit`
    pub(super) fn set_mark(self, bit: u32) -> Self {
        self.meta(NFT_META_MARK, REGISTER)
            .bits(REGISTER, !bit, bit)
            .set_meta(NFT_META_MARK, REGISTER)
    }

    /// `meta mark & bit != 0 meta mark set meta mark ^ bit`
    pub(super) fn take_mark(self, bit: u32) -> Self {
        self.meta(NFT_META_MARK, REGISTER)
            .bits(REGISTER, bit, 0)
            .compare(REGISTER, NFT_CMP_NEQ, &[0; 4])
            .meta(NFT_META_MARK, REGISTER)
            .bits(REGISTER, u32::MAX, bit)
            .set_meta(NFT_META_MARK, REGISTER)
    }

    /// `masquerade fully-random`
    pub(super) fn masquerade(self) -> Self {
        self.add("masq", |m| {
            m.put_u32_be(NFTA_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY)
        })
    }

    /// `meta priority set ip daddr . meta l4proto . th dport map @set`
    pub(super) fn number_of_service(self, set: Set) -> Self {
        self.destination_service(REGISTER)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority set meta l4proto . th dport map @set`
    pub(super) fn number_of_port(self, set: Set) -> Self {
        self.service(REGISTER)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    fn keep_number(self) -> Self {
        self.set_meta(NFT_META_PRIORITY, REGISTER)
    }

    fn masked_number(self, mask: u32, to: u32) -> Self {
        self.meta(NFT_META_PRIORITY, to).bits(to, mask, 0)
    }

    /// `meta priority & mask == value`
    pub(super) fn number_is(self, mask: u32, value: u32) -> Self {
        self.masked_number(mask, REGISTER)
            .compare(REGISTER, NFT_CMP_EQ, &value.to_ne_bytes())
    }

    /// `meta priority & mask vmap @set`
    pub(super) fn number_verdict(self, mask: u32, set: Set) -> Self {
        self.masked_number(mask, REGISTER)
            .look_up(set, REGISTER, Some(NFT_REG_VERDICT), false)
    }

    /// `meta priority set meta priority & mask map @set`
    pub(super) fn translate_number(self, mask: u32, set: Set) -> Self {
        self.masked_number(mask, REGISTER)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority set meta priority & mask | bits`
    pub(super) fn change_number(self, mask: u32, bits: u32) -> Self {
        self.meta(NFT_META_PRIORITY, REGISTER)
            .bits(REGISTER, mask, bits)
            .keep_number()
    }

    /// `meta priority set number`
    pub(super) fn set_number(self, number: u32) -> Self {
        self.constant(REGISTER, &number.to_ne_bytes()).keep_number()
    }

    /// `meta priority set none`
    pub(super) fn forget_number(self) -> Self {
        self.constant(REGISTER, &[0; 4]).keep_number()
    }

    /// `numgen random mod count`
    fn slot(self, count: u32, to: u32) -> Self {
        self.add("numgen", |m| {
            m.put_u32_be(NFTA_NG_DREG, to);
            m.put_u32_be(NFTA_NG_MODULUS, count);
            m.put_u32_be(NFTA_NG_TYPE, NFT_NG_RANDOM);
            m.put_u32_be(NFTA_NG_OFFSET, 0);
        })
    }

    /// `meta priority set none dnat to meta priority & mask . numgen random mod count map @set`
    pub(super) fn translate_to_slot(self, mask: u32, count: u32, set: Set) -> Self {
        let target = REGISTER + 2;
        self.masked_number(mask, REGISTER)
            .slot(count, REGISTER + 1)
            .look_up(set, REGISTER, Some(target), false)
            .forget_number()
            .translate_destination(target)
    }

    /// `meta priority set meta priority & mask . numgen random mod count map @set`
    pub(super) fn choose_member(self, mask: u32, count: u32, set: Set) -> Self {
        self.masked_number(mask, REGISTER)
            .slot(count, REGISTER + 1)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority set none dnat to meta priority map @set`
    pub(super) fn translate_to_member(self, set: Set) -> Self {
        let target = REGISTER + 1;
        self.meta(NFT_META_PRIORITY, REGISTER)
            .look_up(set, REGISTER, Some(target), false)
            .forget_number()
            .translate_destination(target)
    }

    /// `meta priority set meta priority & mask . ip saddr map @set`
    pub(super) fn member_of_client(self, mask: u32, set: Set) -> Self {
        self.client(mask)
            .look_up(set, REGISTER, Some(REGISTER), false)
            .keep_number()
    }

    /// `meta priority & mask . ip saddr`
    fn client(self, mask: u32) -> Self {
        self.masked_number(mask, REGISTER).source(REGISTER + 1)
    }

    /// `update @set { client timeout … : meta priority } meta priority set none dnat to meta priority map @members`
    pub(super) fn remember_client(self, mask: u32, set: Set, timeout: u32, members: Set) -> Self {
        let member = REGISTER + 1 + self.width();
        let target = member + 1;
        self.meta(NFT_META_PRIORITY, member)
            .look_up(members, member, Some(target), false)
            .client(mask)
            .change_set(set, NFT_DYNSET_OP_UPDATE, member, Some(timeout))
            .forget_number()
            .translate_destination(target)
    }

    /// `delete @set { client : meta priority }`
    pub(super) fn forget_client(self, mask: u32, set: Set) -> Self {
        let member = REGISTER + 1 + self.width();
        self.client(mask)
            .meta(NFT_META_PRIORITY, member)
            .change_set(set, NFT_DYNSET_OP_DELETE, member, None)
    }

    fn change_set(self, set: Set, operation: u32, data: u32, timeout: Option<u32>) -> Self {
        self.add("dynset", |m| {
            m.put_str(NFTA_DYNSET_SET_NAME, set.name());
            m.put_u32_be(NFTA_DYNSET_OP, operation);
            m.put_u32_be(NFTA_DYNSET_SREG_KEY, REGISTER);
            m.put_u32_be(NFTA_DYNSET_SREG_DATA, data);
            if let Some(seconds) = timeout {
                m.put_u64_be(NFTA_DYNSET_TIMEOUT, u64::from(seconds) * 1000);
            }
        })
    }

    /// `dnat to address . port`, both in registers.
    fn translate_destination(self, target: u32) -> Self {
        let (family, port) = (self.family, target + self.width());
        self.add("nat", |m| {
            m.put_u32_be(NFTA_NAT_TYPE, NFT_NAT_DNAT);
            m.put_u32_be(NFTA_NAT_FAMILY, u32::from(family_number(family)));
            m.put_u32_be(NFTA_NAT_REG_ADDR_MIN, target);
            m.put_u32_be(NFTA_NAT_REG_PROTO_MIN, port);
        })
    }
}

/// The number that netfilter has for a family.
pub(super) fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => libc::NFPROTO_IPV4 as u8,
        Family::V6 => libc::NFPROTO_IPV6 as u8,
    }
}

fn octets(address: std::net::IpAddr) -> Vec<u8> {
    match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    }
}
