// Fork from here: another action at a step; the play goes on from it and stands among the forks.
function forkBox(episode, turn) {
  if (!data.forks) return null;
  const box = add(make("details", "fork"), make("summary", "", "fork from here"));
  box.addEventListener("toggle", () => { if (box.open && !box.querySelector("form")) box.append(forkForm(episode, turn)); });
  return box;
}

function forkForm(episode, turn) {
  const form = make("form"), typed = make("textarea"), said = make("p", "hint");
  typed.rows = 2;
  typed.value = turn.text;
  said.setAttribute("role", "status");
  form.append(field(turn.agent + " does this instead", typed));
  for (const move of turn.legal || []) {
    const button = make("button", "chip", move);
    button.type = "button";
    button.addEventListener("click", () => { typed.value = move; typed.focus(); });
    form.append(button);
  }
  if (turn.calls) form.append(make("p", "hint", "a tool is called by /name key=value"));
  const others = add(make("details"), make("summary", "", "who plays on")), seats = {};
  for (const one of episode.agents) {
    seats[one.name] = make("input");
    seats[one.name].placeholder = one.plays;
    others.append(field(one.name, seats[one.name]));
  }
  const play = make("button", "chip", "play on");
  play.type = "submit";
  form.append(others, play, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    play.disabled = true;
    said.textContent = "is being played ...";
    const who = Object.fromEntries(Object.entries(seats).map(([name, box]) => [name, box.value.trim()]).filter(([, name]) => name));
    try { showFork(await send("fork", { key: episode.key, step: turn.step, agent: turn.agent, text: typed.value, who })); }
    catch (error) { said.textContent = String(error.message); }
    play.disabled = false;
  });
  return form;
}

function showFork(stub) {
  readable(stub);
  const at = run().episodes.push(stub) - 1;
  Object.assign(state, { chip: "fork", words: [] });
  search.value = "";
  drawChips();
  drawList();
  open(at);
}

// Above the lanes of a fork: what it left, and the way back.
function forkLine(episode) {
  const back = make("a", "", "the play that it left");
  back.href = "#/r/" + encoded(run().name) + "/e/" + encoded(episode.fork.of) + "/t/" + episode.fork.step;
  return add(make("p", "hint"), "a fork: " + episode.fork.agent + " did something else at step " + episode.fork.step + "; ", back);
}
beside.push(forkBox);
