// The page of vpnd. It only reads.
//
// Names and messages may come from peers: they are inserted as text (textContent) and never as markup.
"use strict";

const POINTS = 60; // of a line, one a second
const EVENTS = 200; // that the list of events keeps
const POLL = 1000; // milliseconds between two looks at the tunnels
const SOON = 150; // milliseconds from an event to the look that shows its effect
const SLOW = 10000; // milliseconds between two looks at certificates and drops
// The states that a reader may choose, and their classes. In a Map, no other word is known, such as "constructor".
const SHAPES = new Map([["", "all"], ...["up", "negotiating", "blocked", "down"].map((state) => [state, state])]);
const HIGHEST = 1e9; // the number of a page at most

const get = (id) => document.getElementById(id);

// ---- Text ----

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// 45s, 2m 5s, 1h 2m, 3d 4h
function duration(seconds) {
  const two = (large, unit, small, sub) => (small ? `${large}${unit} ${small}${sub}` : `${large}${unit}`);
  const whole = (n) => Math.floor(n);
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return two(whole(seconds / 60), "m", seconds % 60, "s");
  if (seconds < 86400) return two(whole(seconds / 3600), "h", whole((seconds % 3600) / 60), "m");
  return two(whole(seconds / 86400), "d", whole((seconds % 86400) / 3600), "h");
}

// 950 Mbit/s, 1.2 Gbit/s
function rate(bits) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
  let index = 0;
  while (index + 1 < units.length && bits >= 1000) {
    bits /= 1000;
    index += 1;
  }
  const digits = index > 0 && bits < 10 ? (Math.floor(bits * 10) / 10).toFixed(1) : Math.floor(bits);
  return `${digits} ${units[index]}`;
}

const count = (n) => n.toLocaleString("en").replaceAll(",", " ");

// ---- Requests ----

