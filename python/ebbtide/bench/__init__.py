"""The papers' benchmark: shots over the store, with the least time any schedule could have reached beside them."""
