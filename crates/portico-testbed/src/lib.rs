//! Hosts, pods, routers and clients as network namespaces, for tests, benchmarks and the lab.
