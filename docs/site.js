// What the theme leaves out for people who use a keyboard or a screen reader.
document.querySelector('.md-search[role="dialog"]')?.setAttribute("aria-label", "Search");
const reachable = () => {
  for (const box of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap, .md-typeset p:has(> img.picture)")) {
    if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0"); // else its end cannot be reached without a mouse
  }
};
addEventListener("load", reachable);
addEventListener("resize", reachable);
