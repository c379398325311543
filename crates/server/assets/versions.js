// Versions of a conversation. Where a message was changed or an answer made again, the first
// message of the version on show holds them: `tails` are the messages from there on of each
// version, with null in the place `at` of the one that the conversation itself has.

import { isSilent } from "./conversation.js";

// Takes the messages from `at` on away and keeps them as a version. What is put in their place
// becomes the newest; it is to hold the versions returned, if there are any.
export function fork(messages, at) {
  const tail = messages.splice(at);
  const versions = tail[0].versions ?? { at: 0, tails: [null] };
  delete tail[0].versions;
  if (saysNothing(tail[0])) versions.tails.splice(versions.at, 1);
  else versions.tails[versions.at] = tail;
  versions.at = versions.tails.push(null) - 1;
  return versions.tails.length > 1 ? versions : undefined;
}

const saysNothing = (message) => message.role === "assistant" && isSilent(message);

// Puts the version `to` of the messages from `at` on in the place of the one on show.
export function choose(messages, at, to) {
  const { versions } = messages[at];
  const tail = messages.splice(at);
  delete tail[0].versions;
  versions.tails[versions.at] = tail;
  for (const message of versions.tails[to]) messages.push(message);
  versions.tails[to] = null;
  versions.at = to;
  messages[at].versions = versions;
}

// Every message of a conversation, those of other versions included.
export function* everyMessage(messages) {
  const rest = [messages];
  while (rest.length > 0) {
    for (const message of rest.pop()) {
      yield message;
      rest.push(...(message.versions?.tails ?? []).filter(Boolean));
    }
  }
}
