"""How to read each plot: one short paragraph in plain language, the same on every page that has the plot."""

CURVE = (
    "Each line follows a list of guesses from the surest to the least sure. From left to right more of the"
    " true facts have been found (recall); the height is the share of the guesses so far that is right"
    " (precision). Higher is better everywhere; the area under a line is its AUC."
)
DEVELOPMENT = (
    "How good the shared model is after each round, on data it does not train on. A line that rises earlier"
    " needs fewer rounds, hence less traffic; where it flattens, more rounds no longer help."
)
LOSS = (
    "What training makes smaller, averaged over the sites active in a round. It falls as the model fits its"
    " sentences; a fall while the development set gets worse is overfitting."
)
SELECTION = (
    "Of the sentences trained on in a round, the share that really state their fact rather than only mention"
    " its two names: how well signal is told from noise. It is known only for corpora that come with the"
    " truth of each sentence."
)
SENT_BY_SITES = "What left the sites in each round, by kind of message."
SENT_TO_SITES = "What the sites were sent in each round, on the same scale."
BOUNDARY = (
    "All bytes that the sites sent to the coordinator and were sent by it in a whole run. Shorter bars are"
    " cheaper; what a method asks of its sites beyond the weights shows as the difference."
)
KEPT = " The dotted line marks the round whose weights were kept."
MEAN_CURVES = " Lines are means over seeds."
BANDS = " Lines are means over seeds, bands one standard deviation."
LEGEND = " Select a name in the legend to hide or show its line."
