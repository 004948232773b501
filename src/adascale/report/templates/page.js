"use strict";
const root = document;
{% include "sort.js" %}
// Says so where a table is wider than the window, until its end is in sight.
for (const box of document.querySelectorAll("div.scroll")) {
  const hint = document.createElement("p");
  hint.className = "swipe";
  hint.textContent = "More columns to the right: scroll the table sideways \u2192";
  hint.setAttribute("aria-hidden", "true");
  box.before(hint);
  const look = () => {
    const more = box.scrollWidth > box.clientWidth + 1;
    hint.hidden = !more;
    box.classList.toggle("more", more && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  };
  box.addEventListener("scroll", look, {passive: true});
  new ResizeObserver(look).observe(box);
  look();
}
// Pictures are enlarged in place.
const buttons = document.querySelectorAll("button.enlarge");
if (buttons.length) {
  const dialog = document.createElement("dialog");
  const large = document.createElement("img"), text = document.createElement("p"), close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.setAttribute("aria-label", "Enlarged picture");
  dialog.append(text, close);
  document.body.append(dialog);
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const image = button.querySelector("img");
      large.src = image.src;
      large.alt = image.alt;
      large.className = image.className;
      dialog.prepend(large);
      text.textContent = image.title || image.alt;
      dialog.showModal();
    });
  }
}
// Every figure can be saved as an SVG file of its own, in the colours that the page has.
for (const button of document.querySelectorAll("button.save")) {
  button.addEventListener("click", () => {
    const svg = button.parentElement.querySelector("svg"), copy = svg.cloneNode(true);
    const style = getComputedStyle(svg);
    copy.setAttribute("xmlns", "http" + "://www.w3.org/2000/svg");
    copy.setAttribute("style", `color: ${style.color}; font-family: sans-serif; --id: ${style.getPropertyValue("--id")}`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], {type: "image/svg+xml"}));
    link.download = button.dataset.name.replace(/[^A-Za-z0-9]+/g, "-").slice(0, 80).toLowerCase() + ".svg";
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
// A link into a part that is folded away unfolds it.
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
};
addEventListener("hashchange", unfold);
unfold();
