// What a learned policy sampled, each token coloured by the advantage of its turn: green was made likelier, red less likely.
const signed = (value) => (value > 0 ? "+" : "") + minus(value.toPrecision(3));

function tokenBox(episode, policy) {
  const box = add(make("details", "tokens"), make("summary", "", "tokens of " + policy + ", by advantage"));
  box.addEventListener("toggle", async () => {
    if (!box.open || box.dataset.read) return;
    box.dataset.read = "yes";
    try { drawTokens(box, await ask("tokens?key=" + encoded(episode.key) + "&policy=" + encoded(policy))); }
    catch (error) { box.append(make("p", "bad", String(error.message))); }
  });
  return box;
}

function drawTokens(box, found) {
  box.append(make("p", "hint", found.note));
  // the strongest colour is the largest advantage of the episode
  const most = Math.max(1e-9, ...found.turns.map((turn) => Math.abs(turn.advantage || 0)));
  for (const turn of found.turns) {
    const line = add(make("div", "turn"), make("b", "", turn.agent + ", step " + turn.step + ", v" + turn.version),
      make("span", "hint", "reward " + signed(turn.reward) + ", return " + signed(turn.return) + (turn.advantage === null ? "" : ", advantage " + signed(turn.advantage))));
    const text = make("div", "sampled");
    for (const [token, logprob] of turn.tokens) {
      const one = make("span", turn.advantage > 0 ? "up" : turn.advantage < 0 ? "down" : "", token);
      one.style.setProperty("--weight", String(Math.round(100 * Math.abs(turn.advantage || 0) / most)) + "%");
      one.title = logprob === null ? "no log-probability in the record" : "log-probability " + minus(String(logprob)) + ", probability " + Math.exp(logprob).toPrecision(3);
      text.append(one);
    }
    box.append(add(line, text));
  }
  if (!found.turns.length) box.append(make("p", "hint", "it learned from none of its turns here"));
}
