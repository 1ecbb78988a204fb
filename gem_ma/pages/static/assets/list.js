// The list of episodes with its chips and search, the keys, and the links to an episode or to one of its steps.
const data = JSON.parse(document.getElementById("data").textContent);
const viewer = document.getElementById("viewer");
if (!viewer) return;
viewer.hidden = false;  // without scripts it would be a search that finds nothing
const KEYS = [["j", "next episode of the list"], ["k", "previous episode"], ["n", "next lost or failed episode"], ["p", "previous lost or failed one"],
  ["v", "what the next agent saw; then the lanes again"], ["/", "search"], ["?", "these keys"], ["Esc", "leaves the search, closes this"]];
const KINDS = ["lost", "failed", "cut", "excluded", "won", "ended", "fork"];
const state = { run: 0, at: 0, eye: "", condition: "", measured: false, words: [], chip: "", most: 300 };
const $ = (id) => document.getElementById(id);
const run = () => data.runs[state.run];
const isLost = (episode) => episode.kinds.includes("lost") || episode.kinds.includes("failed");
const encoded = (text) => { try { return encodeURIComponent(text); } catch { return encodeURIComponent(text.replace(/[\ud800-\udfff]/g, "?")); } };  // half a letter
// Bytes of a folder's name that are not letters, and control characters, arrive in an address as one of these.
const plain = (text) => text.replace(/[\p{Cs}\p{Cc}\ufffd]/gu, "?");
const linkOf = (episode) => "#/r/" + encoded(run().name) + "/e/" + encoded(episode.key);
const MANY = 8, LANES = 6, FEW = 4;  // more agents than these share rows, lanes, a number
function score(episode) {
  const totals = episode.agents.map((one) => Number(one.total));
  if (totals.length <= FEW) return episode.agents.map((one) => minus(one.total)).join(" / ");
  const mean = totals.reduce((sum, one) => sum + one, 0) / totals.length;
  return minus(String(Number(mean.toPrecision(3)))) + " a head";
}

// Every word that the page shows of an episode: the list, the verdict, the talk.
function wordsOf(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(wordsOf).join(" ");
  if (value && typeof value === "object") return Object.entries(value).map(([key, item]) => (key === "data" || key === "key" ? "" : wordsOf(item))).join(" ");
  return value === null || value === undefined || typeof value === "boolean" ? "" : String(value);
}
// A seed tells plays of one task apart, and says nothing else: it stands on hover, but where all are of one task.
const tasks = data.runs.map((one) => new Set(one.episodes.map((episode) => episode.task)).size);
const taskOf = (episode) => (tasks[state.run] < 2 && episode.step ? "step " + episode.step : episode.task);
const verdictOf = (episode) => (episode.fork ? episode.fork.came : episode.kinds).join(", ");
let shared = new Set();  // causes of every lost play of the list: their chips say so
function entry(episode) {
  const seed = tasks[state.run] > 1 ? "" : "seed " + (episode.seed.length > 8 ? episode.seed.slice(0, 6) + "\u2026" : episode.seed);
  const told = episode.causes.filter((cause) => !shared.has(cause));
  return [...told, episode.kinds.includes("cut") || episode.end !== "terminated" ? episode.end : "", episode.weights, seed].filter(Boolean).join(", ");
}
function readable(episode) {
  const rest = { ...episode, turns: (episode.turns || []).map((turn) => ({ ...turn, replies: (turn.replies || []).map((reply) => [reply, replyLine(reply)]) })) };
  episode.search = [episode.id, score(episode), verdictOf(episode), entry(episode), episode.step && "step=" + episode.step, episode.weights && "weights=" + episode.weights, episode.key, episode.key.replace(/~/g, " "), "seed " + episode.seed, wordsOf(rest), JSON.stringify(episode.key)].join(" ").toLowerCase();
}
for (const one of data.runs) one.episodes.forEach(readable);
const SHOWN = 300;  // entries of the list at once: a browser lays out thousands of them slowly

