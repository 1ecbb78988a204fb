// One episode: its verdict with the reasons, then its lanes, or what one agent saw.
const after = (episode, agent) => (Object.hasOwn(episode.final, agent) ? episode.final[agent] : []);
const colour = (agents, agent) => "s" + (Math.max(0, agents.indexOf(agent)) % 8);
const namesOf = (episode) => episode.agents.map((one) => one.name);

const beside = [];  // what a served page puts below an act: functions of episode and turn

function acted(episode, turn, kind, name) {
  const box = message({ sender: turn.agent, parts: [turn.text], calls: turn.calls || [] }, true, kind, false, []);
  const marks = marksAt(episode, turn.step).filter((mark) => !mark.agent || mark.agent === turn.agent);
  if (marks.length) { box.classList.add("marked"); box.dataset.marked = String(turn.step); }
  box.prepend(make("span", "speaker", name), ...marks.map((one) => make("div", "bad", one.mark)));
  if (!turn.text && !turn.calls) box.append(make("div", "hint", "(said nothing)"));
  if (turn.illegal) box.append(make("div", "bad", "named none of: " + turn.legal.join(", ")));
  if (turn.shortened) box.append(make("div", "bad", turn.shortened + " bytes were cut off by run.max_said"));
  const chips = [turn.parsed !== null && turn.parsed !== turn.text && "read as " + turn.parsed, ...((turn.replies || []).length > 1 ? [] : (turn.replies || []).map(replyLine))];
  const line = chips.filter(Boolean).join(" \u00b7 ");
  return add(box, line ? make("div", "chips", line) : null, drafts(turn), valueOf(episode, turn), ...marks.filter((one) => one.fork.length).map(wonFork), ...beside.map((more) => more(episode, turn)));
}

// Agents by what is said of them, in order; of more than a few that share it their number, and the names on hover.
function alike(pairs) {
  const named = new Map();
  for (const [agent, words] of pairs) named.set(words, [...(named.get(words) || []), agent]);
  return [...named].map(([words, agents]) => ({ words, title: agents.join(", "), name: agents.length > FEW ? agents.length + " agents" : agents.join(", ") }));
}

function pay(entries, many) {
  const box = make("div", "cell pay");
  const key = (entry) => JSON.stringify([entry.value, entry.why]);
  for (const { words, name, title } of alike(entries.map((entry, at) => [entry.agent, key(entry) + (many ? "" : " " + at)]))) {
    const entry = entries.find((one) => words.startsWith(key(one))), value = Number(entry.value);
    const line = add(make("div"), make("b", value < 0 ? "bad" : value > 0 ? "good" : "", (value > 0 ? "+" : "") + minus(entry.value)), " " + name);
    if (name !== title) line.title = title;
    if (entry.why) line.append(make("span", "why", entry.why));
    box.append(line);
  }
  return box;
}

// The number of a step, which is also its permalink.
function stepCell(step, link) {
  const cell = make("div", "cell stepno");
  if (step < 0) return cell;
  const anchor = make("a", "", String(step));
  anchor.href = link + "/t/" + step;
  anchor.title = "link to this step";
  return add(cell, anchor);
}

