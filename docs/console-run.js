// Plays a recorded run of the console on the console's own page: the news come from the recording, and the clock is that of the recording.
"use strict";

const steps = JSON.parse(byId("run").textContent);
const speed = Number(new URLSearchParams(location.search).get("speed")) || 1;
const base = Date.now() / 1000;
let began, next, news;

function begin() {
  began = performance.now();
  next = 0;
  news = {};
  dots.length = events.length = 0;
  byId("events").replaceChildren();
  byId("play").disabled = true;
}

const elapsed = () => ((performance.now() - began) / 1000) * speed;
const placed = (list) => list.map((one) => ({ ...one, at: base + one.at }));

function press({ node, order }) {
  const button = [...document.querySelectorAll(`#nodes [data-node="${node}"] button`)].find((one) => one.textContent === order);
  button?.classList.add("pressed");
  byId("told").textContent = `${order} of node ${node} is pressed`;
}

function step() {
  for (; next < steps.length && steps[next].after <= elapsed(); next++) {
    const { pressed, news: changed } = steps[next];
    if (pressed) {
      press(pressed);
      continue;
    }
    news = { ...news, events: [], dots: [], ...changed };
    show({ ...news, events: placed(news.events), dots: placed(news.dots) });
  }
  const isOver = next === steps.length;
  if (isOver && byId("play").disabled) {
    byId("told").textContent = "This was a recorded run of a real cluster.";
    byId("play").disabled = false;
  }
  requestAnimationFrame(step);
}

clock.now = () => base + Math.min(elapsed(), steps[steps.length - 1].after);
byId("play").addEventListener("click", begin);
byId("nodes").addEventListener("click", (event) => event.stopPropagation(), true); // its buttons were pressed in the recording
const style = document.createElement("style");
style.textContent = ".pressed { outline: 3px solid var(--bad); } #told { color: var(--bad); }";
document.head.append(style);
begin();
step();
draw();
