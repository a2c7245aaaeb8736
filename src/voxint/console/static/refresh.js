// Keeps a page's live part fresh: the same page is asked for again, and its live part put in place of the old one.
// Without JavaScript the page is as complete; it is only as old as its last load.
"use strict";
const part = document.querySelector("[data-live]");
if (part) {
  const every = Number(part.dataset.live) * 1000;
  let lost = 0;
  const refresh = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-live]");
      const old = document.querySelector("[data-live]");
      if (!fresh || !old) return;
      document.title = page.title;
      if (fresh.innerHTML !== old.innerHTML) {
        const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        old.replaceChildren(...fresh.childNodes);
        if (focused) old.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
      }
      lost = 0;
      document.body.classList.remove("stale");
    } catch {
      lost += 1;
      if (lost > 2) document.body.classList.add("stale");
    }
  };
  setInterval(refresh, every);
  document.addEventListener("visibilitychange", refresh);
}
