// The API server, as a reader sees it: lists, and watches that go on for ever. The token stays in this tab.

const KEY = "portico-token";

/** Raised when the server wants to know who asks, or does not let them. */
export class Refused extends Error {}

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(text) {
  sessionStorage.setItem(KEY, text.trim());
}

/** A link may carry a token behind the `#`, which is never sent to a server; it is taken out of the address at once. */
export function takeTokenFromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) {
    setToken(found);
    history.replaceState(null, "", location.pathname);
  }
}

export async function get(path, signal) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  const answer = await fetch(path, { headers, signal, cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) {
    throw new Refused(await reason(answer));
  }
  if (!answer.ok) {
    throw Object.assign(new Error(await reason(answer)), { status: answer.status });
  }
  return answer;
}

async function reason(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).message ?? text;
  } catch {
    return text || `${answer.status} ${answer.statusText}`;
  }
}

/**
 * Keeps `objects` (a Map by namespace/name) as the server has them, and calls `changed` after every change.
 * Goes on until the token is refused, which it throws.
 */
export async function follow(path, objects, changed, state) {
  let wait = 500;
  for (;;) {
    try {
      const version = await list(path, objects);
      changed();
      state(true);
      wait = 500;
      await watch(path, version, objects, changed);
    } catch (problem) {
      if (problem instanceof Refused) {
        throw problem;
      }
      state(false);
      await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random())));
      wait = Math.min(wait * 2, 30000);
    }
  }
}

function key(object) {
  return `${object.metadata.namespace ?? ""}/${object.metadata.name}`;
}

async function list(path, objects) {
  const answer = await (await get(path)).json();
  objects.clear();
  for (const object of answer.items) {
    objects.set(key(object), object);
  }
  return answer.metadata.resourceVersion;
}

/** Returns when the server ends the watch; what happened meanwhile is in the next list. */
async function watch(path, version, objects, changed) {
  const join = path.includes("?") ? "&" : "?";
  const answer = await get(`${path}${join}watch=1&allowWatchBookmarks=true&resourceVersion=${version}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter(Boolean)) {
      const { type, object } = JSON.parse(line);
      if (type === "ERROR") {
        return;
      }
      if (type === "DELETED") {
        objects.delete(key(object));
      } else if (type !== "BOOKMARK") {
        objects.set(key(object), object);
      }
    }
    changed();
  }
}
