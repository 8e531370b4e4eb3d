"""The chapters' drawings, a module each: data in, figure out. What several chapters draw stands in ``plots``."""
