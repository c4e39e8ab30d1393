"""`headgate.v1.Limits`: costs that are known later, in two steps. See service.py."""
