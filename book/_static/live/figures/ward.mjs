// Figure 12.3: each patient beside its healthy twin, without names. The reader says which is sick, and sees.

import { button, figure, menu, number, say, told } from "./stage.mjs";
import { h } from "../dom.mjs";
import { shuffled } from "../interventions.mjs";

const LETTERS = ["A", "B"], DIGITS = { accuracy: 1, loss: 2 }, BETTER = { accuracy: 1, loss: -1 };

figure("ward", (stage, data, text) => {
  const { patients } = data, line = told(3), list = h("div", { class: "fig-ward" });
  let column = "accuracy", games = 0, guesses;
  const columns = menu(text.judge, Object.entries(text.columns), column, (value) => { column = value; begin(); });
  const again = button(text.again, () => begin());
  stage.append(h("div", { class: "fig-controls" }, columns.element, again), line, list);

  /** Whether the sick model does worse, better, or neither for sure. */
  const verdict = ({ effect: [, low, high] }) => (low > 0 === high > 0 ? (low > 0 === BETTER[column] > 0 ? "better" : "clear") : "hidden");

  function begin() {
    const sides = shuffled(2 * patients.length, ++games); // where the sick one lies changes from game to game
    guesses = patients.map(() => null);
    list.replaceChildren(...patients.map((patient, i) => row(patient, i, sides[i] % 2)));
    tell();
  }

  function row(patient, i, sickSide) {
    const measured = patient[column], runs = LETTERS.map((_, side) => (side === sickSide ? measured.sick : measured.healthy));
    const all = runs.flat(), low = Math.min(...all), high = Math.max(...all), digits = DIGITS[column];
    const place = (run) => `${4 + (92 * (run - low)) / (high - low || 1)}%`;
    const strips = runs.map((values, side) => h("div", { class: "fig-strip", role: "img", "aria-label": say(text.runs, { letter: LETTERS[side], runs: values.map((value) => number(value, digits)).join(", ") }) },
      h("span", { "aria-hidden": "true" }, LETTERS[side]), h("span", { class: "fig-dots" }, ...values.map((value) => h("i", { style: `left: ${place(value)}` })))));
    const answer = h("p", { class: "fig-answer" });
    const buttons = LETTERS.map((letter, side) => button(say(text.guess, { letter }), () => guess(side)));
    const name = say(text.patient, patient) + (patient.kind ? `, ${text.kinds[patient.kind]}` : "");

    function guess(side) {
      if (guesses[i] !== null) return;
      guesses[i] = side === sickSide;
      buttons.forEach((each, letter) => { each.setAttribute("aria-pressed", letter === side); each.setAttribute("aria-disabled", "true"); });
      strips.forEach((strip, letter) => strip.classList.add(letter === sickSide ? "is-sick" : "is-healthy"));
      const signed = measured.effect.map((value) => (value > 0 ? "+" : "") + number(value, digits));
      const why = say(text[verdict(measured)], { effect: signed[0], low: signed[1], high: signed[2] });
      answer.textContent = `${guesses[i] ? text.right : text.wrong} ${say(text.sick, { letter: LETTERS[sickSide] })}. ${why}`;
      tell();
      line.prepend(`${name}: ${answer.textContent} `);
    }

    const ends = h("div", { class: "fig-ends" }, h("span", {}, number(low, digits)), h("span", {}, number(high, digits)));
    return h("div", { role: "group", "aria-label": name }, h("b", {}, name), h("div", {}, ...strips, ends), h("div", { class: "fig-buttons" }, ...buttons), answer);
  }

  function tell() {
    const made = guesses.filter((each) => each !== null), right = made.filter(Boolean).length;
    const clear = patients.filter((patient) => verdict(patient[column]) === "clear").length;
    const score = made.length ? say(text.score, { right, guessed: made.length }) : text.nobody;
    line.textContent = made.length === patients.length ? `${score} ${say(text.end, { clear, all: patients.length })}` : score;
  }
  begin();
});