async function ask(path, fields) {
  const query = new URLSearchParams(fields).toString();
  const response = await fetch(query ? `${path}?${query}` : path, { signal: AbortSignal.timeout(SLOW) });
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

// ---- Rates and their lines ----

// Two counts of octets, again and again.
class Meter {
  constructor() {
    this.points = [];
    this.last = null;
  }

  // A count that has gone back began again at 0.
  take(at, bytesIn, bytesOut) {
    const { last } = this;
    if (last && at <= last.at) return;
    if (last) {
      const of = (now, before) => ((now >= before ? now - before : now) * 8000) / (at - last.at);
      this.points.push([of(bytesIn, last.bytesIn), of(bytesOut, last.bytesOut)]);
      if (this.points.length > POINTS) this.points.shift();
    }
    this.last = { at, bytesIn, bytesOut };
  }

  get latest() {
    return this.points.at(-1);
  }

  // Received traffic above the middle, sent traffic below it.
  draw(svg) {
    const highest = Math.max(1, ...this.points.flat());
    const step = 120 / (POINTS - 1);
    const first = 120 - step * (this.points.length - 1);
    for (const [side, name, sign] of [[0, "in", -1], [1, "out", 1]]) {
      const place = (point, index) =>
        `L${(first + step * index).toFixed(1)} ${(14 + (sign * 13 * point[side]) / highest).toFixed(1)}`;
      const flat = this.points.every((point) => point[side] === 0);
      const line = flat ? "" : `M${first.toFixed(1)} 14${this.points.map(place).join("")}L120 14Z`;
      svg.querySelector(`path.${name}`).setAttribute("d", line);
    }
  }
}

const total = new Meter();
const meters = new Map(); // by row; those of rows that were not seen for a while are dropped

// ---- The list of tunnels ----

const wanted = { page: 1, filter: "", state: "" };
const rows = new Map();
let timer = 0;
let due = 0;
let looking = false;
let shown = null;

function later(delay) {
  const at = performance.now() + delay;
  if (timer && at >= due) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(look, delay);
}

async function look() {
  timer = 0;
  if (looking) return later(SOON);
  looking = true;
  const asked = JSON.stringify(wanted);
  try {
    const list = await ask("api/tunnels", wanted);
    if (asked === JSON.stringify(wanted)) show(list);
    linked({ answers: true });
  } catch (error) {
    linked({ answers: false, trouble: error.message });
  }
  looking = false;
  if (asked !== JSON.stringify(wanted)) later(0);
  else if (!document.hidden) later(POLL);
}

function show(list) {
  shown = list;
  const { totals } = list;
  const all = Object.values(totals).reduce((sum, n) => sum + n, 0);
  for (const [value, name] of SHAPES) {
    const label = get("totals").querySelector(`label.${name}`);
    const number = value === "" ? all : totals[value];
    say(label.querySelector("b"), count(number));
    label.classList.toggle("nil", number === 0);
  }
  total.take(list.traffic.at, list.traffic.bytes_in, list.traffic.bytes_out);
  const [bitsIn, bitsOut] = total.latest ?? [];
  say(get("total-in"), bitsIn === undefined ? "–" : rate(bitsIn));
  say(get("total-out"), bitsOut === undefined ? "–" : rate(bitsOut));
  total.draw(get("total-line"));
  say(get("about"), `version ${list.version}, running for ${duration(list.up_seconds)}`);
  get("keys").hidden = !list.keys_exported;
  const troubled = totals.down + totals.blocked;
  document.title = `${troubled ? `${troubled} down – ` : ""}vpnd ${location.host}`;

  const first = (list.page - 1) * 50 + 1;
  const part = `${count(first)}–${count(first + list.rows.length - 1)} of ${count(list.matched)}`;
  say(get("count"), list.rows.length ? part : "");
  get("none").hidden = list.rows.length > 0;
  say(get("none"), all === 0 ? "The policy has no tunnel." : "No tunnel matches.");
  get("pager").hidden = list.pages === 1;
  say(get("page"), `Page ${count(list.page)} of ${count(list.pages)}`);
  get("previous").setAttribute("aria-disabled", String(list.page <= 1));
  get("next").setAttribute("aria-disabled", String(list.page >= list.pages));
  wanted.page = list.page;
  showRows(list);
}

function showRows(list) {
  const body = get("rows");
  const keys = new Set();
  let before = null;
  for (const row of list.rows) {
    const key = JSON.stringify([row.tunnel, row.child]);
    keys.add(key);
    if (!rows.has(key)) rows.set(key, makeRow(row.child ?? row.tunnel, row.tunnel));
    const made = rows.get(key);
    fill(made, row, meterOf(key, list.at, row));
    // A row that stays where it is keeps the focus.
    const next = before ? before.nextSibling : body.firstChild;
    if (next !== made) body.insertBefore(made, next);
    before = made;
  }
  for (const [key, made] of rows) {
    if (keys.has(key)) continue;
    made.remove();
    rows.delete(key);
  }
  for (const [key, meter] of meters) {
    if (meter.last.at < list.at - POINTS * POLL) meters.delete(key);
  }
}

function meterOf(key, at, row) {
  if (!meters.has(key)) meters.set(key, new Meter());
  const meter = meters.get(key);
  meter.take(at, row.bytes_in, row.bytes_out);
  return meter;
}

function makeRow(name, tunnel) {
  const made = get("row").content.firstElementChild.cloneNode(true);
  const button = made.querySelector("button");
  button.setAttribute("aria-label", `Why ${name}`);
  button.addEventListener("click", () => explain(name, tunnel));
  return made;
}

function fill(made, row, meter) {
  const put = (selector, text) => say(made.querySelector(selector), text);
  made.className = row.condition;
  put(".word", row.state);
  put(".child", row.child ?? row.tunnel);
  put(".tunnel", row.child && row.child !== row.tunnel ? row.tunnel : "");
  put(".remark", row.remark ?? "");
  put(".address", row.peer ?? "any address");
  put(".identity", row.peer_id === row.peer ? "" : row.peer_id);
  put(".local", row.local);
  put(".remote", row.remote);
  const [bitsIn, bitsOut] = meter.latest ?? [];
  const known = row.child !== null && bitsIn !== undefined;
  put("td.in", known ? rate(bitsIn) : "–");
  put("td.out", known ? rate(bitsOut) : "–");
  made.querySelector("td.in").classList.toggle("nil", !bitsIn);
  made.querySelector("td.out").classList.toggle("nil", !bitsOut);
  put(".age", row.seconds === null ? "–" : duration(row.seconds));
  meter.draw(made.querySelector("svg"));
}

function want(change) {
  Object.assign(wanted, change);
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) {
    if (value && value !== 1) fields.set(name, value);
  }
  const query = fields.toString();
  // The address can be kept, and leads to the same tunnels.
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  later(0);
}

