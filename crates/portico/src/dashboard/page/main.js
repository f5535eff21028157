// The page: follows what there is, shows it, and asks for explanations. It only reads.

import { Refused, follow, get, setToken, takeTokenFromAddress } from "./api.js";
import * as model from "./model.js";
import { draw, plot, words } from "./picture.js";

/** More than this are found by searching. */
const SHOWN = 200;
/** Values that a plot shows. */
const KEPT = 60;

const byId = (id) => document.getElementById(id);
const objects = { services: new Map(), slices: new Map(), nodes: new Map(), leases: new Map() };
const connected = {};
const latencies = new Map();
let chosen = null;
let drawing = false;

const PATHS = {
  services: "/api/v1/services",
  slices: "/apis/discovery.k8s.io/v1/endpointslices",
  nodes: "/api/v1/nodes",
  leases: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=portico.dev%2Fnode-report",
};

function start() {
  const all = Object.entries(PATHS).map(([kind, path]) =>
    follow(path, objects[kind], () => changed(kind), (up) => {
      connected[kind] = up;
      schedule();
    }),
  );
  Promise.race(all).catch((problem) => {
    if (problem instanceof Refused) {
      ask(problem.message);
    }
  });
}

function ask(problem) {
  byId("summary").textContent = "not signed in";
  byId("login-problem").textContent = problem;
  if (!byId("login").open) {
    byId("login").showModal();
  }
}

byId("login").addEventListener("close", () => {
  setToken(byId("token").value);
  byId("token").value = "";
  location.reload();
});
byId("login").addEventListener("cancel", (event) => event.preventDefault());

function changed(kind) {
  if (kind === "leases") {
    model.nodes(objects.nodes, objects.leases, Date.now()).forEach(remember);
  }
  schedule();
}

/** Each report is seen again and again; only one after another change is news. */
function remember({ name, report }) {
  const told = report?.programming;
  const known = latencies.get(name) ?? { changes: 0, values: [] };
  if (told && told.changes !== known.changes) {
    const values = [...known.values, model.milliseconds(told.lastMicros)].slice(-KEPT);
    latencies.set(name, { changes: told.changes, values, worst: model.milliseconds(told.worstMicros) });
  }
}

function schedule() {
  if (!drawing) {
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      render();
    });
  }
}

function render() {
  const services = [...objects.services.values()].sort((one, other) => model.nameOf(one).localeCompare(model.nameOf(other)));
  const nodes = model.nodes(objects.nodes, objects.leases, Date.now());
  const up = Object.keys(PATHS).every((kind) => connected[kind]);
  const fit = nodes.filter((node) => node.state === "good").length;
  say("summary", up ? `${services.length} Services, ${fit} of ${nodes.length} nodes well` : "the API server does not answer; what is shown is old");
  renderServices(services);
  renderNodes(nodes);
  renderDetail(services, nodes);
}

/** Only what is new is written, so that nothing is read out twice. */
function say(id, text) {
  if (byId(id).textContent !== text) {
    byId(id).textContent = text;
  }
}

function renderServices(services) {
  const found = services.filter((service) => model.matches(service, byId("search").value));
  const focused = document.activeElement?.dataset?.name;
  byId("services").replaceChildren(...found.slice(0, SHOWN).map(serviceItem));
  if (focused) {
    byId("services").querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }
  say("more", found.length > SHOWN ? `and ${found.length - SHOWN} more: search for them` : found.length ? "" : "no Service is like that");
  if (!chosen && found.length) {
    chosen = model.nameOf(found.find((service) => service.spec.type === "LoadBalancer") ?? found[0]);
  }
}

