"""Here so that every test finds `serving`."""
