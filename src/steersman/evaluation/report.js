// Draws the figures of the report: those of the chosen workload when it is first shown, those of no workload at once.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
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

  function draw(plots) {
    for (const plot of plots) {
      const figure = figures[plot.id];
      Plotly.newPlot(plot, figure.data, figure.layout, settings);
    }
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
    document.documentElement.classList.toggle("printing", on);
    for (const plot of sections.filter((section) => !section.hidden).flatMap(drawn)) {
      Plotly.relayout(plot, on ? { width: plot.clientWidth, "font.size": 10 } : { width: null, autosize: true, "font.size": 13 });
    }
  }
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
  draw([...document.querySelectorAll(".plot")].filter((plot) => !plot.closest("section[data-workload]")));
  show(choice ? choice.selectedIndex : 0);
})();