function serviceItem(service) {
  const name = model.nameOf(service);
  const verdict = model.verdict(service, objects.slices);
  const button = make("button", { type: "button" });
  button.dataset.name = name;
  button.setAttribute("aria-current", String(name === chosen));
  button.append(make("span", { className: `dot ${verdict}` }), make("span", { textContent: name }));
  button.append(make("small", { textContent: `${meaning(verdict)}, ${service.spec.type}, ${model.frontends(service)[0]?.text ?? "no address"}` }));
  button.addEventListener("click", () => {
    chosen = name;
    render();
    byId("detail").focus({ preventScroll: matchMedia("(min-width: 52rem)").matches });
  });
  const item = make("li", {});
  item.append(button);
  return item;
}

function meaning(verdict) {
  return { good: "well", bad: "in trouble", wait: "on its way" }[verdict];
}

function renderNodes(nodes) {
  const rows = nodes.map((node) => {
    const { values, worst } = latencies.get(node.name) ?? { values: [] };
    const latency = make("td", { textContent: values.length ? `${values.at(-1)} ms, at worst ${worst} ms ` : "no change yet" });
    if (values.length) {
      latency.append(plot(values));
    }
    return row([`${node.name} ${node.address}`, state(node.state, node.why), model.announcing(node.report), latency]);
  });
  byId("nodes").tBodies[0].replaceChildren(...rows);
  const select = document.forms.explain.elements.node;
  const names = nodes.map((node) => node.name);
  if ([...select.options].slice(1).map((option) => option.value).join() !== names.join()) {
    select.replaceChildren(select.options[0], ...names.map((name) => make("option", { value: name, textContent: name })));
  }
}

function renderDetail(services, nodes) {
  const service = services.find((one) => model.nameOf(one) === chosen);
  byId("figure").hidden = !service;
  if (!service) {
    say("detail-title", chosen ? `${chosen} is gone` : "No Service is chosen");
    byId("conditions").tBodies[0].replaceChildren();
    return;
  }
  say("detail-title", chosen);
  const way = { frontends: model.frontends(service), nodes, endpoints: model.endpoints(service, objects.slices) };
  draw(byId("picture"), way);
  say("picture-text", words(way));
  say("caption", `externalTrafficPolicy ${service.spec.externalTrafficPolicy ?? "Cluster"}, sessionAffinity ${service.spec.sessionAffinity ?? "None"}`);
  const told = model.conditions(service).map((one) =>
    row([one.type, state({ True: "good", False: "bad" }[one.status] ?? "wait", one.reason), one.message, since(one.lastTransitionTime)]),
  );
  byId("conditions").tBodies[0].replaceChildren(...(told.length ? told : [row(["none", "", "nobody reports on this Service", ""])]));
  const to = document.forms.explain.elements.to;
  const first = way.frontends[0];
  if (first && to.dataset.of !== chosen) {
    to.dataset.of = chosen;
    to.value = first.kind === "node port" ? "" : `${host(first.text)}:${first.ports.split(" ")[0]}`;
  }
}

function host(text) {
  return text.includes(":") ? `[${text}]` : text;
}

function state(kind, text) {
  const cell = make("td", { className: kind });
  cell.append(make("span", { textContent: `${meaning(kind)}: ` }), text ?? "");
  return cell;
}

function since(time) {
  const cell = make("td", {});
  if (time) {
    cell.append(make("time", { dateTime: time, textContent: new Date(time).toLocaleTimeString() }));
  }
  return cell;
}

function row(cells) {
  const made = make("tr", {});
  cells.forEach((cell, index) => {
    const node = cell instanceof Node ? cell : make(index ? "td" : "th", { textContent: cell });
    if (!index) {
      node.scope = "row";
    }
    made.append(node);
  });
  return made;
}

function make(name, properties) {
  return Object.assign(document.createElement(name), properties);
}

byId("search").addEventListener("input", render);

document.forms.explain.addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams(new FormData(event.target));
  try {
    byId("explanation").textContent = await (await get(`/explain?${query}`)).text();
  } catch (problem) {
    byId("explanation").textContent = `No answer: ${problem.message}`;
  }
});

takeTokenFromAddress();
start();
