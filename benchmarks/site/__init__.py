"""What the documentation's site is made of: pages generated at build time, pictures, marks on tables."""
