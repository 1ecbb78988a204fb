// Of a run that is served only the list is here; an episode is fetched when it is opened.
const ask = async (what) => {
  const answer = await fetch(location.pathname.replace(/\/$/, "") + "/" + what);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};
const send = async (what, body) => {
  const headers = { "content-type": "application/json", "x-gem-ma-token": data.token };
  const answer = await fetch(location.pathname.replace(/\/$/, "") + "/" + what, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};
function field(label, box) { return add(make("label", "", label + " "), box); }
async function fetchEpisode(stub) {
  try {
    const whole = await ask("episode?key=" + encoded(stub.key));
    // the list goes on as it was; of a training nobody has judged the others
    Object.assign(stub, whole, { kinds: stub.kinds, causes: stub.causes, verdict: whole.kinds, reasons: whole.causes });
    readable(stub);
  } catch (error) { stub.fault = String(error.message); }
  if (run().episodes[state.at] === stub) { drawEpisode(); markCurrent(false); }
}
async function following() {
  try {
    const plays = () => run().episodes.filter((episode) => !episode.fork).length, held = run().count || plays();
    const news = await ask("since?from=" + held);
    const more = take(news.episodes);
    if (run().count) run().count += more.length;
    if (more.length) { drawChips(); drawList(); }
    data.finished = news.finished;
    $("note").textContent = news.finished ? "the run has ended; load the page again for its scores" : (run().count || plays()) + " episodes so far";
  } catch { $("note").textContent = "the viewer does not answer"; }
  if (!data.finished) setTimeout(following, 2000);
}
// What was explained meanwhile, at a terminal, shows when somebody comes back to the page.
const FOUND = ["why", "values", "tables"];
if (document.getElementById("viewer")) addEventListener("focus", async () => {
  const episode = run().episodes[state.at];
  if (!episode || !episode.turns) return;
  const whole = await ask("episode?key=" + encoded(episode.key)).catch(() => episode);
  if (FOUND.every((key) => JSON.stringify(whole[key]) === JSON.stringify(episode[key]))) return;
  for (const key of FOUND) episode[key] = whole[key];
  if (run().episodes[state.at] === episode) drawEpisode();
});
