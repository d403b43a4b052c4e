// The page works without this. With it, times are those of the reader's zone if he wants, what is
// shown follows what happens, and there are keys.
(function () {
  "use strict";
  var body = document.getElementById("body");
  var main = document.getElementById("main");
  var status = document.getElementById("live");

  // Times are of UTC, or of the reader's zone, which the server does not know.
  var utc = false;
  try { utc = localStorage.getItem("tickslot-utc") === "1"; } catch (e) { /* it is not kept */ }
  function zoneTimes(root) {
    var zone = utc ? {timeZone: "UTC", timeZoneName: "short"} : {timeZoneName: "short"};
    root.querySelectorAll("time[datetime]").forEach(function (t) {
      var at = new Date(t.getAttribute("datetime"));
      if (isNaN(at)) return;
      var clock = {hour: "2-digit", minute: "2-digit", hour12: false, timeZone: zone.timeZone};
      var day = {day: "numeric", month: "short", timeZone: zone.timeZone};
      t.title = at.toLocaleDateString(undefined, Object.assign({year: "numeric"}, day)) + " " +
        at.toLocaleTimeString(undefined, Object.assign({second: "2-digit"}, clock, zone));
      if (!("clock" in t.dataset)) return;
      var far = Math.abs(Date.now() - at) > 20 * 3600e3 ? at.toLocaleDateString(undefined, day) + " " : "";
      t.textContent = far + at.toLocaleTimeString(undefined, clock) + (utc ? " UTC" : "");
    });
  }
  var zones = document.createElement("button");
  zones.type = "button";
  zones.className = "zone";
  function nameZone() {
    zones.textContent = utc ? "UTC" : "Local";
    zones.title = utc ? "Times are of UTC: show those of my zone" : "Times are of your zone: show UTC";
    zoneTimes(document);
  }
  zones.addEventListener("click", function () {
    utc = !utc;
    try { localStorage.setItem("tickslot-utc", utc ? "1" : "0"); } catch (e) { /* it is not kept */ }
    nameZone();
  });
  document.querySelector("header").append(zones);
  nameZone();

  // Keys: / searches, j and k go down and up the rows, g and a letter goes to a page.
  var pages = {o: ".", t: "timers", h: "hosts", l: "leases", d: "durable", x: "outbox", e: "events"}, go = false;
  function toRow(step) {
    var links = Array.from(body.querySelectorAll("tbody th a"));
    var at = links.indexOf(document.activeElement);
    var next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
    if (next) next.focus();
  }
  document.addEventListener("keydown", function (e) {
    var at = e.target;
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) return;
    var went = go;
    go = false;
    if (went && pages[e.key]) {
      var link = document.querySelector('nav a[href="' + pages[e.key] + '"]');
      if (link) link.click();
    } else if (e.key === "/") {
      var search = body.querySelector("input[type=search]");
      if (!search) return;
      search.focus();
    } else if (e.key === "j" || e.key === "k") toRow(e.key === "j" ? 1 : -1);
    else if (e.key === "g") { go = true; return; }
    else return;
    e.preventDefault();
  });

  if (!("live" in main.dataset) || !window.EventSource) return;

  var stream = null, paused = false;
  var button = document.createElement("button");
  button.type = "button";
  var text = document.createElement("span");
  status.append(text, " ", button);

  function say(words) { // what is said anew is read aloud
    if (text.textContent !== words) text.textContent = words;
    button.textContent = paused ? "Go on" : "Pause updates";
  }

  // What is above the page says how the fleet is, and so do the title and the icon of the window. It
  // follows also while somebody types.
  function showBar(parsed) {
    var fresh = parsed.getElementById("bar"), bar = document.getElementById("bar");
    if (!fresh) return;
    zoneTimes(fresh);
    say(fresh.dataset.live);
    document.title = fresh.dataset.title;
    var icon = document.querySelector("link[rel=icon]");
    if (icon.getAttribute("href") !== fresh.dataset.icon) {
      icon.type = "image/svg+xml";
      icon.setAttribute("href", fresh.dataset.icon);
    }
    fresh.remove();
    if (bar) become(bar, fresh);
  }

  // Whoever types or has selected something is not disturbed.
  function busy() {
    var at = document.activeElement, chosen = String(window.getSelection());
    return chosen !== "" || body.querySelector("input:checked") || at && body.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  }

  // Makes a node as another one is, and leaves alone what is the same: so a table stays where it was
  // scrolled to. A link to somewhere else is another link: nobody should follow it by mistake.
  function become(node, other) {
    if (node.nodeName !== other.nodeName || node.nodeName === "A" && node.getAttribute("href") !== other.getAttribute("href")) {
      node.replaceWith(other);
    } else if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== other.data) node.data = other.data;
    } else {
      Array.from(node.attributes).forEach(function (a) { if (!other.hasAttribute(a.name) && a.name !== "open") node.removeAttribute(a.name); });
      Array.from(other.attributes).forEach(function (a) { if (node.getAttribute(a.name) !== a.value) node.setAttribute(a.name, a.value); });
      becomeAll(node, other);
    }
  }
  function becomeAll(node, other) {
    var old = Array.from(node.childNodes), all = Array.from(other.childNodes);
    all.forEach(function (child, i) { if (i < old.length) become(old[i], child); else node.append(child); });
    old.slice(all.length).forEach(function (child) { child.remove(); });
  }

  // What tells a link, a button or a table that scrolls from others, whatever else has changed.
  function identity(e) {
    var names = ["href", "aria-label", "id", "name", "value"].map(function (a) { return e.getAttribute(a); });
    return [e.nodeName, e.nodeName === "BUTTON" ? e.textContent : ""].concat(names).join("\n");
  }

  // The focus stays on what it is on, although something above it has come or gone.
  function show(html) {
    // A parsed document runs no scripts, and the policy of this page allows no inline ones.
    var parsed = new DOMParser().parseFromString(html, "text/html");
    showBar(parsed);
    if (busy()) return;
    var at = document.activeElement, focused = at && body.contains(at) && identity(at);
    zoneTimes(parsed);
    becomeAll(body, parsed.body);
    if (!focused || body.contains(document.activeElement) && identity(document.activeElement) === focused) return;
    var same = Array.from(body.querySelectorAll(at.nodeName)).find(function (e) { return identity(e) === focused; });
    if (same) same.focus({preventScroll: true});
  }

  function live() {
    var bar = document.getElementById("bar");
    return bar ? bar.dataset.live : "Live";
  }
  function start() {
    if (stream || paused || document.hidden) return;
    stream = new EventSource(location.pathname + location.search);
    stream.addEventListener("page", function (e) { show(e.data); });
    stream.addEventListener("failed", function (e) { say("Not live: " + e.data); });
    stream.onerror = function () { say(stream.readyState === EventSource.CLOSED ? "Not live: reload the page" : "Not live: trying again"); };
  }
  function stop(words) {
    if (stream) stream.close();
    stream = null;
    say(words);
  }
  button.addEventListener("click", function () {
    paused = !paused;
    if (paused) stop("Paused"); else { say(live()); start(); }
  });
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) stop("Paused"); else if (!paused) { say(live()); start(); }
  });
  say(live());
  start();
})();
