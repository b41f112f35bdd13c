"""WebShop: own page model, search, reward and a generated catalogue in the official schema."""
