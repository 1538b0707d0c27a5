// The tree of shared items. Only visible rows are in the page, so that ten thousand tables do not slow it down.

import { ask } from "./ask.js";
import { address, brief, count, el, hint, isElsewhere, shown, tell } from "./parts.js";

const LETTERS = { table: "T", volume: "V", model: "M", skill: "S" };
const LEAST = 2; // characters of a search in columns and comments
const MOST_TABLES = 300; // so many are described without a further click
const MORE = 8; // rows above and below the visible ones

function keyOf(node) {
  return JSON.stringify([node.kind, ...node.path]);
}

class Node {
  constructor(kind, path, parent) {
    this.kind = kind;
    this.path = path;
    this.name = path[path.length - 1];
    this.parent = parent;
    this.children = null;
    this.isOpen = false;
    this.isWhole = false; // a share whose schemas have all been listed
    this.state = "";
  }
  get isFolder() {
    return this.kind === "share" || this.kind === "schema";
  }
  get level() {
    return this.parent ? this.parent.level + 1 : 1;
  }
}

export class Tree {
  constructor(place, search, found, onOpen) {
    this.place = place;
    this.found = found;
    this.search = search;
    this.onOpen = onOpen;
    this.shares = [];
    this.visible = [];
    this.rows = new Map();
    this.here = null; // the row with the keyboard focus
    this.opened = ""; // the asset that is shown
    this.words = "";
    this.reasons = new Map(); // why the search has found an asset whose name has not the words
    this.space = el("div", { class: "space", role: "presentation" });
    place.replaceChildren(this.space);
    place.addEventListener("scroll", () => this.draw(), { passive: true });
    place.addEventListener("keydown", (event) => this.onKey(event));
    place.addEventListener("focus", () => this.draw());
    place.addEventListener("blur", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(place);
    let timer;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.filter(), 150);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        place.focus();
        const first = this.visible.find((one) => !one.isFolder) || this.visible[0];
        if (first) this.go(first);
        event.preventDefault();
      } else if (event.key === "Escape") {
        search.value = "";
        this.filter();
      }
    });
  }

  show(shares) {
    this.shares = shares.map((share) => new Node("share", [share.name], null));
    this.update();
    if (this.shares.length === 1) this.toggle(this.shares[0]);
  }

  // === What is listed ===

  // Lists the content of a node, once.
  list(node) {
    if (node.children) return Promise.resolve();
    if (!node.listing) node.listing = this.ask(node).finally(() => { node.listing = null; });
    return node.listing;
  }

  async ask(node) {
    node.state = "…";
    this.draw();
    try {
      if (node.kind === "share") {
        const { schemas } = await ask("schemas", { share: node.name });
        if (!node.children) node.children = schemas.map((name) => new Node("schema", [node.name, name], node));
      } else {
        const [share, schema] = node.path;
        const { assets, inAll } = await ask("assets", { share, schema });
        this.put(node, assets, inAll);
      }
      node.state = node.children.length ? "" : "empty";
    } catch (error) {
      node.state = error.message;
    }
    this.update();
    const only = node.kind === "share" && node.children?.length === 1 ? node.children[0] : null;
    if (only && !only.children) this.toggle(only);
  }

  put(node, assets, inAll) {
    node.children = assets.map(([kind, schema, name]) => new Node(kind, [node.path[0], node.path[1], name], node));
    if (inAll > assets.length) tell(`Only the first ${count(assets.length, "name")} of ${inAll} are listed.`);
  }

  async listAll(share) {
    if (share.isWhole) return;
    const { schemas, assets } = await ask("assets", { share: share.name });
    const bySchema = new Map(schemas.map((name) => [name, []]));
    for (const one of assets) (bySchema.get(one[1]) || bySchema.set(one[1], []).get(one[1])).push(one);
    const before = new Map((share.children || []).map((node) => [node.name, node]));
    share.children = [...bySchema].map(([name, list]) => {
      const node = before.get(name) || new Node("schema", [share.name, name], share);
      if (!node.children) this.put(node, list, list.length);
      node.state = node.children.length ? "" : "empty";
      return node;
    });
    share.isWhole = true;
    share.state = share.children.length ? "" : "empty";
  }

  async filter() {
    this.control?.abort();
    this.words = this.search.value.trim().toLowerCase();
    this.reasons = new Map();
    this.place.scrollTop = 0;
    this.update();
    const words = this.words;
    if (!words) return;
    const failed = [];
    for (const share of this.shares) {
      if (share.isWhole) continue;
      this.found.textContent = `Looking through ${shown(share.name)} …`;
      try {
        await this.listAll(share);
      } catch (error) {
        failed.push(`${shown(share.name)}: ${error.message}`);
      }
      if (this.words !== words) return;
      this.update();
    }
    if (failed.length) this.found.textContent = failed.join(" ");
    if (words.length < LEAST) return;
    const tables = this.shares.flatMap((share) => (share.children || []).flatMap((schema) => (schema.children || []).filter((one) => one.kind === "table"))).length;
    if (tables <= MOST_TABLES || this.isDeep) await this.deepen();
    else this.offer("Search columns and comments, too");
  }

  offer(text) {
    this.found.append(" ", el("button", { type: "button", class: "link", onclick: () => { this.isDeep = true; this.deepen(); } }, text));
  }

  // Adds what has the words in comments and columns. The server describes each table once.
  async deepen() {
    const words = this.words;
    const names = this.found.textContent = this.matches ? `${count(this.matches, "name")} found; searching columns and comments …` : "Searching columns and comments …";
    this.control = new AbortController();
    try {
      const { found, left, failed, reason } = await ask("search", { text: words }, this.control.signal);
      if (this.words !== words) return;
      this.reasons = new Map(found.map(([kind, path, columns]) => [JSON.stringify([kind, ...path]), columns.map(brief).join(", ")]));
      this.update();
      const others = failed ? ` The columns of ${count(failed, "table")} were not searched: ${shown(reason)}` : "";
      this.found.textContent = (this.matches ? `${count(this.matches, "result")} in names, columns and comments.` : "No name, column or comment has this text.") + others;
      if (left) this.offer(`Search the columns of ${count(left, "more table", "more tables")}`);
    } catch (error) {
      if (this.words === words && this.found.textContent === names) this.found.textContent = shown(error.message);
    }
  }

  // === What is visible ===

  update() {
    this.visible = [];
    let matches = 0;
    const words = this.words;
    const add = (node) => {
      if (!words) {
        this.visible.push(node);
        if (node.isOpen) for (const child of node.children || []) add(child);
        return;
      }
      const at = this.visible.length;
      if (node.isFolder) {
        this.visible.push(node);
        for (const child of node.children || []) add(child);
        const isNamed = node.name.toLowerCase().includes(words);
        if (this.visible.length === at + 1 && !isNamed) this.visible.pop();
      } else if (this.isNamed(node) || this.reasons.has(keyOf(node))) {
        matches += 1;
        this.visible.push(node);
      }
    };
    this.shares.forEach(add);
    this.matches = matches;
    this.found.textContent = words ? (matches ? `${count(matches, "name")} found` : "No name has this text.") : "";
    if (this.here && !this.visible.includes(this.here)) this.here = null;
    this.draw();
  }

  isNamed(node) {
    return node.path.join(".").toLowerCase().includes(this.words);
  }

  height() {
    return parseFloat(getComputedStyle(this.place).getPropertyValue("--row")) || 28;
  }

  draw() {
    const height = this.height();
    const first = Math.max(0, Math.floor(this.place.scrollTop / height) - MORE);
    const last = Math.min(this.visible.length, Math.ceil((this.place.scrollTop + this.place.clientHeight) / height) + MORE);
    this.space.style.height = `${this.visible.length * height}px`;
    const rows = [];
    const kept = new Map();
    for (let at = first; at < last; at += 1) {
      const node = this.visible[at];
      const looks = [at, height, node.state, this.words !== "", node.isOpen, this.words ? this.reasons.get(keyOf(node)) : ""].join("|");
      const before = this.rows.get(node);
      const row = before?.looks === looks ? before.row : this.row(node, at, height);
      row.classList.toggle("here", node === this.here);
      row.classList.toggle("open", this.isOpened(node));
      row.setAttribute("aria-selected", String(this.isOpened(node)));
      kept.set(node, { looks, row });
      rows.push(row);
    }
    this.rows = kept;
    // A row that is removed while a mouse button is down gets no click.
    const now = this.space.children;
    if (rows.length !== now.length || rows.some((row, at) => row !== now[at])) this.space.replaceChildren(...rows);
    if (this.here && document.activeElement === this.place) this.place.setAttribute("aria-activedescendant", `node-${this.visible.indexOf(this.here)}`);
    else this.place.removeAttribute("aria-activedescendant");
  }

  row(node, at, height) {
    const isOpen = node.isFolder ? (this.words ? true : node.isOpen) : null;
    const siblings = node.parent ? node.parent.children : this.shares;
    const why = this.words && this.reasons.has(keyOf(node)) ? this.reasons.get(keyOf(node)) || (this.isNamed(node) ? "" : "in the comment") : "";
    const row = el(
      node.isFolder ? "div" : "a",
      {
        id: `node-${at}`,
        role: "treeitem",
        class: `node ${node.kind}`,
        "aria-level": node.level,
        "aria-setsize": siblings.length,
        "aria-posinset": siblings.length > 500 ? null : siblings.indexOf(node) + 1,
        "aria-expanded": isOpen === null ? null : String(isOpen),
        title: [hint(node.path.join(".")), why].filter(Boolean).join("\n"),
        href: node.isFolder ? null : address(node.kind, node.path),
        tabindex: node.isFolder ? null : "-1",
        onclick: (event) => {
          if (!node.isFolder && isElsewhere(event)) return;
          event.preventDefault();
          this.here = node;
          this.act(node);
        },
      },
      el("span", { class: node.isFolder ? (isOpen ? "arrow open" : "arrow shut") : "arrow", "aria-hidden": "true" }),
      LETTERS[node.kind] ? el("span", { class: `kind ${node.kind}`, "data-letter": LETTERS[node.kind], "aria-hidden": "true" }) : null,
      el("bdi", { class: "name" }, brief(node.name)),
      el("span", { class: "unseen" }, `, ${node.kind}`),
      why ? el("span", { class: "why" }, why) : null,
      node.state === "…" ? el("span", { class: "soft" }, "…") : null,
      node.state === "empty" ? el("span", { class: "soft" }, node.kind === "share" ? "no schemas" : "empty") : null,
      node.state && node.state !== "…" && node.state !== "empty" ? el("span", { class: "problem-mark", title: shown(node.state) }, "failed; click to try again") : null
    );
    row.style.top = `${at * height}px`;
    row.style.paddingLeft = `${6 + (node.level - 1) * 14}px`;
    return row;
  }

  isOpened(node) {
    return !node.isFolder && this.opened === keyOf(node);
  }

  // === What a person does ===

  act(node) {
    if (node.isFolder) this.toggle(node);
    else this.onOpen(node.kind, node.path);
    this.draw();
  }

  toggle(node) {
    const hasFailed = node.state && node.state !== "…" && node.state !== "empty";
    node.isOpen = hasFailed ? true : !node.isOpen;
    if (node.isOpen && hasFailed && !node.children) {
      const reason = node.state;
      node.state = "";
      tell(reason);
    }
    this.update();
    if (node.isOpen) this.list(node);
  }

  openShare(name) {
    const node = this.shares.find((one) => one.name === name);
    if (!node) return;
    if (!node.isOpen) this.toggle(node);
    this.place.focus();
    this.go(node);
  }

  // Marks the asset that is shown, and opens the tree down to it.
  async mark(kind, path) {
    this.opened = kind ? JSON.stringify([kind, ...path]) : "";
    this.draw();
    const mine = this.opened;
    let inside = this.shares;
    for (const name of kind ? path.slice(0, 2) : []) {
      const node = inside.find((one) => one.name === name);
      if (!node) return;
      if (!node.isOpen) {
        node.isOpen = true;
        this.update();
      }
      await this.list(node);
      if (this.opened !== mine) return;
      inside = node.children || [];
    }
    const node = kind && inside.find((one) => this.isOpened(one));
    if (node && this.visible.includes(node) && node !== this.here) this.go(node);
  }

  go(node) {
    this.here = node;
    const height = this.height();
    const top = this.visible.indexOf(node) * height;
    if (top < this.place.scrollTop) this.place.scrollTop = top;
    if (top + height > this.place.scrollTop + this.place.clientHeight) this.place.scrollTop = top + height - this.place.clientHeight;
    this.draw();
  }

  onKey(event) {
    const list = this.visible;
    if (!list.length || (event.ctrlKey && event.key !== "Enter") || event.metaKey || event.altKey) return;
    const at = list.indexOf(this.here);
    const page = Math.max(1, Math.floor(this.place.clientHeight / this.height()) - 1);
    const node = this.here;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -list.length, End: list.length };
    if (event.key in steps) {
      this.go(list[Math.max(0, Math.min(list.length - 1, (at < 0 ? -1 : at) + steps[event.key]))]);
    } else if (event.key === "ArrowRight" && node?.isFolder) {
      if (!node.isOpen && !this.words) this.toggle(node);
      else if (list[at + 1]?.parent === node) this.go(list[at + 1]);
    } else if (event.key === "ArrowLeft" && node) {
      if (node.isFolder && node.isOpen && !this.words) this.toggle(node);
      else if (node.parent) this.go(node.parent);
    } else if (event.key === "Enter" && event.ctrlKey && node && !node.isFolder) {
      open(address(node.kind, node.path), "_blank", "noopener");
    } else if ((event.key === "Enter" || event.key === " ") && node) {
      this.act(node);
    } else {
      return;
    }
    event.preventDefault();
  }
}