function lanes(episode, link) {
  const agents = namesOf(episode), many = agents.length > LANES;
  const grid = make("div", many ? "lanes many" : "lanes");
  if (!many) grid.style.gridTemplateColumns = "26px repeat(" + agents.length + ", minmax(0, 1fr)) minmax(110px, .35fr)";
  grid.append(make("div", "head", ""));
  for (const one of episode.agents) grid.append(add(make("div", "head " + colour(agents, one.name), one.name), make("small", "", one.plays)));
  grid.append(make("div", "head", "rewards"));
  const steps = [...new Set([...episode.turns.map((turn) => turn.step), ...episode.ledger.map((entry) => entry.step)])].sort((a, b) => a - b);
  const said = new Set(episode.turns.map((turn) => turn.agent + "\u0000" + turn.text));
  const heard = (item) => agents.includes(item.sender) && said.has(item.sender + "\u0000" + item.parts.join(""));  // stands in its speaker's lane
  const begun = new Set();
  const showing = (agent, items) => {
    const shown = items.filter((item) => !heard(item)).map((item) => message(item, false, "", !begun.has(agent), agents));
    begun.add(agent);
    if (shown.length) shown[0].prepend(make("span", "speaker", "shown to " + agent));
    return shown;
  };
  for (const step of steps) {
    const number = stepCell(step, link);
    number.dataset.step = String(step);
    if (marksAt(episode, step).length) number.classList.add("marked");
    grid.append(number);
    for (const agent of many ? agents.filter((one) => episode.turns.some((turn) => turn.step === step && turn.agent === one)) : agents) {
      const cell = make("div", "cell " + colour(agents, agent));
      for (const turn of episode.turns) {
        if (turn.step === step && turn.agent === agent) add(cell, ...showing(agent, turn.observed), acted(episode, turn, colour(agents, agent), agent));
      }
      grid.append(cell);
    }
    const paid = episode.ledger.filter((entry) => entry.step === step);
    if (paid.length || !many) grid.append(pay(paid, many));
  }
  if (agents.some((agent) => after(episode, agent).some((item) => !heard(item)))) {
    grid.append(make("div", "cell stepno", "end"));
    for (const agent of agents) grid.append(add(make("div", "cell " + colour(agents, agent)), ...showing(agent, after(episode, agent))));
    grid.append(make("div", "cell"));
  }
  return grid;
}

function view(episode, agent, link) {
  const agents = namesOf(episode), kind = colour(agents, agent);
  const box = make("div", "private");
  let first = true;
  for (const turn of episode.turns) {
    if (turn.agent !== agent) continue;
    const step = stepCell(turn.step, link);
    step.dataset.step = String(turn.step);
    box.append(step);
    for (const item of turn.observed) box.append(message(item, item.sender === agent, kind, first, agents));
    box.append(acted(episode, turn, kind, agent));
    first = false;
  }
  for (const item of after(episode, agent)) box.append(message(item, item.sender === agent, kind, first, agents));
  return box;
}

// Verdict and cause, how it ended, what each agent was paid and for what, error; all else that is known of it is folded.
function verdict(episode, link) {
  const kinds = episode.verdict || episode.kinds;
  const box = add(make("div", "verdict " + kinds[0]), ...reasons(episode, link));
  const line = add(make("p", "first"), ...kinds.map((kind) => make("b", "badge " + kind, kind)));
  for (const cause of episode.reasons || episode.causes) line.append(make("span", "cause", cause));
  box.append(line);
  if (episode.error) box.append(make("p", "bad", episode.error));
  const list = make("dl", "facts");
  const row = (name, text) => list.append(add(make("div"), make("dt", "", name), make("dd", "", text)));
  row("end", episode.end + (episode.cut ? " (" + episode.cut + ")" : ""));
  const paid = (one) => one.paid.map(([why, value]) => minus(value) + (why ? " " + why : "")).join(", ");
  const returns = episode.agents.map((one) => [one.name, minus(one.total) + (paid(one) ? " = " + paid(one) : "")]);
  const value = ([name]) => Number(episode.agents.find((one) => one.name === name).total);
  // of many, those who have most and least, and whoever has the same
  const order = returns.length > MANY ? returns.slice().sort((a, b) => value(b) - value(a)) : returns;
  const rows = returns.length > MANY ? alike(order) : order.map(([name, words]) => ({ name, words, title: name }));
  const ends = rows.length > MANY ? [...rows.slice(0, MANY / 2), null, ...rows.slice(-MANY / 2)] : rows;
  for (const one of ends) {
    if (one) row("return " + one.name, one.words);
    else row("", "\u2026 " + (rows.length - MANY) + " between them");
  }
  return add(box, list, measured(episode));
}

