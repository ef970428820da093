// The page of the cluster: news are shown as text, and nothing is computed but places of dots. news.js has them from the server.
"use strict";

const SECONDS = 60, LOW_MS = 0.5, HIGH_MS = 20000, EVENTS_MAX = 100;
const dots = [], events = [];
const clock = { now: () => Date.now() / 1000 };
const byId = (id) => document.getElementById(id);

function cells(row, texts) {
  for (const text of texts) row.insertCell().textContent = text;
  return row;
}

function order(node, name) {
  const button = document.createElement("button");
  button.textContent = name;
  button.dataset.node = node;
  button.addEventListener("click", async () => {
    button.disabled = true;
    const answer = await fetch(`nodes/${node}/${name}`, { method: "POST" });
    const { error } = await answer.json();
    byId("problem").textContent = error || "";
    button.disabled = false;
  });
  return button;
}

function showNodes(news) {
  const body = document.createElement("tbody");
  for (const node of news.nodes) {
    const active = node.is_controller ? "active" : "";
    const row = cells(body.insertRow(), [node.node_id, node.address, node.process || "", node.broker, node.leads, active]);
    row.dataset.node = node.node_id;
    row.cells[3].className = node.broker === "alive" ? "good" : "bad";
    const place = row.insertCell();
    if (news.can_kill && node.process === "serving") place.append(order(node.node_id, "kill"));
    if (news.can_kill && (node.process === "killed" || node.process === "stopped" || node.process === "failed")) {
      place.append(order(node.node_id, "restart"));
    }
  }
  const table = byId("nodes");
  const shown = table.tBodies[0];
  if (shown.innerText !== body.innerText || shown.querySelectorAll("button").length !== body.querySelectorAll("button").length) {
    if (!shown.querySelector("button:disabled")) shown.replaceWith(body);
  }
}

function showPartitions(news) {
  const body = document.createElement("tbody");
  for (const one of news.partitions) {
    const row = cells(body.insertRow(), [`${one.topic}-${one.partition}`, one.leader, one.epoch, one.replicas.join(","), one.in_sync.join(",")]);
    row.cells[4].className = one.in_sync.length < one.replicas.length ? "bad" : "good";
  }
  byId("partitions").tBodies[0].replaceWith(body);
}

function showEvents(fresh) {
  for (const event of fresh) {
    events.push(event);
    const item = document.createElement("li");
    item.textContent = `${new Date(event.at * 1000).toLocaleTimeString()} ${event.text}`;
    byId("events").prepend(item);
  }
  while (byId("events").children.length > EVENTS_MAX) byId("events").lastChild.remove();
  while (events.length > EVENTS_MAX) events.shift();
}

function draw() {
  const canvas = byId("dots"), pen = canvas.getContext("2d"), now = clock.now();
  while (dots.length && dots[0].at < now - SECONDS - 5) dots.shift();
  const x = (at) => canvas.width * (1 - (now - at) / SECONDS);
  const y = (ms) => {
    const share = Math.log(Math.min(Math.max(ms, LOW_MS), HIGH_MS) / LOW_MS) / Math.log(HIGH_MS / LOW_MS);
    return canvas.height - 12 - share * (canvas.height - 24);
  };
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.font = "11px system-ui";
  pen.fillStyle = pen.strokeStyle = "#888";
  for (const ms of [1, 10, 100, 1000, 10000]) {
    pen.globalAlpha = 0.3;
    pen.fillRect(0, y(ms), canvas.width, 1);
    pen.globalAlpha = 1;
    pen.fillText(ms < 1000 ? `${ms} ms` : `${ms / 1000} s`, 4, y(ms) - 3);
  }
  for (const event of events) {
    if (event.at < now - SECONDS) continue;
    pen.fillStyle = event.kind === "node" ? "#d43" : "#36c";
    pen.fillRect(x(event.at), 0, 1, canvas.height);
  }
  let slowest = null;
  for (const dot of dots) {
    if (dot.at < now - SECONDS) continue;
    pen.fillStyle = dot.error ? "#d43" : "#2a7";
    pen.fillRect(x(dot.at) - 1, y(dot.ms) - 1, 3, 3);
    if (slowest === null || dot.ms > slowest) slowest = dot.ms;
  }
  byId("slowest").textContent = slowest === null ? "-" : `${slowest.toFixed(0)} ms`;
  requestAnimationFrame(draw);
}

function show(news) {
  byId("cluster-id").textContent = news.cluster_id;
  if (news.problem) byId("problem").textContent = news.problem;
  showNodes(news);
  showPartitions(news);
  showEvents(news.events);
  dots.push(...news.dots);
  dots.sort((one, other) => one.at - other.at);
}
