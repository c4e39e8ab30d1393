"""A rule plane in simulation: root, relays and nodes on virtual time, with what breaks between them."""
