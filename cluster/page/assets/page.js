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
      t.textContent = at.toLocaleString() + " (" + t.textContent + ")";
    });
  }
  localTimes(document);
  if (!("live" in main.dataset) || !window.EventSource) return;

  var stream = null, paused = false;
  var button = document.createElement("button");
  button.type = "button";
  var text = document.createElement("span");
  status.append(text, " ", button);

  function say(words) { text.textContent = words; button.textContent = paused ? "Go on" : "Pause updates"; }

  // Whoever types or has selected something is not disturbed.
  function busy() {
    var at = document.activeElement, chosen = String(window.getSelection());
    return chosen !== "" || at && body.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  }

  function show(html) {
    if (busy()) return;
    var at = document.activeElement, href = at && body.contains(at) && at.getAttribute("href");
    // A parsed document runs no scripts, and the policy of this page allows no inline ones.
    var parsed = new DOMParser().parseFromString(html, "text/html");
    localTimes(parsed);
    body.replaceChildren.apply(body, Array.from(parsed.body.childNodes));
    if (href) {
      var same = Array.from(body.querySelectorAll("a[href]")).find(function (a) { return a.getAttribute("href") === href; });
      if (same) same.focus();
    }
  }

  function start() {
    if (stream || paused || document.hidden) return;
    stream = new EventSource(location.pathname + location.search);
    stream.addEventListener("page", function (e) { say("Live"); show(e.data); });
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
    if (paused) stop("Paused"); else { say("Live"); start(); }
  });
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) stop("Paused"); else if (!paused) { say("Live"); start(); }
  });
  say("Live");
  start();
})();
