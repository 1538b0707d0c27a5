// Downloads: the command writes the whole file, this page shows its progress, and the browser then fetches it.

import { ask } from "./ask.js";
import { brief, el, number, shown, shownLines, size, tell } from "./parts.js";

const tray = document.getElementById("tray");
const PAUSE = 250;

// Starts a download; the request `question` and its `values` describe it.
export async function download(question, values, label, signal) {
  const first = await ask(question, values, signal);
  const bar = el("progress", { "aria-label": `Progress of ${brief(first.name)}` });
  const told = el("span", { class: "how", role: "status" });
  const button = el("button", { type: "button" }, "Cancel");
  const line = el("div", { class: "download" }, el("bdi", { class: "name" }, brief(first.name)), label ? el("span", { class: "soft" }, shown(label)) : null, bar, told, button);
  tray.hidden = false;
  tray.append(line);
  line.scrollIntoView({ block: "nearest" });
  let isOver = false;
  const remove = () => {
    line.remove();
    tray.hidden = !tray.children.length;
  };
  const end = (text) => {
    isOver = true;
    bar.remove();
    told.textContent = text;
    button.textContent = "Close";
    button.onclick = remove;
    tell(`${brief(first.name)}: ${text}`);
  };
  button.onclick = async () => {
    button.disabled = true;
    try {
      await ask("cancel", { id: first.id });
    } catch {
      // The download has already ended.
    }
    button.disabled = false;
    end("Cancelled; its file was removed.");
  };
  for (let state = first; !isOver; ) {
    if (state.state === "ready") {
      take(state);
      end(`Handed to your browser${state.rows === null ? "" : `, ${number(state.rows)} rows`}.`);
    } else if (state.state === "failed") {
      line.classList.add("problem");
      end(shownLines(state.error));
    } else if (state.state === "ended") {
      end("Cancelled; its file was removed.");
    } else {
      show(state, bar, told);
      await new Promise((done) => setTimeout(done, PAUSE));
      try {
        if (!isOver) state = await ask("progress", { id: first.id });
      } catch (error) {
        if (!isOver) {
          line.classList.add("problem");
          end(shownLines(error.message));
        }
      }
    }
  }
}

function show(state, bar, told) {
  const parts = [];
  if (state.bytesInAll) {
    bar.max = state.bytesInAll;
    bar.value = Math.min(state.bytes, state.bytesInAll);
    parts.push(`${size(state.bytes)} of about ${size(state.bytesInAll)}`);
  } else {
    parts.push("waiting for the server");
  }
  if (state.rows !== null) parts.push(`${number(state.rows)}${state.rowsInAll === null ? "" : ` of ${number(state.rowsInAll)}`} rows`);
  told.textContent = parts.join(", ");
}

function take(state) {
  const link = el("a", { href: `/files/${encodeURIComponent(state.file)}`, download: state.name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
