// Package tickslot is the root of a module for recurring timers that run at most N times at once in a fleet of hosts. It has no
// code; its packages answer these questions:
//
//   - When is it due? [github.com/tickslot/tickslot/schedule]
//   - May it run here, now, and what became of it? [github.com/tickslot/tickslot/timer]. Start here.
//   - Is this lock still mine? [github.com/tickslot/tickslot/dlock], also for a mutex or semaphore of your own.
//   - Where are the locks kept? On Redis: [github.com/tickslot/tickslot/dlock/redislock]. On Postgres, MySQL or SQLite:
//     [github.com/tickslot/tickslot/dlock/sqllock], with pgx [github.com/tickslot/tickslot/dlock/sqllock/pgxlock]. In the memory of
//     one process: [github.com/tickslot/tickslot/dlock/memlock].
//   - Does my own store keep the contract? [github.com/tickslot/tickslot/dlock/dlocktest]
//   - What do probes answer? [github.com/tickslot/tickslot/health]
//
// What is promised, and what is not: docs/guarantees.md. How the parts work together: docs/architecture.md.
package tickslot
