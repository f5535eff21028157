//! Who of the nodes on a link answers for an address: membership by heartbeats, one owner per address, and the frames by which
//! an address is announced and asked for. Decides and touches nothing.
