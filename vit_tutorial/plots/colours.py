"""One colour per thing, for the diagram, every figure and the coloured words of the text."""

# Okabe and Ito's palette: distinguishable with every common colour blindness, and in print.
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000"]

COLOURS = {
    "query": "#0072B2",
    "key": "#D55E00",
    "value": "#009E73",
    "class token": "#E69F00",
    "positions": "#56B4E9",
    "norm": "#CC79A7",
    "attention": "#332288",  # this and the next from Paul Tol's muted palette
    "mlp": "#999933",
    "projection": "#7F7F7F",
    # Data sets, and ours beside another, never share a figure with the parts above.
    "mnist": "#0072B2",
    "cifar10": "#D55E00",
    "shapes": "#009E73",
    "digits": "#E69F00",
    "ours": "#0072B2",
    "other": "#7F7F7F",
}

# Of letters in these colours: dark enough to be read on white, and light enough on black.
INKS = {
    "#0072B2": ("#0072B2", "#62B5EA"),
    "#D55E00": ("#B34F00", "#FF9352"),
    "#009E73": ("#007A58", "#35C99C"),
    "#E69F00": ("#8A5F00", "#E69F00"),
    "#332288": ("#332288", "#A99BEA"),
    "#999933": ("#999933", "#CFCF5A"),
    "#7F7F7F": ("#6B6B6B", "#A6A6A6"),
}
