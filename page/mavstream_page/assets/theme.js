// Light or dark: as the system says, unless this browser has chosen.
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = localStorage.getItem("mavstream-theme");
    const dark = chosen ? chosen === "dark" : system.matches;
    root.dataset.theme = dark ? "dark" : "light";
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-toggle]")) return;
    localStorage.setItem("mavstream-theme", root.dataset.theme === "dark" ? "light" : "dark");
    apply();
  });
})();
