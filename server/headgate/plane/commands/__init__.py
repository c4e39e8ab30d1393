"""Commands below `headgate rules` that ask a plane: publish, put, delete, rollback, halt, shadow, status, history."""
