// Package nemesis is what tortures do to processes, networks and servers, whatever runs on them: it
// starts processes, draws faults from a seed, and carries them out. What the processes do, and what
// was promised about it, their own program says: see fleet and durable.
package nemesis
