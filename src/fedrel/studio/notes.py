"""How to read each plot of a report: one short paragraph, the same on every page that has the plot."""

from __future__ import annotations

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
CONFUSION = (
    "Each row is a relation, and what its test sentences were found to be. Blue on the diagonal is right,"
    " orange beside it is confused; the stronger, the larger the share of the row. Numbers are sentences."
)
RARE = " The rarest relations share the last row and column, whose corner holds confusions among them too."
BY_RELATION = "How well each method finds each relation, the most frequent first; the stronger, the better."
AT_SITES = (
    "Each site is tested on a share of the test set that is labelled as its own data are. The dotted line is"
    " the mean of the sites, all counted alike; the worst site stands out."
)
STRIPS = (
    "Each dot is a site of a run, tested on a share of the test set that is labelled as its own data are; the"
    " upright stroke is the sites' mean. The further left the leftmost dots, the less a method does for some."
)
BY_BYTES = (
    "The same development metric over all bytes that the sites had sent by then, on a logarithmic scale:"
    " further left is cheaper."
)
LABELS = "How many training examples of each relation each site holds; a gap is none. Colour goes by powers."
SIMILARITIES = {
    "first": "The mean cosine similarity of each class vector to the site's other ones, after the first round"
    " in which the site was active. The smaller, the stronger the colour: a vector that stands further apart."
    " Where this map looks like that of the labels, class vectors tell what a site has.",
    "last": "The same after the last round in which the site was active. Where the rows have become alike, the"
    " labels of all sites together shape the vectors.",
}
OBSERVATIONS = (
    "Rank correlations of how much there is of a class with its d, round by round: -1 is what the paper's"
    " authors saw, 0 is no connection."
)
