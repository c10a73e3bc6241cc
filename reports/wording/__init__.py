"""Numbers and strangers' texts as people read them."""
