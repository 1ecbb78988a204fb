// A note and tags on an episode, kept beside the run; a tag is a chip of the list.
const tagsOf = (episode) => episode.causes.filter((cause) => cause.startsWith("tag: ")).map((cause) => cause.slice(5));

function noteBox(episode) {
  const box = make("details", "note"), form = make("form"), text = make("textarea"), tags = make("input"), said = make("p", "hint");
  const title = () => [episode.note ? "note" : "no note", ...tagsOf(episode)].join(" \u00b7 ");
  const summary = make("summary", "", title()), save = make("button", "chip", "save");
  text.rows = 3;
  text.value = episode.note || "";
  tags.value = tagsOf(episode).join(", ");
  box.open = Boolean(episode.note);
  save.type = "submit";
  said.setAttribute("role", "status");
  add(form, field("note", text), field("tags, with commas between them", tags), save, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const kept = await send("note", { key: episode.key, text: text.value, tags: tags.value.split(",") });
      episode.note = kept.text;
      episode.causes = [...episode.causes.filter((cause) => !cause.startsWith("tag: ")), ...kept.tags.map((tag) => "tag: " + tag)];
      readable(episode);
      drawChips();
      drawList();
      summary.textContent = title();
      said.textContent = "kept";
    } catch (error) { said.textContent = String(error.message); }
  });
  return add(box, summary, form);
}
