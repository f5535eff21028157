// What the objects mean for a picture: pure functions of what the API server said, and the time.

/** After so long without a word a node counts as gone. */
const SILENT = 30_000;

const SERVICE_NAME = "kubernetes.io/service-name";
const REPORT = "portico.dev/report";

export const CONDITIONS = ["Allocated", "Programmed", "Announced", "Reachable"];

export function nameOf(object) {
  return `${object.metadata.namespace}/${object.metadata.name}`;
}

/** Everything by which the outside reaches a Service. */
export function frontends(service) {
  const { spec, status } = service;
  const ports = (spec.ports ?? []).map((port) => `${port.port}/${(port.protocol ?? "TCP").toLowerCase()}`).join(" ");
  const balancers = (status?.loadBalancer?.ingress ?? []).map((ingress) => ({
    kind: ingress.ipMode === "Proxy" ? "load balancer (proxy)" : "load balancer",
    text: ingress.ip ?? ingress.hostname,
    ports,
  }));
  const nodePorts = (spec.ports ?? []).map((port) => port.nodePort).filter(Boolean);
  const external = (spec.externalIPs ?? []).map((text) => ({ kind: "external IP", text, ports }));
  const cluster = (spec.clusterIPs ?? []).filter((text) => text && text !== "None").map((text) => ({ kind: "cluster IP", text, ports }));
  const everywhere = nodePorts.length ? [{ kind: "node port", text: "every node", ports: nodePorts.join(" ") }] : [];
  return [...balancers, ...external, ...everywhere, ...cluster];
}

/** The endpoints of a Service, in the order of their nodes. */
export function endpoints(service, slices) {
  const own = [...slices.values()].filter(
    (slice) => slice.metadata.namespace === service.metadata.namespace && slice.metadata.labels?.[SERVICE_NAME] === service.metadata.name,
  );
  const found = own.flatMap((slice) =>
    (slice.endpoints ?? []).map((endpoint) => ({
      name: endpoint.targetRef?.name ?? endpoint.addresses[0],
      address: endpoint.addresses[0],
      port: (slice.ports ?? []).map((port) => port.port).join(" "),
      node: endpoint.nodeName ?? "",
      state: endpoint.conditions?.ready ?? true ? "good" : endpoint.conditions?.serving ? "wait" : "bad",
    })),
  );
  return found.sort((one, other) => one.node.localeCompare(other.node) || one.name.localeCompare(other.name));
}

/** Nodes with what they tell of themselves. */
export function nodes(all, leases, now) {
  return [...all.values()]
    .map((node) => {
      const name = node.metadata.name;
      const lease = leases.get(`kube-system/portico-node-${name}`);
      const report = parse(lease?.metadata.annotations?.[REPORT]);
      const age = lease?.spec?.renewTime ? now - Date.parse(lease.spec.renewTime) : Infinity;
      const address = (node.status?.addresses ?? []).find((one) => one.type === "InternalIP")?.address ?? "";
      return { name, address, report, ...health(node, report, age) };
    })
    .sort((one, other) => one.name.localeCompare(other.name));
}

function health(node, report, age) {
  const ready = (node.status?.conditions ?? []).find((one) => one.type === "Ready");
  if (ready && ready.status !== "True") {
    return { state: "bad", why: `not ready: ${ready.message || ready.reason || ready.status}` };
  }
  if (!report) {
    return { state: "wait", why: "does not report: is another proxy at work there?" };
  }
  if (age > SILENT) {
    return { state: "bad", why: `silent for ${Math.round(age / 1000)} s` };
  }
  if (report.trouble) {
    return { state: "bad", why: report.trouble };
  }
  const behind = (report.behind ?? []).length + (report.moreBehind ?? 0);
  return behind ? { state: "wait", why: `${behind} Services are not installed` } : { state: "good", why: "everything is installed" };
}

function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/** With as many digits as say something. */
export function milliseconds(micros) {
  return Number((micros / 1000).toPrecision(2));
}

/** What a node says of announcing, in words. */
export function announcing(report) {
  const told = report?.announcing;
  const layer2 = told?.members?.length ? [`layer 2 with ${told.members.length - 1} others`] : [];
  const sessions = (told?.sessions ?? []).map((one) => `BGP ${one.peer}: ${one.established ? `${one.routes} routes` : one.trouble || "down"}`);
  return [...layer2, ...sessions].join("; ") || "no";
}

/** The conditions of a Service in their order, those of others after ours. */
export function conditions(service) {
  const all = service.status?.conditions ?? [];
  const rank = (one) => (CONDITIONS.includes(one.type) ? CONDITIONS.indexOf(one.type) : CONDITIONS.length);
  return [...all].sort((one, other) => rank(one) - rank(other));
}

/** One word for a Service: its worst condition, or whether it has endpoints. */
export function verdict(service, slices) {
  const ours = conditions(service).filter((one) => CONDITIONS.includes(one.type));
  if (ours.some((one) => one.status === "False")) {
    return "bad";
  }
  if (ours.some((one) => one.status === "Unknown")) {
    return "wait";
  }
  if (ours.length) {
    return "good";
  }
  return endpoints(service, slices).some((one) => one.state !== "bad") ? "good" : "bad";
}

/** Whether somebody who looks for these words means this Service. */
export function matches(service, words) {
  const text = [nameOf(service), service.spec.type, ...frontends(service).flatMap((one) => [one.text, one.ports])].join(" ").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
