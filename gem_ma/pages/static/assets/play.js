// A play in which the reader has a seat. It knows what the agent was shown, and nothing else of the play.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const encoded = encodeURIComponent;
const SOON = 500, LATER = 3000;  // milliseconds: while the others play; while a question stands, which another tab may answer
const MOST_MOVES = 120;  // buttons; the others are typed

// -- choosing a play
function entrance() {
  const scenario = $("scenario"), cast = $("cast"), told = $("told"), form = $("begin");
  let mine = null, seats = {};
  form.hidden = false;  // without scripts another form stands in its place
  const draw = (agents) => {
    seats = {};
    mine = make("select");
    const others = make("div");
    for (const [name] of agents) mine.append(make("option", "", name));
    if (agents.some(([name]) => name === data.agent)) mine.value = data.agent;
    const drawOthers = () => {
      seats = {};
      others.replaceChildren();
      for (const [name, plays] of agents) {
        if (name === mine.value) continue;
        seats[name] = make("input");
        seats[name].placeholder = plays;
        seats[name].setAttribute("list", "behaviours");
        others.append(field(name + " is played by", seats[name]));
      }
    };
    mine.addEventListener("change", drawOthers);
    drawOthers();
    cast.replaceChildren(field("you are", mine), others);
  };
  const choose = async () => {
    told.textContent = "";
    mine = null;
    cast.replaceChildren();
    try {
      const known = await ask("scenario?name=" + encoded(scenario.value));
      $("behaviours").replaceChildren(...known.behaviours.map((name) => make("option", "", name)));
      draw(known.agents);
    } catch (error) { told.textContent = String(error.message); }
  };
  scenario.addEventListener("change", choose);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!mine) return;
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    const who = Object.fromEntries(Object.entries(seats).map(([name, box]) => [name, box.value.trim()]));
    try { location.href = "/play/" + (await send("begin", { scenario: scenario.value, agent: mine.value, seed: $("seed").value, who })).name; }
    catch (error) { told.textContent = String(error.message); button.disabled = false; }
  });
  choose();
}

// -- the play
// Three lines of one width below each other are a picture made of letters.
const isBoard = (lines) => lines.some((line, at) => at > 1 && line.length > 2 && line.length === lines[at - 1].length && line.length === lines[at - 2].length);

