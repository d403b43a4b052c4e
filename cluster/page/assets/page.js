// The page works without this. With it, times are also those of the reader's zone, and what is
// shown follows what happens.
(function () {
  "use strict";
  var body = document.getElementById("body");
  var main = document.getElementById("main");
  var status = document.getElementById("live");

  function localTimes(root) {
    root.querySelectorAll("time[datetime]").forEach(function (t) {
      var at = new Date(t.getAttribute("datetime"));
      if (isNaN(at) || t.dataset.local) return;
      t.dataset.local = "1";
      var utc = document.createElement("small");
      utc.textContent = t.textContent;
      t.replaceChildren(at.toLocaleString(undefined, {dateStyle: "short", timeStyle: "medium"}), " ", utc);
    });
  }
  localTimes(document);
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
    localTimes(fresh);
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
    return chosen !== "" || at && body.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  }

  // Makes a node as another one is, and leaves alone what is the same: so a table stays where it was
  // scrolled to. A link to somewhere else is another link: nobody should follow it by mistake.
  function become(node, other) {
    if (node.nodeName !== other.nodeName || node.nodeName === "A" && node.getAttribute("href") !== other.getAttribute("href")) {
      node.replaceWith(other);
    } else if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== other.data) node.data = other.data;
    } else {
      Array.from(node.attributes).forEach(function (a) { if (!other.hasAttribute(a.name)) node.removeAttribute(a.name); });
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
    localTimes(parsed);
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
