// Light or dark. It runs before the page is shown, as a plain script, so that nothing flashes.

{
  const NAME = "gannet.theme";
  const ORDER = ["auto", "light", "dark"];
  const LABELS = { auto: "as the system", light: "light", dark: "dark" };
  const root = document.documentElement;
  const kept = () => (ORDER.includes(localStorage.getItem(NAME)) ? localStorage.getItem(NAME) : "auto");

  const apply = (theme) => {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    const label = `Colours: ${LABELS[theme]}`;
    button?.setAttribute("aria-label", label);
    button?.setAttribute("title", label);
  };

  apply(kept());
  document.addEventListener("DOMContentLoaded", () => {
    apply(kept());
    // Not every page has the switch.
    document.getElementById("theme")?.addEventListener("click", () => {
      const next = ORDER[(ORDER.indexOf(kept()) + 1) % ORDER.length];
      localStorage.setItem(NAME, next);
      apply(next);
    });
  });
}