// A fork is not a play of the run: it is found under its own chip, and counted there alone.
const chipsOf = (episode) => (episode.fork ? episode.kinds : ["", ...episode.kinds, ...episode.causes]);
// `step=4` is a word of its own, or it would find step 40.
const holds = (text, word) => (/^(step|weights)=/.test(word) ? (" " + text + " ").includes(" " + word + " ") : text.includes(word));
const among = () => run().episodes.filter((episode) => Boolean(episode.fork) === (state.chip === "fork"));
const shown = () => run().episodes.map((episode, at) => [episode, at]).filter(([episode]) => chipsOf(episode).includes(state.chip) && state.words.every((word) => holds(episode.search, word)));

function drawChips() {
  const counts = new Map();
  for (const episode of run().episodes) for (const chip of chipsOf(episode)) counts.set(chip, (counts.get(chip) || 0) + 1);
  for (const [chip, count] of Object.entries(run().counts || {})) counts.set(chip, Math.max(count, counts.get(chip) || 0));
  const causes = [...counts.keys()].filter((chip) => chip && !KINDS.includes(chip)).sort((a, b) => counts.get(b) - counts.get(a) || a.localeCompare(b));
  const box = $("chips");
  box.replaceChildren();
  for (const chip of ["", ...KINDS.filter((kind) => counts.has(kind)), ...causes]) {
    const there = counts.get(chip) || 0, total = run().totals[chip];
    const button = make("button", "chip " + (KINDS.includes(chip) ? chip : ""), (chip || "all") + " " + there + (total > there ? " of " + total : ""));
    button.type = "button";
    button.dataset.chip = chip;
    button.setAttribute("aria-pressed", String(state.chip === chip));
    button.addEventListener("click", () => { state.chip = state.chip === chip ? "" : chip; drawChips(); drawList(); openFirst(); lookFurther(); box.querySelector('[aria-pressed="true"]').focus(); });
    box.append(button);
  }
  const steps = run().steps;
  if (!steps) return;
  const choice = make("select");
  choice.setAttribute("aria-label", "Step of the training");
  choice.append(new Option("every step", ""), ...Array.from({ length: steps }, (_, at) => new Option("step " + (at + 1), "step=" + (at + 1))));
  choice.value = state.words.find((word) => word.startsWith("step=")) || "";
  choice.addEventListener("change", () => {
    search.value = [choice.value, ...search.value.split(/\s+/).filter((word) => word && !word.startsWith("step="))].join(" ").trim();
    search.dispatchEvent(new Event("input"));
  });
  box.append(choice);
}

function drawList() {
  const list = $("list"), found = shown(), lost = among().filter(isLost);
  shared = new Set(lost.length > 1 ? lost[0].causes.filter((cause) => lost.every((one) => one.causes.includes(cause))) : []);
  list.replaceChildren();
  for (const [episode, at] of found.slice(0, state.most)) {
    const button = make("button");
    button.type = "button";
    button.dataset.at = String(at);
    const how = add(make("span", "how"), make("span", episode.kinds[0], verdictOf(episode)), entry(episode) && " " + entry(episode));
    add(button, make("span", "id", taskOf(episode)), make("span", "score", score(episode)), how);
    button.title = episode.id;
    button.addEventListener("click", () => open(at));
    list.append(add(make("li"), button));
  }
  const all = Math.max(found.length, run().matching || (state.chip || state.words.length ? 0 : run().count) || 0);
  if (!all) list.append(make("li", "hint", "no episode matches"));
  if (all > state.most) {
    const more = make("button", "more", "show " + Math.min(SHOWN, all - state.most) + " more of " + all);
    more.type = "button";
    more.addEventListener("click", () => { state.most += SHOWN; drawList(); if (all > found.length) lookFurther(); });
    list.append(add(make("li"), more));
  }
  $("count").textContent = state.chip || state.words.length ? all + " of " + Math.max(among().length, run().count || 0) + " match" : "";
  $("note").textContent = run().note;
  markCurrent(false);
}

