// What a turn sent to its model, and what came back, word for word; fetched when it is opened.
function callsBox(episode, turn) {
  if (!turn.replies) return null;
  const box = add(make("details", "calls"), make("summary", "", "request and reply of the model"));
  box.addEventListener("toggle", async () => {
    if (!box.open || box.dataset.read) return;
    box.dataset.read = "yes";
    try {
      const found = await ask("calls?key=" + encoded(episode.key) + "&step=" + turn.step + "&agent=" + encoded(turn.agent));
      box.append(make("p", "hint", found.note));
      for (const one of found.calls) {
        box.append(make("b", "", one.title));
        for (const [heading, text] of one.parts) {
          const whole = make("pre", "config", text);
          whole.tabIndex = 0;
          whole.setAttribute("role", "region");
          whole.setAttribute("aria-label", heading);
          add(box, make("div", "who", heading), whole);
        }
      }
    } catch (error) { box.append(make("p", "bad", String(error.message))); }
  });
  return box;
}
beside.push(callsBox);
