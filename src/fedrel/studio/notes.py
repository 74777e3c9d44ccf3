"""How to read each plot of a report: one short paragraph, the same on every page that has the plot."""

from __future__ import annotations

CURVE = (
    "Each line goes through a list of guesses, from the surest to the least sure. From left to right, more of"
    " the true facts have been found (recall). The height is the share of the guesses so far that are right"
    " (precision). Higher is better everywhere; the area under a line is its AUC."
)
DEVELOPMENT = (
    "How good the shared model is after each round, on data it does not train on. A line that rises earlier"
    " needs fewer rounds, hence less traffic; where it is flat, more rounds no longer help."
)
LOSS = (
    "The training loss, averaged over the sites active in a round. It falls as the model fits its sentences."
    " If it falls while the development set gets worse, the model is overfitting."
)
SELECTION = (
    "The share of the sentences trained on in a round that really state their fact, and do not only mention"
    " its two names. Higher is better: less noise is trained on. It is known only for corpora that come with"
    " the truth of each sentence."
)
SENT_BY_SITES = "What the sites sent in each round, by kind of message."
SENT_TO_SITES = "What was sent to the sites in each round, on the same scale."
BOUNDARY = (
    "All bytes that went from the sites to the coordinator and back in a whole run. Shorter bars are cheaper."
    " Methods differ by what they send besides the weights."
)
KEPT = " The dotted line marks the round whose weights were kept."
MEAN_CURVES = " Lines are means over seeds."
BANDS = " Lines are means over seeds, bands one standard deviation."
CUT = " A mean ends at the last round of its shortest run; its other runs went on."
LEGEND = " Select a name in the legend to hide or show its line."
CONFUSION = (
    "Each row is a relation; its cells say which relations its test sentences were given. Blue on the diagonal"
    " is right, orange beside it is wrong; the stronger the colour, the larger the share of the row. Numbers"
    " are sentences."
)
RARE = (
    " The rarest relations share the last row and column; their common cell also counts mistakes among them."
)
BY_RELATION = (
    "How well each method finds each relation, the most frequent first. The stronger the colour, the better."
)
AT_SITES = (
    "Each site is tested on {part}. The dotted line is the mean of the sites, whatever their size. The worst site"
    " has another colour."
)
STRIPS = (
    "Each dot is a site of a run, tested on {part}. The vertical line is the mean of the sites. Dots far to the"
    " left are sites for which the method does little."
)


def tested_on(note: str, natural: bool) -> str:
    """A note about sites, with what they are tested on: their own text, or a part of the test set like it."""
    like = "a share of the test set whose labels are distributed as in its own data"
    return note.format(part="its own test part" if natural else like)


BY_BYTES = (
    "The same development metric over all bytes that the sites had sent by then, means over seeds. Further left is"
    " cheaper."
)
LOGARITHMIC = " The scale of bytes is logarithmic."
BY_SECONDS = (
    "The same over the seconds that rounds took with their evaluation, on the machine that ran them. Further left"
    " is faster; runs of different machines cannot be compared."
)
SITE_ROUNDS = (
    "A row for each site, a column for each round or few rounds. Blue is where a site took part: the stronger, the"
    " higher the training loss that it reported. Orange with a cross is where an answer of it was refused. Empty is"
    " where it was not drawn."
)
LABELS = (
    "How many training examples of each relation each site holds; an empty cell is none. Colours are on a"
    " logarithmic scale."
)
SIMILARITIES = {
    "first": "The mean cosine similarity of each class vector to the site's other ones, after the first round"
    " in which the site was active. The stronger the colour, the smaller the similarity: the vector stands"
    " further apart. Where this map looks like that of the labels, class vectors tell what a site has.",
    "last": "The same after the last round in which the site was active. Where the rows have become alike, the"
    " labels of all sites together shape the vectors.",
}
OBSERVATIONS = (
    "Rank correlations of how much there is of a class with its d, round by round: -1 is what the paper's"
    " authors saw, 0 is no connection."
)
