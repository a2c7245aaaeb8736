// What the pages do beyond being pages: they refresh themselves, show how far an upload is, and light up the words that
// are being played. Without JavaScript every page and every form works; only these three are missing.
"use strict";

// --- refresh: the same page is asked for again, and its live parts are put in place of the old ones -------------------

const lives = () => [...document.querySelectorAll("[data-live]")];

function keyOf(element) {
  return element && (element.id ? `#${CSS.escape(element.id)}` : element.getAttribute("href") && `a[href="${CSS.escape(element.getAttribute("href"))}"]`);
}

function put(old, fresh) {
  if (!fresh) return;
  // What somebody has opened stays open; a part that stood still for it would show an old state as the present one.
  const opened = [...old.querySelectorAll("details")].map((each) => each.open);
  [...fresh.querySelectorAll("details")].forEach((each, place) => (each.open = opened[place] ?? each.open));
  if (fresh.innerHTML === old.innerHTML || old.querySelector("button:active")) return;
  const focused = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  old.replaceChildren(...fresh.childNodes);
  if (focused) old.querySelector(focused)?.focus();
}

function startRefreshing() {
  const first = lives()[0];
  if (!first) return;
  let lost = 0;
  let asking = false; // a server that is slow gets no slower by being asked again meanwhile
  const refresh = async () => {
    if (document.hidden || asking) return;
    asking = true;
    try {
      const headers = { accept: "text/html", "x-voxint-refresh": "1" };
      const answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout?.(45_000) });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.title = page.title;
      // A recording that is over brings a transcript and more: the whole page anew, once.
      if (first.hasAttribute("data-until-over") && !page.querySelector("[data-until-over]")) return location.reload();
      for (const old of lives()) put(old, page.getElementById(old.id));
      lost = 0;
      document.body.classList.remove("stale");
    } catch {
      lost += 1;
      if (lost > 2) document.body.classList.add("stale");
    } finally {
      asking = false;
    }
  };
  setInterval(refresh, Number(first.dataset.live) * 1000);
  document.addEventListener("visibilitychange", refresh);
}

// --- uploads: one request a file, each with a bar --------------------------------------------------------------------

function startUploads() {
  const form = document.querySelector("[data-upload]");
  if (!form) return;
  const input = form.querySelector("input[type=file]");
  const list = form.querySelector("[data-uploads]");
  input.multiple = true;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    const files = [...input.files];
    for (const file of files) await send(form, list, file, files.length === 1);
    form.reset();
    button.disabled = false;
  });
}

function row(list, name) {
  const item = document.createElement("li");
  const title = document.createElement("bdi");
  const bar = document.createElement("progress");
  const words = document.createElement("span");
  title.textContent = name;
  bar.max = 1;
  bar.value = 0;
  bar.setAttribute("aria-label", `Upload of ${name}`);
  item.append(title, " ", words, bar);
  list.append(item);
  return { item, bar, words };
}

function send(form, list, file, alone) {
  const { item, bar, words } = row(list, file.name);
  const end = (text, failed) => {
    words.textContent = text;
    item.classList.toggle("failed", failed);
    bar.remove();
  };
  if (file.size > Number(form.dataset.most)) {
    end(`is too large: at most ${form.dataset.mostWords}`, true);
    return Promise.resolve();
  }
  const data = new FormData(form);
  const title = data.get("title");
  data.delete("file");
  data.set("once", [...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join(""));
  if (!alone) data.set("title", "");
  else data.set("title", title);
  data.append("file", file, file.name);
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("accept", "application/json");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => {
      if (!event.lengthComputable) return;
      bar.value = event.loaded / event.total;
      words.textContent = event.loaded < event.total ? `${Math.floor((100 * event.loaded) / event.total)} %` : "is being looked into";
    });
    request.addEventListener("load", () => {
      if (request.status === 201) end("is queued", false);
      else end(request.response?.error ?? `was refused (${request.status})`, true);
      done();
    });
    request.addEventListener("error", () => {
      end("could not be sent: the connection broke", true);
      done();
    });
    request.send(data);
  });
}

// --- the player: the word that is spoken lights up; a word, or a line's time, plays from there ------------------------

function startPlayer() {
  const audio = document.querySelector(".player audio");
  const lines = document.querySelector("[data-lines]");
  if (!audio) return;
  const words = lines ? [...lines.querySelectorAll("[data-t]")] : [];
  const starts = words.map((word) => Number(word.dataset.t));
  let lit = null;
  const light = () => {
    const now = audio.currentTime + 0.02;
    let low = 0;
    let high = starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (starts[middle] <= now) low = middle + 1;
      else high = middle;
    }
    const word = low ? words[low - 1] : null;
    if (word !== lit) {
      lit?.classList.remove("lit");
      lit?.closest(".line").classList.remove("lit-line");
      word?.classList.add("lit");
      word?.closest(".line").classList.add("lit-line");
      lit = word;
    }
    if (!audio.paused) requestAnimationFrame(light);
  };
  for (const name of ["play", "seeked", "timeupdate"]) audio.addEventListener(name, light);
  const playFrom = (seconds) => {
    audio.currentTime = seconds;
    audio.play().catch(() => {});
  };
  document.addEventListener("click", (event) => {
    const seek = event.target.closest("[data-seek]");
    if (seek) {
      playFrom(Number(seek.dataset.seek));
    } else if (event.target.matches("[data-lines] [data-t]") && !String(getSelection())) {
      playFrom(Number(event.target.dataset.t));
    }
  });
}

startRefreshing();
startUploads();
startPlayer();
