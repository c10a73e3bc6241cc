// Puts each new look in the page. Charts hold still while a pointer reads them; without this script the page loads itself again.
"use strict";
(() => {
  const main = document.getElementById("look");
  const tip = document.querySelector(".tip");
  const lost = document.getElementById("lost");
  const link = document.getElementById("link");
  let final = false, report = "";

  // Nobody answers for long after the verdict, so the report is kept here and its link goes on.
  const keep = async () => {
    const link = document.getElementById("report");
    if (!link) return;
    if (!report) {
      const answer = await fetch("report.html");
      if (!answer.ok) return;
      report ||= URL.createObjectURL(await answer.blob());
    }
    document.getElementById("report").href = report;
  };

  const readOuts = () => {
    const script = document.createElement("script");
    script.textContent = document.getElementById("read-outs").textContent;
    document.body.append(script);
    script.remove();
  };

  const show = (html) => {
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    for (const part of fresh.content.querySelectorAll("[data-part]")) {
      const old = main.querySelector(`[data-part="${part.dataset.part}"]`);
      if (part.dataset.part === "charts") {
        if (!tip.hidden) continue;
        old.replaceWith(part);
        readOuts();
      } else if (old.outerHTML !== part.outerHTML) {
        old.replaceWith(part);
      }
    }
    const top = main.querySelector('[data-part="top"]');
    document.title = top.dataset.title;
    final = top.dataset.final === "yes";
    keep().catch(() => {});
  };

  const connected = (yes) => {
    document.body.classList.toggle("gone", !yes);
    link.textContent = yes ? "live" : final ? "over" : "not connected";
    lost.hidden = yes || final;
  };

  final = main.querySelector('[data-part="top"]').dataset.final === "yes";
  readOuts();
  keep().catch(() => {});
  const open = () => {
    const events = new EventSource("events");
    events.onopen = () => connected(true);
    events.onmessage = (event) => show(JSON.parse(event.data));
    events.onerror = () => {
      connected(false);
      // A browser gives a stream up for good on some answers; another run may come to the same address.
      if (events.readyState === EventSource.CLOSED) { events.close(); setTimeout(open, 3000); }
    };
  };
  open();
})();
