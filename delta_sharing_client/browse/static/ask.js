// Requests to the server on this machine. The key is in the part of the address after '#', and stays in this tab.

const STORED = "key";

function keyOf() {
  const found = /^#key=([0-9a-f]{64})$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(STORED, found[1]);
    history.replaceState(null, "", "/");
  }
  return sessionStorage.getItem(STORED) || "";
}

const key = keyOf();

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
  if (!response.ok) throw new Problem(told, told.field === "filter" ? values.filter : undefined);
  return told;
}