function sitting() {
  const { name, me, agents } = data.play, names = agents.map(([agent]) => agent);
  const talk = $("talk"), form = $("turn"), told = $("told");
  let count = 0, turn = 0, over = false, timer = 0, lane = null, here = null;
  talk.style.gridTemplateColumns = "repeat(" + names.length + ", minmax(0, 1fr))";
  for (const [agent, plays] of agents) talk.append(add(make("div", "head " + colour(names, agent), agent), make("small", "", plays)));

  // What comes in one lane stands in one cell, until another lane has its say.
  const show = (item) => {
    const to = names.includes(item.sender) ? item.sender : me, own = item.sender === me;
    if (to !== lane) {
      for (const agent of names) {
        const cell = make("div", "cell " + colour(names, agent));
        if (agent === to) here = cell;
        talk.append(cell);
      }
      lane = to;
    }
    const box = message(item, own, colour(names, me), false, names);
    if (own) box.prepend(make("span", "speaker", me));
    if (item.parts.some((part) => typeof part === "string" && isBoard(part.split("\n")))) box.classList.add("board");
    here.append(box);
    reachable(here);
  };
  const draw = (state) => {
    if (over || state.first > count) return;
    const fresh = state.messages.slice(count - state.first);
    fresh.forEach(show);
    count += fresh.length;
    if (state.end) end(state.end);
    else if (state.asked && state.asked.turn !== turn) question(state.asked);
    else if (!state.asked) { form.hidden = true; told.textContent = "the others play ..."; }
    if (state.said) told.textContent = state.said;
  };
  const again = (wait) => { clearTimeout(timer); if (!over) timer = setTimeout(follow, wait); };
  const follow = async () => {
    try { draw(await ask("state?from=" + count)); } catch (error) { told.textContent = "the viewer does not answer"; }
    again(form.hidden ? SOON : LATER);
  };
  const act = async (text, what = "answer") => {
    form.inert = true;
    try { draw(await send(what, { turn, text, from: count })); } catch (error) { told.textContent = String(error.message); }
    form.inert = false;
    again(form.hidden ? SOON : LATER);
    if (!form.hidden && !form.contains(document.activeElement)) focusOn();
  };
  // not a move: Enter would play the first of the list, and a study of people would be biased by it
  const focusOn = () => form.querySelector("textarea").focus({ preventScroll: true });

  function question(asked) {
    turn = asked.turn;
    told.textContent = "your turn";
    form.hidden = false;
    form.replaceChildren();
    const typed = make("textarea"), legal = asked.legal || [];
    typed.rows = legal.length ? 1 : 2;
    if (legal.length) {
      const moves = add(make("div", "moves"), ...legal.slice(0, MOST_MOVES).map((move) => {
        const button = make("button", "chip", move || "(nothing)");
        button.type = "button";
        button.addEventListener("click", () => act(move));
        return button;
      }));
      moves.setAttribute("role", "group");
      moves.setAttribute("aria-label", "moves");
      form.append(moves);
      if (legal.length > MOST_MOVES) form.append(make("p", "hint", legal.length - MOST_MOVES + " more moves can be typed, or their number from 1 to " + legal.length));
    }
    const send = make("button", "chip", "send");
    send.type = "submit";
    const leave = make("button", "chip", "give up");
    leave.type = "button";
    leave.addEventListener("click", () => act("", "end"));
    add(form, field(legal.length ? "or type a move, or its number" : "what " + me + " says", typed), send, leave, tools(asked.tools, typed));
    form.onsubmit = (event) => { event.preventDefault(); act(typed.value); };
    typed.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); if (typed.value.trim() || !legal.length) form.requestSubmit(); } });
    // the first one leaves the page at what is to be read
    if (turn > 1) scrollTo({ top: document.body.scrollHeight, behavior: "instant" });
    focusOn();
  }
  // A tool is called by its line; the button writes the line to be filled in.
  function tools(list, typed) {
    if (!list.length) return null;
    const box = add(make("details", "tools"), make("summary", "", list.length + (list.length === 1 ? " tool" : " tools") + ": a line that opens with / calls one"));
    for (const [name, line] of list) {
      const button = make("button", "chip", "/" + name);
      button.type = "button";
      button.addEventListener("click", () => { typed.value = "/" + name + " "; typed.focus(); });
      box.append(add(make("div", "tool"), button, make("div", "body", line)));
    }
    box.open = list.length < 4 && innerWidth > 600;  // a phone has no room for both
    return box;
  }
  function end(how) {
    over = true;
    form.hidden = true;
    told.textContent = how.how ? "the play is over (" + how.how + ")" : "the play is over";
    const list = make("dl", "facts"), row = (key, value) => list.append(add(make("div"), make("dt", "", key), make("dd", "", value)));
    if (how.won !== null && how.won !== undefined) row("success", how.won ? "yes" : "no");
    for (const [agent, paid] of how.totals) row(agent + (agent === me ? " (you)" : ""), minus(paid));
    if (how.error) $("end").append(make("p", "bad", how.error));
    $("end").append(list);
    if (!how.key) return;
    const link = make("a", "", "the whole play, with what the others saw");
    link.href = "/run/" + encoded(name) + "#/r/" + encoded(name) + "/e/" + encoded(how.key);
    const again = make("a", "", "play again");
    again.href = "/play?scenario=" + encoded(data.play.scenario) + "&agent=" + encoded(me);
    $("end").append(add(make("p"), link, make("span", "", " \u00b7 "), again));
    link.focus();
  }
  form.hidden = true;
  told.textContent = "the others play ...";
  follow();
}
(data.play ? sitting : entrance)();
