"""Drivers that serve several tasks; a task may bring another. `helpers.sandbox.drivers` says what a driver is."""
