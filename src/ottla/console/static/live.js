// Pages whose tables move: while the box is ticked, the server sends the page whenever it has changed, and its tables are replaced.
"use strict";

const live = document.getElementById("live");
let source = null;

function show(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const id of ["rows", "count"]) {
    const shown = document.getElementById(id), other = fresh.getElementById(id);
    if (shown && other) shown.replaceWith(other);
  }
}

function follow() {
  if (source) source.close();
  source = null;
  if (!live.checked) return;
  source = new EventSource(location.href);
  source.onmessage = (message) => show(JSON.parse(message.data));
}
live.addEventListener("change", follow);
follow();
