"""The layers of an encoder of BERT's family over packed pieces, with the backward pass written out."""
