// Keeping the newest words in sight, unless the reader has gone up to read.

import { byId } from "./dom.js";

const NEAR = 48;

let pinned = true;

export function bindScroll() {
  const box = byId("scroller");
  box.addEventListener("scroll", () => pin(isNear(box)), { passive: true });
  byId("to-end").onclick = () => toEnd();
}

// Stays at the end if the reader is there. To be called after something was added.
export function follow() {
  const box = byId("scroller");
  if (pinned) box.scrollTop = box.scrollHeight;
  byId("to-end").hidden = pinned || isNear(box);
}

export function toEnd() {
  pin(true);
  follow();
}

function pin(now) {
  pinned = now;
  byId("to-end").hidden = now;
}

const isNear = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
