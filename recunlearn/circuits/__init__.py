"""Cut-graph engine: the attribution of every edge of any nn.Module."""
