// Puts the parts of the page that the server painted anew into the page, and tells the server the time zone of the
// browser. Everything works without it, only not by itself.
"use strict";

(() => {
  const body = document.body;
  const contact = document.getElementById("contact");
  const beat = document.getElementById("beat");
  // Pauses between tries after the server refused, in milliseconds; where it is merely away the browser tries by itself.
  const PAUSES = [2000, 5000, 10000, 30000];
  // How long without any sign of the stream, which has one every 15 s, until it is taken for dead.
  const SILENCE = 40000;

  function tellZone() {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (!zone || body.dataset.zone === zone) return;
    const cookie = "pm_zone=" + encodeURIComponent(zone);
    const had = document.cookie.split("; ").includes(cookie);
    document.cookie = cookie + "; Path=/; Max-Age=31536000; SameSite=Lax";
    // A zone that the server does not know, or cookies that are not kept, must not make the page load for ever.
    if (!had && document.cookie.split("; ").includes(cookie) && body.dataset.live) location.reload();
  }

  // Makes `old` like `fresh` and leaves alone what is alike, so that focus, selection and scrolling stay.
  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.isEqualNode(fresh)) return;
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !kept(old, name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    morphChildren(old, fresh);
  }

  // What the reader did to the page is not the server's to undo.
  function kept(element, name) {
    return name === "open" && element.nodeName === "DETAILS";
  }

  function morphChildren(old, fresh) {
    const named = new Map();
    for (const child of old.children) if (child.id) named.set(child.id, child);
    let place = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const known = wanted.id ? named.get(wanted.id) : undefined;
      if (known) {
        if (known !== place) old.insertBefore(known, place);
        else place = place.nextSibling;
        morph(known, wanted);
      } else if (place && !wanted.id && !place.id) {
        const next = place.nextSibling;
        morph(place, wanted);
        place = next;
      } else {
        old.insertBefore(wanted, place);
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  function put(parts) {
    const focused = document.activeElement;
    for (const [id, html] of Object.entries(parts)) {
      const target = document.getElementById(id);
      if (!target) continue;
      const fresh = document.createElement("template");
      fresh.innerHTML = html;
      morphChildren(target, fresh.content);
    }
    // What has moved to another place has lost the focus on the way.
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    if (beat) beat.classList.toggle("tick");
  }

  function say(text, path) {
    if (!contact) return;
    contact.hidden = !text;
    contact.textContent = text;
    if (text && path) {
      const link = document.createElement("a");
      link.href = path;
      link.textContent = text;
      contact.replaceChildren(link);
    }
  }

  let stream = null;
  let failures = 0;
  let again = 0;
  let watchdog = 0;

  function alive() {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => { lost(); open(); }, SILENCE);
  }

  function lost() {
    say(contact ? contact.dataset.lost : "");
    body.classList.add("stale");
  }

  function close() {
    clearTimeout(again);
    clearTimeout(watchdog);
    if (stream) stream.close();
    stream = null;
  }

  function open() {
    close();
    stream = new EventSource(body.dataset.live);
    alive();
    stream.addEventListener("hello", (event) => {
      const now = JSON.parse(event.data);
      // Another version of the program: its parts may not fit this page.
      if (now.style !== body.dataset.style || now.script !== body.dataset.script) return location.reload();
      failures = 0;
      alive();
    });
    stream.addEventListener("parts", (event) => {
      say("");
      body.classList.remove("stale");
      put(JSON.parse(event.data));
      alive();
    });
    stream.addEventListener("alive", alive);
    stream.addEventListener("gone", () => location.reload());
    stream.addEventListener("error", () => {
      lost();
      // Refused for good by the browser's rules: ended login, too many viewers, or a proxy's error page.
      if (!stream || stream.readyState !== EventSource.CLOSED) return;
      clearTimeout(watchdog);
      // Not all at once: after a restart every page of everybody is here.
      const pause = PAUSES[Math.min(failures++, PAUSES.length - 1)];
      again = setTimeout(ask, pause * (0.5 + Math.random() / 2));
    });
  }

  // The stream does not say why it was refused; the page does. Without the query: what somebody asked there by a form is
  // not to be asked again.
  async function ask() {
    try {
      const answer = await fetch(location.pathname, { method: "HEAD", redirect: "manual", headers: { Accept: "text/html" } });
      if (answer.type === "opaqueredirect") {
        const here = location.pathname + location.search;
        return say(contact ? contact.dataset.login : "", "/login?next=" + encodeURIComponent(here));
      }
    } catch {
      // Away altogether.
    }
    // Meanwhile the page may have been hidden, which ends the stream until it is seen again.
    if (!document.hidden) open();
  }

  tellZone();
  if (body.dataset.live) {
    // A browser keeps few connections to a server: what nobody sees needs none.
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", (event) => { if (event.persisted) open(); });
    if (!document.hidden) open();
  }
})();
