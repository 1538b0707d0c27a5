// Requests to the server on this machine. The key is in the part of the address after '#', and stays in tabs of this page.

const STORED = "key";
const PATIENCE = 1000;

// A tab that a link opened has no key: it asks the other tabs. Only pages of this origin hear that, and nothing is kept.
const tabs = new BroadcastChannel("key");
let key = sessionStorage.getItem(STORED) || "";
let onKey = () => {};

function keep(found) {
  key = found;
  sessionStorage.setItem(STORED, found);
  onKey();
}

tabs.onmessage = ({ data }) => {
  if (data.key && (data.isNew || !key)) keep(data.key);
  else if (!data.key && key) tabs.postMessage({ key });
};

const given = /^#key=([0-9a-f]{64})$/.exec(location.hash);
if (given) {
  history.replaceState(null, "", "/");
  keep(given[1]);
  // The command may have been started again: older tabs need this key, too.
  tabs.postMessage({ key, isNew: true });
}

async function findKey() {
  if (key) return;
  await new Promise((done) => {
    onKey = done;
    setTimeout(done, PATIENCE);
    tabs.postMessage({});
  });
}

export class Problem extends Error {
  constructor(told, typed) {
    super(told.error || "The response has no reason.");
    this.kind = told.kind;
    this.field = told.field;
    this.span = told.span;
    this.typed = typed;
  }
}

const GONE = "The command 'delta-sharing browse' has ended. Start it again, and open the address that it prints.";

export async function ask(question, values = {}, signal = undefined) {
  let response, told;
  await findKey();
  try {
    response = await fetch(`/api/${question}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Delta-Sharing-Key": key },
      body: JSON.stringify(values),
      signal,
    });
    const text = await response.text();
    told = response.headers.get("Content-Type").startsWith("application/json") ? JSON.parse(text) : { error: text.trim() };
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ error: GONE });
  }
  if (response.status === 401) {
    // It is of an earlier run, and no other tab should get it.
    key = "";
    sessionStorage.removeItem(STORED);
  }
  if (!response.ok) throw new Problem(told, told.field === "filter" ? values.filter : undefined);
  return told;
}
