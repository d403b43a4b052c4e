// Command benchmarks measures tickslot beside its rivals and beside floors that nothing can beat,
// on servers that it starts itself. It attacks the figures that the documents state.
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
// On a busy machine a figure says little, but a ratio within one run is reliable. So all cases of a
// group are measured once per round, in an order that rotates from round to round, and what is
// reported is the median over the rounds of the ratio within a round, with the least and the
// greatest. Every group measures tickslot twice: the ratio of the two, which should be 1, is how
// much of the other ratios is noise. Before the first round each worker makes one cycle, so that
// all are connected.
//
// CPU time and memory (schedulers, heartbeats) are measured in processes of their own, one per
// case, so that the garbage of one is not collected at the expense of another.
//
// Durable runs are measured beside libraries for jobs, and the outbox beside libraries that are
// used as one, each with a fleet of workers and a database of its own. Their windows are long, so
// there are fewer rounds.
//
// A case that fails ends the benchmark: an error is not a slow figure. A case that did less than it
// claims is an error, too: each has a proof, a counter that its server or its handlers keep, which
// must have grown with what was counted here.
//
// # What is not promised
//
// Client and servers share one machine, without a network between them. A round trip takes 20 to 60
// µs here and ten times that elsewhere, so what is saved in round trips is understated; what is
// saved in CPU time is not.
//
// It is a module of its own, so that no user has the rivals in their module graph.
package main
