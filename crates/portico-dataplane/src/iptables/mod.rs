//! The iptables dataplane, through `iptables-restore`, with kube-proxy's chain names.