// Its measures, labels and seed, in a grid; open for the next play, too, where it was opened.
function measured(episode) {
  const grid = make("dl", "grid");
  const pairs = [...episode.measures.map(([name, value]) => [name, minus(value)]), ...episode.labels.map((label) => label.split(/: (.*)/s)), ["seed", episode.seed]];
  for (const [name, words] of pairs) grid.append(add(make("div"), make("dt", "", name), make("dd", "", words)));
  const count = (list, word) => list.length && list.length + " " + word + (list.length > 1 ? "s" : "");
  const words = [count(episode.measures, "measure"), count(episode.labels, "label"), "seed"].filter(Boolean);
  const box = add(make("details"), make("summary", "", words.join(", ")), grid);
  box.open = state.measured;
  box.addEventListener("toggle", () => { state.measured = box.open; });
  return box;
}

// Why a lost play was lost: sentences that begin with the way to their step, whose card is marked.
const marksAt = (episode, step) => (episode.why || []).filter((one) => one.step === step && one.mark);
function reasons(episode, link) {
  return (episode.why || []).map((one) => {
    const head = make(one.step === null ? "b" : "a", "", one.head);
    if (one.step !== null) head.href = link + "/t/" + one.step;
    return add(make("p", "reason"), head, one.rest);
  });
}

function wonFork(one) {
  const acts = one.fork.map(([step, agent, text]) => add(make("div"), make("span", "hint", step + " "), make("b", "", agent), " " + text));
  return add(make("details", "won-fork"), make("summary", "", "a fork from here that is won"), ...acts);
}

// What gem-ma explain found: a bar beside each act, under the condition that is chosen; tables of messages and agents.
const conditionOf = (episode) => episode.values.find((one) => one.name === state.condition) || episode.values[0];
const minuses = (text) => text.replace(/-(?=\d)/g, "\u2212");
function valueOf(episode, turn) {
  const value = episode.values && conditionOf(episode).turns.find((one) => one.step === turn.step && one.agent === turn.agent);
  if (!value) return null;
  const box = make("div", value.sure ? "worth" : "worth unsure");
  if (value.bar) {
    const draw = (kind, places) => {
      const shape = document.createElementNS("http://www.w3.org/2000/svg", kind);
      for (const [name, place] of Object.entries(places)) shape.setAttribute(name, String(place));
      return shape;
    };
    const [low, mean, high] = value.bar.map((place) => 50 * place);
    const picture = draw("svg", { viewBox: "-52 0 104 14", "aria-hidden": "true" });  // the words beside it say the same
    picture.append(draw("rect", { x: Math.min(0, mean), y: 3, width: Math.abs(mean), height: 8 }), draw("path", { d: "M0 0V14M" + low + " 7H" + high + "M" + low + " 4V10M" + high + " 4V10" }));
    box.append(picture);
  }
  return add(box, make("span", "", (value.bar ? "value " : "") + minuses(value.text)));
}
function foundBox(episode) {
  const box = make("div", "found");
  if (episode.values) {
    const bar = add(make("div", "bar"), make("span", "hint", "value of each act, 95 % interval:"));
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Value of each act");
    for (const one of episode.values) {
      const button = make("button", "", one.name);
      button.type = "button";
      button.setAttribute("aria-pressed", String(one === conditionOf(episode)));
      button.addEventListener("click", () => { state.condition = one.name; drawEpisode(); document.querySelector('.found [aria-pressed="true"]').focus(); });
      bar.append(button);
    }
    box.append(bar);
  }
  for (const one of episode.tables || []) {
    const table = make("table", "numbers"), head = make("tr"), scroll = make("div", "scroll");
    const headed = (scope, words) => { const cell = make("th", "", words); cell.scope = scope; return cell; };
    table.append(add(make("thead"), add(head, ...one.columns.map((name) => headed("col", name)))));
    table.append(add(make("tbody"), ...one.rows.map((row) => add(make("tr"), ...row.map((words, at) => (at ? make("td", "", minuses(words)) : headed("row", words)))))));
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", one.caption);
    box.append(add(make("details"), make("summary", "", one.caption), add(scroll, table)));
  }
  return box.firstChild && box;
}