// One stop for the tab key in the list: the open episode, else the first.
function markCurrent(follow) {
  const buttons = [...document.querySelectorAll("#list button")];
  const open = buttons.find((button) => Number(button.dataset.at) === state.at);
  for (const button of buttons) {
    button.setAttribute("aria-current", String(button === open));
    button.tabIndex = button === (open || buttons[0]) ? 0 : -1;
  }
  if (open && follow) open.scrollIntoView({ block: "nearest", behavior: "instant" });
}

function drawEpisode() {
  const box = $("episode"), episode = run().episodes[state.at];
  box.replaceChildren();
  if (!episode) return;
  if (!episode.turns) {
    box.append(make("h3", "", episode.id), make("p", episode.fault ? "bad" : "hint", episode.fault || "is being read ..."));
    if (!episode.fault) fetchEpisode(episode);
    return;
  }
  if (!namesOf(episode).includes(state.eye)) state.eye = "";
  const link = make("a", "permalink", "link");
  link.href = linkOf(episode);
  const head = make("h3", "", episode.task + " \u00b7 " + episode.scenario + " v" + episode.version + " ");
  head.title = episode.id;
  box.append(add(head, link), verdict(episode, linkOf(episode)));
  const bar = make("div", "bar");
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Whose view");
  const views = [["", "Everything, in lanes"], ...episode.agents.map((one) => [one.name, "What did " + one.name + " see?"])];
  if (views.length > MANY + 1) {
    const choice = make("select");
    choice.setAttribute("aria-label", "Whose view");
    for (const [name, label] of views) choice.append(new Option(label, name, false, state.eye === name));
    choice.addEventListener("change", () => { state.eye = choice.value; drawEpisode(); });
    bar.append(choice);
  } else for (const [name, label] of views) {
    const button = make("button", "", label);
    button.type = "button";
    button.setAttribute("aria-pressed", String(state.eye === name));
    button.addEventListener("click", () => { state.eye = name; drawEpisode(); });
    bar.append(button);
  }
  if (episode.fork) box.append(forkLine(episode));
  if (data.token) box.append(noteBox(episode));
  else if (episode.note) box.append(add(make("p"), make("b", "", "note: "), make("span", "body", episode.note)));
  for (const policy of episode.learned || []) box.append(tokenBox(episode, policy));
  add(box, foundBox(episode));
  box.append(bar, state.eye ? view(episode, state.eye, linkOf(episode)) : lanes(episode, linkOf(episode)));
  reachable(box);
}

function open(at) {
  state.at = at;
  history.replaceState(null, "", linkOf(run().episodes[at]));
  markCurrent(true);
  drawEpisode();
}
function openFirst() {
  const order = shown().map(([, at]) => at);
  if (order.length && !order.includes(state.at)) open(order[0]);
}
const show = (node) => node.scrollIntoView({ block: "start", behavior: "instant" });

function move(by, only) {
  const order = shown().filter(([episode]) => !only || isLost(episode)).map(([, at]) => at);
  if (!order.length) return;
  const further = by > 0 ? order.find((at) => at > state.at) : order.filter((at) => at < state.at).pop();
  const stay = by > 0 ? order[order.length - 1] : order[0];
  open(further === undefined ? stay : further);
  show(viewer);
}

// Of a long list a page has the beginning, and its server finds what else matches.
function lookFurther() {
  if (!run().counts || state.chip === "fork") return;
  const wanted = run(), [chip, words] = [state.chip, state.words.join(" ")], asked = chip + " " + words;
  if (wanted.asked !== asked) Object.assign(wanted, { asked, taken: 0, matching: 0 });
  ask("list?chip=" + encoded(chip) + "&words=" + encoded(words) + "&from=" + wanted.taken).then((found) => {
    if (wanted !== run() || wanted.asked !== state.chip + " " + state.words.join(" ")) return;  // typed on meanwhile
    take(found.episodes);
    wanted.taken += found.episodes.length;
    wanted.matching = found.matching;
    drawList();
    openFirst();
  }).catch(() => { $("note").textContent = "the viewer does not answer"; });
}
function take(episodes) {
  const known = new Set(run().episodes.map((episode) => episode.key));
  const more = episodes.filter((episode) => !known.has(episode.key));
  more.forEach(readable);
  run().episodes.push(...more);
  return more;
}

