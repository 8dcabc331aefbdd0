// Values under the pointer, or along the arrow keys; series that a click on the legend hides.

function setUpPlot(figure) {
  const svg = figure.querySelector("svg.chart");
  const cursor = svg.querySelector(".cursor");
  const tip = figure.querySelector(".tip");
  const series = [...svg.querySelectorAll(".series")];
  const columns = new Map(); // place along x -> what each series has there
  for (const group of series) {
    for (const dot of group.querySelectorAll("circle")) {
      const place = dot.getAttribute("cx");
      if (!columns.has(place)) columns.set(place, []);
      columns.get(place).push({ group, dot });
    }
  }
  const places = [...columns.keys()].map(Number).sort((a, b) => a - b);
  let at = -1;

  function show(index) {
    at = Math.max(0, Math.min(places.length - 1, index));
    const place = places[at];
    const found = columns.get(place.toFixed(1)).filter(({ group }) => !group.classList.contains("off"));
    for (const dot of svg.querySelectorAll("circle.at")) dot.classList.remove("at");
    cursor.setAttribute("transform", `translate(${place} 0)`);
    figure.classList.add("pointed");
    const lines = found.map(({ group, dot }) => {
      dot.classList.add("at");
      const line = make("div", undefined, group.getAttribute("class").replace("series", "value"));
      line.append(make("span", group.dataset.name), " ", make("b", dot.dataset.y));
      return line;
    });
    const head = columns.get(place.toFixed(1))[0].dot.dataset.x;
    tip.replaceChildren(make("div", `${svg.dataset.x} ${head}`, "soft"), ...lines);
    tip.hidden = false;
    const box = svg.getBoundingClientRect();
    const left = (place / svg.viewBox.baseVal.width) * box.width;
    tip.style.left = `${left > box.width / 2 ? Math.max(0, left - tip.offsetWidth - 12) : left + 12}px`;
    tip.style.top = `${box.top - figure.getBoundingClientRect().top + 24}px`;
  }

  function hide() {
    at = -1;
    tip.hidden = true;
    figure.classList.remove("pointed");
    for (const dot of svg.querySelectorAll("circle.at")) dot.classList.remove("at");
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    let nearest = 0;
    for (let index = 1; index < places.length; index++) {
      if (Math.abs(places[index] - x) < Math.abs(places[nearest] - x)) nearest = index;
    }
    show(nearest);
  });
  svg.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    if (event.target !== figure || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "ArrowRight") show(at + 1);
    else show(at < 0 ? places.length - 1 : at - 1);
  });
  for (const button of figure.querySelectorAll(".legend button")) {
    const group = series.find((each) => each.dataset.name === button.dataset.series);
    button.onclick = () => {
      const isOff = group.classList.toggle("off");
      button.setAttribute("aria-pressed", String(!isOff));
    };
    button.onpointerenter = () => { svg.classList.add("some"); group.classList.add("this"); };
    button.onpointerleave = () => { svg.classList.remove("some"); group.classList.remove("this"); };
  }
}
