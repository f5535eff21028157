//! Where would this packet go, and why: walks the table for one packet.
