//! `portico dns`: an authoritative zone made from Services, EndpointSlices and Nodes.
