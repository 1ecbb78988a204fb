"use strict";
// Shows the episodes of the JSON island. Every text goes through textContent; nothing is fetched, stored or evaluated.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const viewer = document.getElementById("viewer");
  if (!viewer) return;
  const SHAPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
  const state = { run: 0, at: 0, eye: "", words: "" };

  function make(tag, kind, text) {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    return node;
  }
  const add = (parent, ...children) => { for (const child of children) if (child) parent.append(child); return parent; };
  const after = (episode, agent) => (Object.hasOwn(episode.final, agent) ? episode.final[agent] : []);
  for (const run of data.runs) for (const episode of run.episodes) episode.search = JSON.stringify(episode).toLowerCase();
  const round = (value) => (Math.round(value * 1000) / 1000).toString().replace("-", "\u2212");
  const colour = (agents, agent) => "s" + (Math.max(0, agents.indexOf(agent)) % 8);

  function pretty(text) {
    const trimmed = text.trim();
    if (!/^[[{]/.test(trimmed)) return text;
    try { return JSON.stringify(JSON.parse(trimmed), null, 2); } catch { return text; }
  }

  function content(parts, kind) {
    const box = document.createDocumentFragment();
    for (const part of parts) {
      if (typeof part === "string") { if (part) box.append(make("div", kind, kind === "result" ? pretty(part) : part)); continue; }
      if (part.data && SHAPES.includes(part.type)) {
        const image = make("img", "picture");
        image.src = "data:" + part.type + ";base64," + part.data;
        image.alt = "image " + part.digest;
        box.append(image);
      } else box.append(make("div", "hint", "[image " + part.digest + ", not stored in this page]"));
    }
    return box;
  }

  function call(item) {
    const box = make("div", "call");
    if ("reason" in item) return add(box, make("b", "bad", "unreadable call"), make("div", "", item.reason), make("div", "body", item.text));
    add(box, make("b", "", item.name));
    const names = Object.keys(item.arguments);
    if (names.length) {
      const list = make("dl");
      for (const name of names) {
        const value = item.arguments[name];
        add(list, make("dt", "", name), make("dd", "", typeof value === "string" ? value : JSON.stringify(value, null, 1)));
      }
      box.append(list);
    }
    return box;
  }

  function message(item, own, kind) {
    const box = make("div", own ? "say act " + kind : "say seen");
    const who = item.sender === "tool" ? "result" + (item.call ? " of " + item.call : "") : item.sender;
    if (!own) box.append(make("span", "who", who));
    box.append(content(item.parts, item.sender === "tool" ? "result" : "body"));
    for (const one of item.calls) box.append(call(one));
    return box;
  }

  function acted(turn, kind) {
    const box = message({ sender: turn.agent, parts: [turn.text], calls: turn.calls }, true, kind);
    if (!turn.text && !turn.calls.length) box.append(make("div", "hint", "(said nothing)"));
    const chips = [];
    if (turn.legal && turn.parsed === null) box.append(make("div", "bad", "named none of: " + turn.legal.join(", ")));
    if (turn.parsed !== null && turn.parsed !== turn.text) chips.push("read as " + turn.parsed);
    for (const reply of turn.replies) {
      chips.push([reply.policy && reply.policy + " v" + reply.version, reply.tokens && reply.tokens + (reply.tokens === 1 ? " token" : " tokens"), reply.finish !== "stop" && reply.finish,
        reply.attempts && reply.attempts + " retries"].filter(Boolean).join(", "));
    }
    const line = chips.filter(Boolean).join(" \u00b7 ");
    if (line) box.append(make("div", "chips", line));
    return box;
  }

  function pay(entries) {
    const box = make("div", "cell pay");
    for (const entry of entries) {
      const line = make("div");
      add(line, make("b", entry.value < 0 ? "bad" : entry.value > 0 ? "good" : "", (entry.value > 0 ? "+" : "") + round(entry.value)), " " + entry.agent);
      if (entry.why) line.append(make("span", "why", entry.why));
      box.append(line);
    }
    return box;
  }

  function lanes(episode) {
    const agents = episode.agents.map((one) => one.name);
    const grid = make("div", "lanes");
    grid.style.gridTemplateColumns = "26px repeat(" + agents.length + ", minmax(0, 1fr)) minmax(110px, .35fr)";
    grid.append(make("div", "head", ""));
    for (const one of episode.agents) grid.append(add(make("div", "head " + colour(agents, one.name), one.name), make("small", "", one.plays)));
    grid.append(make("div", "head", "rewards"));
    const steps = [...new Set([...episode.turns.map((turn) => turn.step), ...episode.ledger.map((entry) => entry.step)])].sort((a, b) => a - b);
    const said = new Set(episode.turns.map((turn) => turn.agent + "\u0000" + turn.text));
    const heard = (item) => agents.includes(item.sender) && said.has(item.sender + "\u0000" + item.parts.join(""));  // stands in its speaker's lane
    for (const step of steps) {
      grid.append(make("div", "cell stepno", step < 0 ? "" : String(step)));
      for (const agent of agents) {
        const cell = make("div", "cell");
        for (const turn of episode.turns) {
          if (turn.step !== step || turn.agent !== agent) continue;
          for (const item of turn.observed) if (!heard(item)) cell.append(message(item, false));
          cell.append(acted(turn, colour(agents, agent)));
        }
        grid.append(cell);
      }
      grid.append(pay(episode.ledger.filter((entry) => entry.step === step)));
    }
    if (agents.some((agent) => after(episode, agent).some((item) => !heard(item)))) {
      grid.append(make("div", "cell stepno", "end"));
      for (const agent of agents) {
        const cell = make("div", "cell");
        for (const item of after(episode, agent)) if (!heard(item)) cell.append(message(item, false));
        grid.append(cell);
      }
      grid.append(make("div", "cell"));
    }
    return grid;
  }

  function view(episode, agent) {
    const kind = colour(episode.agents.map((one) => one.name), agent);
    const box = make("div", "private");
    for (const turn of episode.turns) {
      if (turn.agent !== agent) continue;
      for (const item of turn.observed) box.append(message(item, item.sender === agent, kind));
      box.append(acted(turn, kind));
    }
    for (const item of after(episode, agent)) box.append(message(item, item.sender === agent, kind));
    return box;
  }

  const shown = () => data.runs[state.run].episodes.map((episode, at) => [episode, at]).filter(([episode]) => !state.words || episode.search.includes(state.words));

  function score(episode) {
    return episode.agents.map((one) => round(one.total)).join(" / ");
  }

  function drawList() {
    const list = document.getElementById("list");
    list.replaceChildren();
    for (const [episode, at] of shown()) {
      const button = make("button");
      button.type = "button";
      button.dataset.at = String(at);
      add(button, make("span", "id", episode.task), make("span", "score", score(episode)));
      const bad = episode.end === "failed";
      const verdict = episode.success === true ? "success" : episode.success === false ? "no success" : "";
      add(button, make("span", "how" + (bad ? " bad" : ""), [verdict, episode.end, "seed " + (episode.seed.length > 8 ? episode.seed.slice(0, 6) + "\u2026" : episode.seed)].filter(Boolean).join(", ")));
      button.title = episode.id;
      button.addEventListener("click", () => open(at));
      list.append(add(make("li"), button));
    }
    if (!list.children.length) list.append(make("li", "hint", "no episode matches"));
    document.getElementById("note").textContent = data.runs[state.run].note;
    markCurrent(false);
  }

  function markCurrent(follow) {
    for (const button of document.querySelectorAll("#list button")) {
      const current = Number(button.dataset.at) === state.at;
      button.setAttribute("aria-current", String(current));
      if (current && follow) button.scrollIntoView({ block: "nearest" });
    }
  }

  function drawEpisode() {
    const box = document.getElementById("episode");
    box.replaceChildren();
    const episode = data.runs[state.run].episodes[state.at];
    if (!episode) return;
    box.append(make("h3", "", episode.id + " \u00b7 " + episode.scenario + " v" + episode.version));
    const line = episode.end + " \u00b7 " + episode.agents.map((one) => one.name + " " + round(one.total)).join(", ") + (episode.cut ? " \u00b7 " + episode.cut : "");
    box.append(make("p", episode.end === "failed" ? "bad" : "meta", line));
    if (episode.error) box.append(make("p", "bad", episode.error));
    const bar = make("div", "bar");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Whose view");
    for (const [name, label] of [["", "Everything, in lanes"], ...episode.agents.map((one) => [one.name, "What did " + one.name + " see?"])]) {
      const button = make("button", "", label);
      button.type = "button";
      button.setAttribute("aria-pressed", String(state.eye === name));
      button.addEventListener("click", () => { state.eye = name; drawEpisode(); });
      bar.append(button);
    }
    if (!episode.agents.some((one) => one.name === state.eye)) { state.eye = ""; bar.firstChild.setAttribute("aria-pressed", "true"); }
    box.append(bar, state.eye ? view(episode, state.eye) : lanes(episode));
  }

  function open(at) {
    state.at = at;
    history.replaceState(null, "", "#/r/" + state.run + "/e/" + at);
    markCurrent(true);
    drawEpisode();
  }

  function move(by) {
    const order = shown().map(([, at]) => at);
    if (!order.length) return;
    const here = order.indexOf(state.at);
    open(order[here < 0 ? 0 : Math.min(order.length - 1, Math.max(0, here + by))]);
    viewer.scrollIntoView({ block: "start" });
  }

  const pick = document.getElementById("pick");
  data.runs.forEach((run, at) => { const option = make("option", "", run.name); option.value = String(at); pick.append(option); });
  pick.hidden = data.runs.length < 2;
  pick.addEventListener("change", () => { state.run = Number(pick.value); state.eye = ""; drawList(); open(0); });
  const words = document.getElementById("words");
  words.addEventListener("input", () => { state.words = words.value.trim().toLowerCase(); drawList(); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === words || event.target === pick) { if (event.key === "Escape") event.target.blur(); return; }
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "v") {
      const eyes = ["", ...data.runs[state.run].episodes[state.at].agents.map((one) => one.name)];
      state.eye = eyes[(eyes.indexOf(state.eye) + 1) % eyes.length];
      drawEpisode();
    } else if (event.key === "/") { event.preventDefault(); words.focus(); }
  });

  const link = /^#\/r\/(\d+)\/e\/(\d+)$/.exec(location.hash);
  if (link && data.runs[Number(link[1])]) {
    state.run = Number(link[1]);
    state.at = Math.min(Number(link[2]), data.runs[state.run].episodes.length - 1);
    pick.value = link[1];
  }
  drawList();
  drawEpisode();
})();
