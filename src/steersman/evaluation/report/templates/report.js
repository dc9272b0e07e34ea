// Draws the figures of the report: those of the chosen workload when it is first shown, those of no workload at once.
(async () => {
  // Both are compressed, which makes a report a third as large.
  async function unpacked(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  if (!("DecompressionStream" in window)) {
    document.querySelectorAll(".plot").forEach((plot) => { plot.textContent = "This browser is too old to draw plots."; });
    return;
  }
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly");
  document.head.append(library);
  const figures = JSON.parse(await unpacked("figures"));
  const darker = JSON.parse(document.getElementById("dark").textContent);
  const isDark = window.matchMedia("screen and (prefers-color-scheme: dark)");
  let dark = isDark.matches;
  const sections = [...document.querySelectorAll("section[data-workload]")];
  const hidden = new Set();
  const settings = { responsive: true, displaylogo: false, displayModeBar: false };

  function drawn(section) {
    return [...section.querySelectorAll(".plot.js-plotly-plot")];
  }

  function applyHidden(section) {
    for (const plot of drawn(section)) {
      const traces = plot.data.map((trace, i) => (trace.meta === undefined ? -1 : i)).filter((i) => i >= 0);
      if (traces.length) {
        Plotly.restyle(plot, { visible: traces.map((i) => !hidden.has(plot.data[i].meta)) }, traces);
      }
    }
    for (const figure of section.querySelectorAll("figure[data-policy]")) {
      figure.hidden = hidden.has(Number(figure.dataset.policy));
    }
  }

  function recoloured(part) {
    if (typeof part === "string") return darker[part] ?? part;
    if (Array.isArray(part)) return part.map(recoloured);
    if (part === null || typeof part !== "object") return part;
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, recoloured(value)]));
  }

  function draw(plots) {
    for (const plot of plots) {
      const figure = dark ? recoloured(figures[plot.id]) : structuredClone(figures[plot.id]);
      Plotly.react(plot, figure.data, figure.layout, settings);
    }
  }

  function paint(on) {
    if (on === dark) return;
    dark = on;
    draw(document.querySelectorAll(".plot.js-plotly-plot"));
    sections.forEach(applyHidden);
  }

  function show(index) {
    sections.forEach((section, i) => { section.hidden = i !== index; });
    const section = sections[index];
    if (!section) return;
    draw(section.querySelectorAll(".plot:not(.js-plotly-plot)"));
    drawn(section).forEach((plot) => Plotly.Plots.resize(plot));
    applyHidden(section);
  }

  const choice = document.getElementById("workload");
  if (choice) choice.addEventListener("change", () => show(choice.selectedIndex));
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const policy = Number(button.dataset.policy);
      if (!hidden.delete(policy)) hidden.add(policy);
      document.querySelectorAll(`.legend button[data-policy="${policy}"]`).forEach((twin) => {
        twin.setAttribute("aria-pressed", String(!hidden.has(policy)));
      });
      sections.filter((section) => !section.hidden).forEach(applyHidden);
    });
  }
  function printing(on) {
    paint(!on && isDark.matches);
    document.documentElement.classList.toggle("printing", on);
    for (const plot of sections.filter((section) => !section.hidden).flatMap(drawn)) {
      Plotly.relayout(plot, on ? { width: plot.clientWidth, "font.size": 10 } : { width: null, autosize: true, "font.size": 13 });
    }
  }
  isDark.addEventListener("change", () => paint(isDark.matches));
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
  draw([...document.querySelectorAll(".plot")].filter((plot) => !plot.closest("section[data-workload]")));
  show(choice ? choice.selectedIndex : 0);
})();
