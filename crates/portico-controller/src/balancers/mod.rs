//! Gives each Service of type LoadBalancer a load balancer through a provider: who owns a Service, finalizers, which nodes
//! count, when to try again, and what people see of it.
