// Command benchmarks compares tickslot with other libraries, and with lower bounds that no library
// can beat, on servers that it starts itself. It attacks the figures in the documents.
//
//	go run . -short            one line of JSON per claim, in two minutes (make bench WHAT=short)
//	go run . -results .        RESULTS.md and the plots, in an hour (make bench WHAT=all)
//	go run . -only '^durable' -results .    one part of them: the others stay (make bench WHAT=durable)
//	go run . -only '^outbox' -results .     another one (make bench WHAT=outbox)
//	go run . -only mutex       the groups whose names match
//	go run . -only mutex -profile DIR    and CPU profiles of tickslot's part
//
// # How
//
// On a busy machine, an absolute figure says little, but a ratio within one run is reliable. So all
// cases of a group are measured once per round, in an order that rotates. The result is the median
// over all rounds of the ratio within a round, with minimum and maximum. Every group measures
// tickslot twice: how far the ratio of the two is from 1 shows the noise. Before the first round,
// each worker makes one cycle, so that all are connected.
//
// CPU time and memory (schedulers, heartbeats) are measured in separate processes, one per case, so
// that one case does not pay for collecting the garbage of another.
//
// Durable runs are compared with job libraries, and the outbox with libraries that are used as one.
// Each has a fleet of workers and its own database. Their windows are long, so there are fewer
// rounds.
//
// A failing case ends the benchmark, because an error is not a slow figure. A case that did less
// than it claims is also an error. So each case has a proof: a counter of its server or its
// handlers that must have grown by the counted amount.
//
// # What is not promised
//
// Client and servers share one machine, without a network between them. A round trip takes 20 to 60
// µs here and ten times that elsewhere, so savings in round trips are understated. Savings in CPU
// time are not.
//
// It is a separate module, so that users do not get these libraries in their module graph.
package main