function turn(pages) {
  const page = wanted.page + pages;
  if (shown && page >= 1 && page <= shown.pages) want({ page });
}

// ---- Why ----

let explained = null; // the tunnel that the dialog is about, and its phase 1 tunnel

async function explain(name, tunnel) {
  const asked = { name, tunnel };
  explained = asked;
  const dialog = get("why");
  say(get("why-name"), name);
  if (!dialog.open) {
    say(get("why-title"), name);
    get("why-text").replaceChildren("asking vpnd …");
    dialog.showModal();
  }
  let text;
  try {
    const why = await ask("api/why", { name });
    say(get("why-title"), `${name}: ${why.state}`);
    text = why.text;
  } catch (error) {
    text = `vpnd does not say: ${error.message}`;
  }
  if (explained === asked) get("why-text").replaceChildren(...text.trimEnd().split("\n").map(lineOf));
}

// A line of the explanation, with the emphasis that a terminal would give it.
function lineOf(line) {
  const words = line.trimStart();
  let kind = "";
  if (words === "to do") kind = "heading";
  else if (words.startsWith("≠")) kind = "bad";
  else if (/^(last failure|before that|now|no packet passes|packets do not pass|turned away):/.test(words)) kind = "bad";
  return element("span", `${line}\n`, kind);
}

// ---- Events ----

const KINDS = new Map([
  ["established", "good"],
  ["rekeyed", "good"],
  ["failed", "bad"],
  ["closed", "bad"],
  ["turned_away", "notice"],
  ["moved", "notice"],
  ["warning", "notice"],
  ["missed", "notice"],
]);

function eventOf(happening) {
  const item = element("li", undefined, KINDS.get(happening.event) ?? "");
  const time = element("time", happening.time.slice(11, 19));
  time.dateTime = happening.time;
  time.title = happening.time;
  const name = happening.child ? `${happening.tunnel}/${happening.child}` : happening.tunnel;
  const message = element("span", happening.message, "message");
  item.append(time, " ", element("b", name), name ? " " : "", message);
  if (happening.peer) item.append(" ", element("span", happening.peer, "peer"));
  return item;
}

function tell(happenings) {
  const list = get("events");
  list.prepend(...happenings.map(eventOf).reverse());
  while (list.childElementCount > EVENTS) list.lastElementChild.remove();
}

let waiting = [];

function happened(happening) {
  // Many may come at once: they are shown together.
  if (waiting.push(happening) === 1) {
    setTimeout(() => {
      tell(waiting.slice(-EVENTS));
      waiting = [];
    }, 50);
  }
  later(SOON);
  if (explained && explained.tunnel === happening.tunnel) explain(explained.name, explained.tunnel);
}

function listen() {
  const source = new EventSource("api/events");
  source.addEventListener("open", () => linked({ events: true }));
  source.addEventListener("latest", (message) => {
    get("events").replaceChildren();
    waiting = [];
    tell(JSON.parse(message.data));
    later(0);
  });
  source.addEventListener("message", (message) => happened(JSON.parse(message.data)));
  source.addEventListener("error", () => {
    linked({ events: false });
    // A browser gives up after a refusal, and after a lost connection it tries again by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5 * POLL);
  });
}

const link = { answers: null, events: null, trouble: "" };

function linked(change) {
  Object.assign(link, change);
  const [kind, text] =
    link.answers === false
      ? ["lost", `no answer, trying again: ${link.trouble}`]
      : link.answers === null
        ? ["waiting", "connecting"]
        : link.events === false
          ? ["late", "events come late, trying again"]
          : ["live", "live"];
  get("link").className = kind;
  say(get("link-text"), text);
}

// ---- Certificates and drops ----

async function lookSlowly() {
  if (!document.hidden) {
    try {
      await Promise.all([certificates(), drops()]);
    } catch {
      // The list of tunnels tells that nobody answers.
    }
  }
  setTimeout(lookSlowly, SLOW);
}

