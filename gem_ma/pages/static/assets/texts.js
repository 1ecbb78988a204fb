// Texts of agents, tools and scenarios as elements. Every text goes through textContent; nothing is fetched, stored or evaluated.
const SHAPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const DEEPEST = 40;  // boxes of recorded JSON inside each other
const BRIEF = 30;  // words; a longer text that an agent is shown before its first act is folded

function make(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}
const add = (parent, ...children) => { for (const child of children) if (child) parent.append(child); return parent; };
const minus = (number) => number.replace(/^-/, "\u2212");

// JSON as it was recorded, laid out in lines: only boxes are added, never a letter, so that the text of the element is the text of the record.
function laid(text) {
  const root = make("div", "laid"), nested = [];
  let here = root, line = make("div"), start = 0;
  here.append(line);
  const flush = (to) => { if (to > start) line.append(text.slice(start, to)); start = to; };
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (letter === '"') { while (text[++at] !== '"') if (text[at] === "\\") at++; continue; }
    if (letter === "{" || letter === "[") {
      let next = at + 1;
      while (/\s/.test(text[next])) next++;
      nested.push(nested.length < DEEPEST && text[next] !== "}" && text[next] !== "]");
      if (!nested[nested.length - 1]) continue;
      flush(at + 1);
      const inner = make("div", "deeper");
      line.append(inner);
      inner.outer = here;
      here = inner;
      here.append(line = make("div"));
    } else if (letter === "}" || letter === "]") {
      if (!nested.pop()) continue;
      flush(at);
      line = here.parentNode;
      here = here.outer;
    } else if (letter === "," && nested[nested.length - 1]) {
      while (/\s/.test(text[at + 1])) at++;  // the space after a comma ends its line
      flush(at + 1);
      here.append(line = make("div"));
    }
  }
  flush(text.length);
  return root;
}

function recorded(text, kind) {
  const trimmed = text.trim();
  let known = /^[[{]/.test(trimmed) && trimmed.length > 60;
  if (known) try { JSON.parse(trimmed); } catch { known = false; }
  return known ? add(make("div", kind + " json"), laid(text)) : make("div", kind, text);
}

// A result that is longer than its box scrolls by keys, too; how long it is, is known once it stands in the page.
function reachable(place) {
  for (const box of place.querySelectorAll(".result")) {
    if (box.scrollHeight <= box.clientHeight + 1) continue;
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "result");
  }
}

function content(parts, kind) {
  const box = document.createDocumentFragment();
  for (const part of parts) {
    if (typeof part === "string") { if (part) box.append(kind === "result" ? recorded(part, kind) : make("div", kind, part)); continue; }
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
  if (item.arguments.length) {
    const list = make("dl");
    for (const [name, value] of item.arguments) add(list, make("dt", "", name), make("dd", "", value));
    box.append(list);
  }
  return box;
}

const words = (text) => text.split(/\s+/).filter(Boolean).length;
const lengthOf = (item) => item.parts.reduce((sum, part) => sum + (typeof part === "string" ? words(part) : 0), 0);

// What an agent is shown; `first`: before its first act, where a long text is a briefing and stands folded.
function message(item, own, kind, first, agents) {
  const box = make("div", own ? "say act " + kind : "say seen");
  const who = item.sender === "tool" ? "result" + (item.call ? " of " + item.call : "") : item.sender;
  const inside = content(item.parts, item.sender === "tool" ? "result" : "body");
  const length = first && !own && !agents.includes(item.sender) && item.sender !== "tool" ? lengthOf(item) : 0;
  if (length > BRIEF) {
    const folded = add(make("details", "briefing"), make("summary", "", "briefing" + (who === "system" ? "" : " of " + who) + ", " + length + " words"));
    return add(box, add(folded, inside, ...(item.calls || []).map(call)));
  }
  if (!own) box.append(make("span", "who", who));
  return add(box, inside, ...(item.calls || []).map(call));
}

function replyLine(reply) {
  return [reply.policy && reply.policy + " v" + reply.version, reply.tokens && reply.tokens + (reply.tokens === 1 ? " token" : " tokens"), reply.finish !== "stop" && reply.finish,
    reply.attempts && reply.attempts + (reply.attempts === 1 ? " retry" : " retries")].filter(Boolean).join(", ");
}

// Model calls of one act whose words are not the act: drafts, judgements, an answer before it was read, thoughts.
function drafts(turn) {
  const told = (turn.replies || []).filter((reply) => "text" in reply || reply.thoughts);
  if (!told.length) return null;
  const several = turn.replies.length > 1;
  const title = several ? turn.replies.length + " replies of the model" : told[0].thoughts ? "thoughts" + ("text" in told[0] ? " and the whole reply" : "") : "the whole reply";
  const box = add(make("details", "drafts"), make("summary", "", title));
  turn.replies.forEach((reply, at) => {
    const one = make("div", "draft");
    if (several) one.append(make("div", "who", at + 1 + ". " + replyLine(reply)));
    if (reply.thoughts) add(one, make("div", "who", "thought"), make("div", "body thought", reply.thoughts));
    if ("text" in reply) add(one, make("div", "body", reply.text), ...reply.calls.map(call));
    if (one.childNodes.length) box.append(one);
  });
  return box;
}
