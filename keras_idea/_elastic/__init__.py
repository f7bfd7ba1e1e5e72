"""Several widths of one model: trained together, each sliced out when it is wanted."""

from keras_idea._elastic.callback import ElasticCallback
from keras_idea._elastic.reading import sliced

__all__ = ["ElasticCallback", "sliced"]
