// The page: follows what there is, shows it, and asks for explanations. It only reads.

import { Refused, follow, get, setToken, takeTokenFromAddress } from "./api.js";
import { draw, plot, words } from "./picture.js";

/** More than this are found by searching. */
const SHOWN = 200;
/** Values that a plot shows. */
const KEPT = 60;
/** How each state that the server tells is coloured. */
const COLOURS = {
  well: "good", idle: "good", good: "good", ready: "good", True: "good",
  waits: "wait", lags: "wait", draining: "wait", noReport: "wait", Unknown: "wait",
  broken: "bad", trouble: "bad", silent: "bad", notReady: "bad", terminating: "bad", False: "bad",
};

const byId = (id) => document.getElementById(id);
/** What the server says, by name: views of Services, of nodes, and the endpoints of each Service. */
const fleet = { services: new Map(), nodes: new Map(), endpoints: new Map() };
let trouble = null;
let connected = false;
const latencies = new Map();
let chosen = null;
let drawing = false;

function start() {
  const state = (up) => {
    connected = up;
    schedule();
  };
  follow("/fleet", changed, state).catch((problem) => {
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

function changed(line, first) {
  for (const [kind, views] of Object.entries(fleet)) {
    if (first) {
      views.clear();
    }
    for (const [name, view] of Object.entries(line[kind])) {
      if (view === null) {
        views.delete(name);
      } else {
        views.set(name, view);
      }
    }
  }
  trouble = line.trouble;
  Object.values(line.nodes).filter(Boolean).forEach(remember);
  schedule();
}

/** Each report is seen again and again; only one after another change is news. */
function remember({ name, report }) {
  const told = report?.programming;
  const known = latencies.get(name) ?? { changes: 0, values: [] };
  if (told && told.changes !== known.changes) {
    const values = [...known.values, milliseconds(told.lastMicros)].slice(-KEPT);
    latencies.set(name, { changes: told.changes, values, worst: milliseconds(told.worstMicros) });
  }
}

/** With as many digits as say something. */
function milliseconds(micros) {
  return Number((micros / 1000).toPrecision(2));
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

function byName(views) {
  return [...views.entries()].sort(([one], [other]) => one.localeCompare(other)).map(([, view]) => view);
}

function render() {
  const services = byName(fleet.services);
  const nodes = byName(fleet.nodes);
  const fit = nodes.filter((node) => node.state === "good").length;
  say("summary", summary(`${services.length} Services, ${fit} of ${nodes.length} nodes well`));
  renderServices(services);
  renderNodes(nodes);
  renderDetail(services, nodes);
}

function summary(text) {
  if (!connected) {
    return "the dashboard does not answer; what is shown is old";
  }
  return trouble ? `the API server does not answer, and what is shown is old: ${trouble}` : text;
}

function nameOf(service) {
  return `${service.namespace}/${service.name}`;
}

/** Whether a search for these words means this Service. */
function matches(service, words) {
  const frontends = service.frontends.flatMap((one) => [one.address, ...one.ports]);
  const text = [nameOf(service), service.type, ...frontends].join(" ").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Only what is new is written, so that nothing is read out twice. */
function say(id, text) {
  if (byId(id).textContent !== text) {
    byId(id).textContent = text;
  }
}

function renderServices(services) {
  const found = services.filter((service) => matches(service, byId("search").value));
  const focused = document.activeElement?.dataset?.name;
  byId("services").replaceChildren(...found.slice(0, SHOWN).map(serviceItem));
  if (focused) {
    byId("services").querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }
  say("more", found.length > SHOWN ? `and ${found.length - SHOWN} more: search for them` : found.length ? "" : "no Service is like that");
  if (!chosen && found.length) {
    chosen = nameOf(found.find((service) => service.type === "LoadBalancer") ?? found[0]);
  }
}

function serviceItem(service) {
  const name = nameOf(service);
  const verdict = COLOURS[service.state];
  const button = make("button", { type: "button" });
  button.dataset.name = name;
  button.setAttribute("aria-current", String(name === chosen));
  button.append(make("span", { className: `dot ${verdict}` }), make("span", { textContent: name }));
  button.append(make("small", { textContent: `${meaning(verdict)}, ${service.type}, ${service.frontends[0]?.address ?? "no address"}` }));
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
    return row([`${node.name} ${node.addresses[0] ?? ""}`, state(COLOURS[node.state], why(node)), announcing(node.report), latency]);
  });
  byId("nodes").tBodies[0].replaceChildren(...rows);
  const select = document.forms.explain.elements.node;
  const names = nodes.map((node) => node.name);
  if ([...select.options].slice(1).map((option) => option.value).join() !== names.join()) {
    select.replaceChildren(select.options[0], ...names.map((name) => make("option", { value: name, textContent: name })));
  }
}

/** What is wrong with a node, or that nothing is. */
function why(node) {
  const problem = node.problems[0]?.what ?? node.draining;
  return problem ?? (node.state === "noReport" ? "does not report: is another proxy at work there?" : "everything is installed");
}

/** What a node says of announcing, in words. */
function announcing(report) {
  const told = report?.announcing;
  const layer2 = told?.members?.length ? [`layer 2 with ${told.members.length - 1} others`] : [];
  const sessions = (told?.sessions ?? []).map((one) => `BGP ${one.peer}: ${one.established ? `${one.routes} routes` : one.trouble || "down"}`);
  return [...layer2, ...sessions].join("; ") || "no";
}

function renderDetail(services, nodes) {
  const service = services.find((one) => nameOf(one) === chosen);
  byId("figure").hidden = !service;
  if (!service) {
    say("detail-title", chosen ? `${chosen} is gone` : "No Service is chosen");
    byId("conditions").tBodies[0].replaceChildren();
    return;
  }
  say("detail-title", chosen);
  const endpoints = [...(fleet.endpoints.get(chosen) ?? [])];
  endpoints.sort((one, other) => (one.node ?? "").localeCompare(other.node ?? "") || one.name.localeCompare(other.name));
  const coloured = (views) => views.map((view) => ({ ...view, colour: COLOURS[view.state] }));
  const way = { frontends: service.frontends, nodes: coloured(nodes), endpoints: coloured(endpoints) };
  draw(byId("picture"), way);
  say("picture-text", words(way));
  say("caption", `externalTrafficPolicy ${service.externalTrafficPolicy || "Cluster"}, sessionAffinity ${service.sessionAffinity || "None"}`);
  const told = service.conditions.map((one) => row([one.type, state(COLOURS[one.status], one.reason), one.message, since(one.since)]));
  told.push(...(service.owners ?? []).map(ownerRow));
  byId("conditions").tBodies[0].replaceChildren(...(told.length ? told : [row(["none", "", service.problems[0]?.what ?? "no controller reports on this Service", ""])]));
  const to = document.forms.explain.elements.to;
  const first = way.frontends[0];
  if (first && to.dataset.of !== chosen) {
    to.dataset.of = chosen;
    to.value = first.kind === "node port" ? "" : `${host(first.address)}:${first.ports[0]}`;
  }
}

/** Who has an announced address, since when, and why. */
function ownerRow({ address, node, since: time, why, before, next, bgp }) {
  const names = [...(node ? [node] : []), ...(bgp?.length ? [`BGP: ${bgp.join(", ")}`] : [])];
  const after = before ? `before: ${before}` : "";
  const takes = next ? `${next} takes over` : "";
  const text = [why, after, takes].filter(Boolean).join("; ");
  return row([address, state(names.length ? "good" : "bad", names.join(", ") || "no node"), text, since(time)]);
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
