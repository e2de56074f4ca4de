"""Adapters for frameworks of agents, each in a module of its own that needs that framework."""