function table(id, hint, made) {
  say(get(id).querySelector("small"), hint);
  get(id).querySelector("tbody").replaceChildren(...made);
  get(id).querySelector("table").hidden = made.length === 0;
}

function ends(row) {
  if (row.not_after === null) return "never";
  if (row.days_left < 0) return "has ended";
  return row.days_left === 1 ? "in 1 day" : `in ${count(row.days_left)} days`;
}

async function certificates() {
  const told = await ask("api/certificates");
  const made = told.rows.map((row) => {
    const line = element("tr", undefined, row.days_left !== null && row.days_left < 0 ? "bad" : row.expires_soon ? "notice" : "");
    const subject = element("th");
    subject.scope = "row";
    subject.append(element("span", row.subject || row.issuer));
    const tunnels = row.tunnels.join(", ") + (row.more_tunnels ? ` and ${count(row.more_tunnels)} more` : "");
    if (tunnels) subject.append(" ", element("small", `for ${tunnels}`));
    const end = element("td", ends(row), "number");
    if (row.not_after) end.title = row.not_after;
    line.append(subject, element("td", row.role.replaceAll("_", " ")), end);
    return line;
  });
  const ending = told.rows.filter((row) => row.expires_soon || (row.days_left ?? 0) < 0).length;
  const more = told.omitted ? `, the first ${count(told.rows.length)} of ${count(told.rows.length + told.omitted)}` : "";
  const hint = made.length === 0 ? "none" : ending ? `${count(ending)} ${ending === 1 ? "ends" : "end"} soon${more}` : `none ends soon${more}`;
  table("certificates", hint, made);
}

async function drops() {
  const told = await ask("api/drops");
  const line = (name, meaning, n) => {
    const made = element("tr");
    const reason = element("th");
    reason.scope = "row";
    reason.append(element("code", name), " ", element("small", meaning));
    made.append(reason, element("td", count(n), "number"));
    return made;
  };
  const made = told.reasons.map((reason) => line(reason.name, reason.meaning, reason.count));
  for (const row of told.unserved) made.push(line(row.tunnel, "Packets of this tunnel that no SA served.", row.count));
  const sum = told.reasons.reduce((all, reason) => all + reason.count, 0);
  table("drops", sum ? `${count(sum)} since the start` : "none since the start", made);
  const { guard } = told;
  get("guard").className = guard && !guard.in_force ? "bad" : "";
  say(get("guard"), guardText(guard));
}

function guardText(guard) {
  if (!guard) return "The state of the guard is unknown.";
  const dropped =
    `It has dropped ${count(guard.unprotected_leaving)} packets that were to leave in the clear, ` +
    `and ${count(guard.unprotected_arriving)} that arrived in the clear.`;
  return guard.in_force ? `The guard is in force. ${dropped}` : "The guard is not in force.";
}

// ---- Begin ----

function begin() {
  say(get("host"), location.host);
  const fields = new URLSearchParams(location.search);
  wanted.filter = (fields.get("filter") ?? "").slice(0, get("filter").maxLength);
  wanted.state = SHAPES.has(fields.get("state")) ? fields.get("state") : "";
  wanted.page = Math.min(HIGHEST, Math.max(1, Math.floor(Number(fields.get("page"))) || 1));
  get("filter").value = wanted.filter;
  document.querySelector(`input[name="state"][value="${wanted.state}"]`).checked = true;

  get("totals").addEventListener("change", (change) => want({ state: change.target.value, page: 1 }));
  get("filter").addEventListener("input", () => want({ filter: get("filter").value.trim(), page: 1 }));
  get("previous").addEventListener("click", () => turn(-1));
  get("next").addEventListener("click", () => turn(1));
  get("why-close").addEventListener("click", () => get("why").close());
  get("why").addEventListener("close", () => (explained = null));
  document.addEventListener("keydown", (key) => {
    if (key.key !== "/" || key.ctrlKey || key.metaKey || key.altKey || get("why").open) return;
    if (key.target.matches("input[type=search]")) return;
    key.preventDefault();
    get("filter").focus();
  });
  document.addEventListener("visibilitychange", () => document.hidden || later(0));
  later(0);
  listen();
  lookSlowly();
}

begin();
