"""How much accuracy each intervention of the page "Draw a digit" costs, on the 10,000 test images of MNIST.

python book/interventions.py     writes vit_tutorial/recorded/live/interventions.json again, in about ten minutes
"""

import json

from vit_tutorial.live import MEASURED, measure
from vit_tutorial.recipes import load_split
from vit_tutorial.runs import load_recorded, provenance

RUNS = ("mnist", "mnist-patch4")

if __name__ == "__main__":
    found = {"data": {}, "images": {}, "runs": {}, **provenance("cpu")}
    for run in RUNS:
        model, recipe = load_recorded(run)
        test = load_split(recipe, "test")
        found["data"][run], found["images"][run], found["runs"][run] = test.variant, len(test), []
        for row in measure(model, test, recipe):
            found["runs"][run].append(row)
            print(run, row["name"], row["choices"], f"{row['accuracy']:.2%}", flush=True)
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
