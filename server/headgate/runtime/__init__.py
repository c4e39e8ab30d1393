"""The life of a process: starting, serving, stopping, and what it shows of itself meanwhile."""
