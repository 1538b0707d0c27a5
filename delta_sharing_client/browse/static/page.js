// The page: the tree at the side, and the view of the item that was chosen in it.

import { ask } from "./ask.js";
import { showAsset } from "./files.js";
import { address, brief, comment, el, fill, moment, shown, shownLines, stop } from "./parts.js";
import { showQuery } from "./query.js";
import { showTable } from "./table.js";
import { Tree } from "./tree.js";

const view = document.getElementById("view");
const menu = document.getElementById("menu");
const KINDS = new Set(["table", "volume", "model", "skill"]);

const tree = new Tree(document.getElementById("tree"), document.getElementById("search"), document.getElementById("found"), (kind, path) => {
  const to = address(kind, path);
  if (location.hash === to) show();
  else location.hash = to;
});

function choosing(is) {
  document.body.classList.toggle("choosing", is);
  menu.setAttribute("aria-expanded", String(is));
}
menu.addEventListener("click", () => {
  choosing(!document.body.classList.contains("choosing"));
});
document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement?.tagName);
  if (event.key === "/" && !isTyping) {
    choosing(true);
    document.getElementById("search").focus();
    event.preventDefault();
  }
});

let welcome = null;
let table = null; // the table that was open last

function show() {
  let parts = [];
  try {
    parts = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    // Somebody typed this address.
  }
  const [kind, ...rest] = parts;
  const path = rest.slice(0, 3);
  stop(view);
  if (kind === "query") {
    document.title = "Query · Shared data";
    tree.mark(null);
    choosing(false);
    showQuery(view, table);
    return;
  }
  if (!KINDS.has(kind) || path.length < 3) {
    document.title = "Shared data";
    tree.mark(null);
    if (welcome) view.replaceChildren(...welcome());
    return;
  }
  choosing(false);
  document.title = `${brief(path[2])} · Shared data`;
  tree.mark(kind, path);
  view.scrollTop = 0;
  if (kind === "table") table = path;
  if (kind === "table") showTable(view, path, rest[3], (tab) => history.replaceState(null, "", address(kind, path, tab)));
  else showAsset(view, kind, path, rest.slice(3));
}

function begin() {
  fill(view, "Listing what is shared with you", async (signal) => {
    const told = await ask("start", {}, signal);
    document.getElementById("profile").textContent = shown(told.profile || "profile of DELTA_SHARING_PROFILE");
    tree.show(told.shares);
    welcome = () => start(told);
    if (!told.shares.length) return welcome();
    addEventListener("hashchange", show);
    if (location.hash.length > 1) {
      queueMicrotask(show);
      return null;
    }
    if (matchMedia("(max-width: 700px)").matches) choosing(true);
    return welcome();
  });
}

function start(told) {
  const expires = told.expires ? el("p", { class: "soft" }, `Your access ends ${moment(told.expires)}.`) : null;
  if (!told.shares.length) {
    return [el("h2", {}, "Nothing is shared with you yet"), el("p", {}, "The profile works, but the server lists no share for it. Ask the data provider to share something with this profile."), expires].filter(Boolean);
  }
  return [
    el("h2", {}, "What is shared with you"),
    ...told.shares.map((share) => el("section", {}, el("h3", {}, el("button", { type: "button", class: "link", onclick: () => { tree.openShare(share.name); choosing(true); } }, el("bdi", {}, brief(share.name)))), comment(share.comment))),
    el("p", { class: "soft" }, "Choose a table, volume, model or skill in the tree; '/' goes to the search, arrows move, Enter opens."),
    expires,
  ].filter(Boolean);
}

begin();
