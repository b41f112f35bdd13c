"""WebShop: our own page model, search and reward, and a generated catalogue in the official schema."""
