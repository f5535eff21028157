// The server, as a page sees it: the fleet as it changes, and answers. The token stays in this tab.

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
 * Calls `changed` with every line of the fleet's changes, and `state` when the server comes and goes.
 * The first line after each connection has everything. Goes on until the token is refused, which it throws.
 */
export async function follow(path, changed, state) {
  let wait = 500;
  for (;;) {
    try {
      const answer = await get(path);
      wait = 500;
      await lines(answer, changed, state);
    } catch (problem) {
      if (problem instanceof Refused) {
        throw problem;
      }
    }
    state(false);
    await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random())));
    wait = Math.min(wait * 2, 30000);
  }
}

/** Returns when the server ends its answer. */
async function lines(answer, changed, state) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let first = true;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const complete = (rest + value).split("\n");
    rest = complete.pop();
    for (const line of complete.filter(Boolean)) {
      changed(JSON.parse(line), first);
      first = false;
      state(true);
    }
  }
}