// A link names run and episode; one by position, as older pages wrote them, is read too.
function follow(jump) {
  const link = /^#\/r\/([^/]+)\/e\/([^/]+)(?:\/t\/(-?\d+))?$/.exec(location.hash);
  if (!link) return false;
  let [name, key] = [link[1], link[2]];
  try { [name, key] = [decodeURIComponent(name), decodeURIComponent(key)]; } catch { return false; }
  let at = data.runs.findIndex((one) => one.name === name);
  if (at < 0) at = data.runs.findIndex((one) => plain(one.name) === plain(name));
  if (at < 0 && /^\d+$/.test(name)) at = Number(name);
  if (!data.runs[at]) return false;
  const episodes = data.runs[at].episodes;
  let place = episodes.findIndex((episode) => episode.key === key);
  if (place < 0) place = episodes.findIndex((episode) => episode.key.startsWith(key + "~"));
  if (place < 0 && /^\d+$/.test(key) && Number(key) < episodes.length) place = Number(key);
  if (place < 0 && data.runs[at].counts && data.runs[at].sought !== key) {
    const sought = data.runs[at];
    sought.sought = key;
    ask("list?words=" + encoded(key)).then((found) => { if (sought === run()) take(found.episodes); follow(jump); }).catch(() => {});
  }
  if (place < 0) return false;
  const other = at !== state.run;
  Object.assign(state, { run: at, at: place, chip: episodes[place].fork ? "fork" : "", words: [] });
  $("words").value = "";
  $("pick").value = String(at);
  if (other) state.eye = "";
  drawChips();
  drawList();
  markCurrent(true);
  drawEpisode();
  const stepOf = () => document.querySelector('[data-step="' + link[3] + '"]');
  if (link[3] !== undefined && state.eye && !stepOf()) { state.eye = ""; drawEpisode(); }  // it is another agent's
  const step = link[3] !== undefined && stepOf();
  if (step) { step.classList.add("here"); show(document.querySelector('[data-marked="' + link[3] + '"]') || step); step.querySelector("a")?.focus({ preventScroll: true }); } else if (jump) show(viewer);
  return true;
}

const pick = $("pick"), search = $("words"), help = $("help");
data.runs.forEach((one, at) => { const option = make("option", "", one.name); option.value = String(at); pick.append(option); });
pick.hidden = data.runs.length < 2;
pick.addEventListener("change", () => { Object.assign(state, { run: Number(pick.value), eye: "", chip: "" }); drawChips(); drawList(); open(0); });
search.addEventListener("input", () => { state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); drawList(); openFirst(); lookFurther(); });
$("list").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const buttons = [...document.querySelectorAll("#list button")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (next) { next.click(); next.focus(); }
});
const close = make("button", "", "Close");
close.addEventListener("click", () => help.close());
const keys = make("dl");
for (const [key, what] of KEYS) add(keys, make("dt", "", key), make("dd", "", what));
add(help, make("h3", "", "Keys"), keys, close);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.matches("input, textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "j") move(1, false);
  else if (event.key === "k") move(-1, false);
  else if (event.key === "n") move(1, true);
  else if (event.key === "p") move(-1, true);
  else if (event.key === "?") help.showModal();
  else if (event.key === "v") {
    const eyes = ["", ...namesOf(run().episodes[state.at])];
    state.eye = eyes[(eyes.indexOf(state.eye) + 1) % eyes.length];
    drawEpisode();
  } else if (event.key === "/") { event.preventDefault(); search.focus(); }
});
addEventListener("hashchange", () => follow(true));
document.addEventListener("click", (event) => { if (event.target.closest("a")?.getAttribute("href") === location.hash) follow(true); });  // the way back to a step that was left by scrolling
if (!follow(true)) { drawChips(); drawList(); drawEpisode(); }
if (data.live && data.finished === false) setTimeout(following, 1000);
