// Draws the way of a Service's traffic: clients, the addresses they use, nodes, endpoints. Left to right.

const SPACE = "http://www.w3.org/2000/svg";
const COLUMNS = [{ x: 10, width: 90 }, { x: 150, width: 190 }, { x: 400, width: 150 }, { x: 610, width: 200 }];
const ROW = 52;
const BOX = 40;
/** A picture with more rows is no picture any more. */
const MOST = 12;

export function draw(svg, { frontends, nodes, endpoints }) {
  const columns = [[{ title: "clients", state: "" }], cut(frontends.map(frontendBox)), cut(nodes.map(nodeBox)), cut(endpoints.map(endpointBox))];
  const height = Math.max(...columns.map((column) => column.length), 1) * ROW + 10;
  const boxes = columns.map((column, index) => place(column, COLUMNS[index], height));
  const lines = [
    ...boxes[1].map((to) => line(boxes[0][0], to)),
    ...boxes[1].flatMap((from) => boxes[2].map((to) => line(from, to))),
    ...boxes[3].flatMap((to) => boxes[2].filter((from) => !to.node || from.title === to.node).map((from) => line(from, to))),
  ];
  svg.setAttribute("viewBox", `0 0 ${COLUMNS[3].x + COLUMNS[3].width + 10} ${height}`);
  svg.replaceChildren(...[...svg.children].slice(0, 2), ...lines, ...boxes.flat().map(box));
}

function cut(all) {
  return all.length <= MOST ? all : [...all.slice(0, MOST - 1), { title: `and ${all.length - MOST + 1} more`, state: "" }];
}

function frontendBox(frontend) {
  return { title: frontend.address, small: `${frontend.kind}, ${frontend.ports.join(" ")}`, state: "good" };
}

function nodeBox(node) {
  return { title: node.name, small: node.addresses[0], state: node.colour };
}

function endpointBox(endpoint) {
  return { title: endpoint.name, small: endpoint.address, state: endpoint.colour, node: endpoint.node };
}

function place(column, { x, width }, height) {
  const top = (height - column.length * ROW) / 2;
  return column.map((one, index) => ({ ...one, x, width, y: top + index * ROW + (ROW - BOX) / 2 }));
}

function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) {
    made.textContent = text;
  }
  return made;
}

function box({ title, small, state, x, y, width }) {
  const group = element("g", {});
  group.append(element("rect", { x, y, width, height: BOX, rx: 6, class: state }));
  group.append(element("text", { x: x + 10, y: y + (small ? 17 : 25) }, clip(title, width)));
  if (small) {
    group.append(element("text", { x: x + 10, y: y + 32, class: "soft" }, clip(small, width)));
  }
  group.append(element("title", {}, [title, small].filter(Boolean).join(", ")));
  return group;
}

function clip(text, width) {
  const most = Math.floor((width - 20) / 6.6);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function line(from, to) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + BOX / 2, to.x, to.y + BOX / 2];
  const middle = (x1 + x2) / 2;
  return element("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, class: to.state === "bad" || from.state === "bad" ? "bad" : "" });
}

/** The same in words, for those who do not see it. */
export function words({ frontends, nodes, endpoints }) {
  const addresses = frontends.map((one) => `${one.kind} ${one.address}, ports ${one.ports.join(" ")}`).join("; ") || "no address";
  const fit = nodes.filter((one) => one.colour === "good").length;
  const ready = endpoints.filter((one) => one.colour === "good");
  const served = ready.map((one) => `${one.name} on ${one.node || "no node"}`).join(", ") || "nobody";
  return `Clients use ${addresses}. ${fit} of ${nodes.length} nodes forward. Served by ${served}; ${endpoints.length - ready.length} endpoints are not ready.`;
}

/** A small plot of the last values, with the latest in words beside it. */
export function plot(values) {
  const svg = element("svg", { viewBox: "0 0 100 24", width: 100, height: 24, role: "img", "aria-label": `last values: ${values.slice(-5).join(", ")} ms` });
  const most = Math.max(...values, 1);
  const step = 100 / Math.max(values.length - 1, 1);
  svg.append(element("polyline", { points: values.map((value, index) => `${index * step},${22 - (20 * value) / most}`).join(" ") }));
  return svg;
}
