// What the page says, in its own language where there is a catalogue, else in English.

import { EN } from "./text/en.mjs";

const LANGUAGES = { en: EN };

export const TEXT = LANGUAGES[globalThis.document?.documentElement.lang.slice(0, 2)] ?? EN;
