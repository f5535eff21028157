//! What a BGP speaker needs to announce addresses: messages, sessions as a state machine, and which routes to tell whom. Decides
//! and touches nothing.
