// Pages whose tables move: while the box is ticked, the page is asked for again and its tables are replaced. Untick it, and the rows stay.
"use strict";

const INTERVAL_MS = 1000;

async function refresh() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ["rows", "count"]) {
    const shown = document.getElementById(id), other = fresh.getElementById(id);
    if (shown && other) shown.replaceWith(other);
  }
}

async function run() {
  for (;;) {
    await new Promise((done) => setTimeout(done, INTERVAL_MS));
    if (document.getElementById("live").checked) await refresh().catch(() => {});
  }
}
run();
