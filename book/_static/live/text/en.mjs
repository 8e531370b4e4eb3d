// Every word that the page's scripts say, in English. A translation is a file like this one, and its line in text.mjs.

// Near 1 a decimal, and 100 % for nothing that only comes close to it.
const percent = (p) => (p > 0.99 && p < 1 ? `${Math.min(100 * p, 99.9).toFixed(1)} %` : `${(100 * p).toFixed(0)} %`);
const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
const token = (i) => (i === 0 ? "the class token" : `patch ${i}`);

export const EN = {
  percent,
  number,
  token,
  tile: (i, columns) => (i === 0 ? "the class token" : `patch ${i}: row ${Math.ceil(i / columns)}, column ${((i - 1) % columns) + 1}`),

  failed: (reason) => `The model could not be loaded: ${reason}. Reload the page; the picture shows what it would do.`,
  missing: (file) => `${file} is missing or damaged`,
  loading: "The model is on its way …",

  pad: {
    label: "A sheet to draw a digit on",
    invitation: "Draw a digit here",
    undo: "Undo",
    clear: "Clear",
    keys: "Without a mouse: arrow keys move the pen, the space bar puts it down and lifts it, Shift takes small steps, Backspace undoes, Delete clears.",
    ours: "This one is ours. Just draw over it.",
    examples: "Or let us draw a",
    example: (digit) => `Draw a ${digit}`,
    seen: "What the model gets: 28 × 28 grey values",
    empty: "?",
    answers: "How sure the model is of each digit",
    nothing: "an empty sheet",
    sure: (p) => `${percent(p)} sure`,
    heard: (digit, p) => `The model reads a ${digit}, and is ${percent(p)} sure.`,
  },
  bar: {
    reads: (digit, p) => `It reads a ${digit}, ${percent(p)} sure`,
    lit: (i) => `lit: ${token(i)}`,
    back: "Redraw",
  },
  patches: {
    grid: (n) => `The digit in ${n} patches. Choose one`,
    numbers: (i, n) => `Patch ${i} is ${n} grey values, 0 for black and 255 for white`,
    row: (n) => `The same ${n}, in one row: this is all the model will ever see of the patch.`,
    sizes: "Cut it into patches of",
    large: "7 × 7",
    small: "4 × 4",
    fetching: "Fetching a model for small patches, 600 kB …",
  },
  tokens: {
    grid: "Choose a token",
    content: (i) => (i === 0 ? "learned, the same for every image" : "its pixels, projected to 96 numbers"),
    position: (i) => (i === 0 ? "no position: zeros" : `position ${i}: sines and cosines of its row and column`),
    sum: "the token",
    full: (number) => `Full colour: ${number} or more, and −${number} or less.`,
  },
  attention: {
    queries: "Who asks? Choose the query",
    heads: (depth, heads) => `${depth * heads} heads, a row for each layer. Choose one`,
    head: (layer, head) => `layer ${layer}, head ${head}`,
    layer: (layer) => `layer ${layer}`,
    weights: (layer, head, i) => `Where ${token(i)} looks, in layer ${layer}, head ${head}`,
    scale: (most) => `A map’s strongest colour is its own largest weight, here ${percent(most)}.`,
    strongest: "Below each map, the weight of its strongest patch.",
    upTo: (head, weight) => `${head}, strongest patch ${percent(weight)}`,
    weight: (i, weight) => `${token(i)}, weight ${percent(weight)}`,
    query: (i) => `query of ${token(i)}`,
    key: (i) => `key of ${token(i)}`,
    value: (i) => `value of ${token(i)}`,
    dot: "q · k: multiply pair by pair, add up",
    score: (size, heads) => `÷ √${size}: the score. (${heads} heads share ${size * heads} numbers, ${size} each.)`,
    softmax: (n) => `softmax over ${n} scores (${n - 1} patches, 1 class token): the weight`,
    full: (what, largest) => `${what}. Full colour: ±${number(largest)}`,
    out: (n) => `the sum of all ${n} values, each times its weight: what the head hands on`,
  },
  stream: {
    caption: "The class token after each layer, and the answer that the classifier would read off it there. A token’s length is the root of the sum of its squared numbers. Each layer adds to the tokens: the stronger the grey of a patch, the longer its token has become.",
    stage: "after", start: "the start", layer: (b) => `layer ${b}`,
    scale: (longest) => `The strongest grey is a length of ${number(longest, 1)}.`,
    lengths: "lengths of the patches", length: "its own length", answer: "it would say",
  },
  logits: {
    caption: "Ten scores, and the softmax of them.",
    empty: "The sheet is empty. Draw a digit, and here are its ten scores.",
    digit: "digit", logit: "logit", probability: "probability",
  },

  guess: {
    question: "Your guess: what does the model say to your digit now?",
    options: { same: "The same, about as sure", less: "The same, less sure", other: "Something else" },
    right: "You called it.", wrong: "Not quite.",
    happened: {
      unchanged: (digit) => `It still says ${digit}. Unchanged by the shuffle: all ten probabilities are the same.`,
      same: (digit, before, after) => `It still says ${digit}, and is about as sure: ${percent(after)}, before ${percent(before)}.`,
      less: (digit, before, after) => `It still says ${digit}, but went from ${percent(before)} to ${percent(after)}.`,
      other: (digit, before) => `It now says ${digit}, where it said ${before}.`,
    },
    before: "before", after: "after", mean: (count) => `mean of ${count}`,
    orders: (accuracies) => `${accuracies.length} other orders, each the same for all images: ${accuracies.map(percent).join(", ")}.`,
    accuracy: (images) => `Right on ${images.toLocaleString("en")} test images`,
    empty: "Draw a digit first.",
  },
  pieces: {
    together: "What the model gets: each patch, and the position that it’s told",
    places: "Put each patch where its position says:",
    alone: "What the model gets: each patch, and no position",
    wrong: "What it takes for patches:",
  },
  controls: { order: "Shuffle again", layer: "Layer", head: "Head", temperature: "Temperature" },
  chooser: "Which part shall we break?",
  experiments: {
    shuffleTokens: {
      title: "Shuffle patches and positions together",
      what: "We deal the patches to the model in another order. Each one keeps the position that it was told, like a jigsaw piece with its place written on the back.",
      why: "Each head hands on a sum over all tokens (the line with Σ above), and a sum doesn’t care in which order it is added up. Everything else in a layer looks at one token at a time. The model gets the same pieces with the same places on their backs, so it knows the same picture.",
    },
    shufflePatches: {
      title: "Shuffle the patches, leave the positions",
      what: "Now the pieces move and the positions stay: whatever patch comes first is told that it belongs at the top left.",
      why: "Position is the only thing that tells the model where a patch belongs. Each piece now has a wrong place on its back, so it’s another picture: the one above. The answer is the model’s answer to that.",
    },
    noPositions: {
      title: "Take the positions away",
      what: "No piece has a place on its back any more. The order stays as it was.",
      why: "Without positions a digit is a bag of patches. The model learned to read patches with places, and the same strokes can belong to many digits.",
    },
    shuffleBag: {
      title: "Now shuffle them, still without positions",
      what: "The positions stay off, and only the order changes. “Before” is the model of the last card, with its patches in order; “after” is the same model, with its patches shuffled.",
      why: "A bag has no order. The model never knew in which order the patches came, so there’s nothing that a shuffle could change.",
    },
    muteHead: {
      title: "Mute a head",
      what: "One head of one layer hands on zeros; the others work as before.",
      why: "Heads share the work, and what the others add is still there. Some are worth more than others: try them all.",
    },
    muteBlock: {
      title: "Skip a layer",
      what: "The tokens pass one layer by, as if it had nothing to add. Try each of them.",
      why: "A layer adds to the tokens, it doesn’t replace them. So a late layer can go, and most digits are still read. But skip the first, and the others look for what was never written.",
    },
    uniform: {
      title: "Look at everything equally",
      what: "Every token gives every token the same weight, in all layers.",
      why: "Each head now hands on the mean of all values, whoever asks. The model can no longer pick out the patches that matter.",
    },
    temperature: {
      title: "Change the temperature",
      what: "All scores are divided by a temperature before the softmax: above 1 attention spreads out, below 1 it makes up its mind.",
      why: "The weights were trained at temperature 1. Blur them and each head mixes in what it learned to ignore. Sharpening does much less harm.",
    },
    unscaled: {
      title: "Forget to divide by √32",
      what: "The scores go into the softmax as they are, 5.7 times as large as in training.",
      why: "It’s the same as a temperature of 0.18: every head looks at little but its best match. For most digits that’s enough.",
    },
    acrossBatch: {
      title: "Patient 2: attention across the batch",
      what: "Images go through a model in batches. Here tokens look at the same token of other images, where they should look at their own image. Yours is alone in its batch.",
      why: "The class token can look at nothing but itself. It never sees a patch, so its answer is the same whatever you draw.",
    },
    deadNorm: {
      title: "Patient 3: the norms are never called",
      what: "Before its heads and its MLP, a layer brings the tokens to about the same length: that’s a norm. Here both get the raw tokens.",
      why: "The weights were trained on normalised tokens. The raw ones are three to nine times as long, and everything behind them is thrown off.",
    },
    reshape: {
      title: "Patient 4: reshape without permute",
      what: "The code that cuts the patches forgets a step, the permute. So each “patch” is what lies next to each other in memory: whole rows of pixels.",
      why: "The shapes are right and no error is raised, but the model gets pixels that it never saw side by side. Trained this way from the start, a model learns to live with it: that’s why the bug survives.",
    },
    allTokens: {
      title: "Patient 10: the classifier reads every token",
      what: "The mean of the scores of all tokens answers, where only the class token should.",
      why: "Nobody trained the patch tokens to answer, and yet they do it quite well: by the last layer they know what the class token knows.",
    },
  },

  code: {
    label: "Python for your digit",
    copy: "Copy", copied: "Copied", selected: "Selected: copy it with Ctrl+C",
  },
};
