// Command fleet tortures timers and leaders, against I1 to I4, I7 to I9, I13 and I16:
// operating-system processes as hosts, a real store behind them, and a nemesis that breaks both.
//
//	go run ./proof/torture/fleet -store redis -for 40s
//	go run -tags sqlite ./proof/torture/fleet -store redis,sentinel,cluster,postgres,sqlite -for 30m -seed 7
//	go run -tags sqlite ./proof/torture/fleet -store mariadb -hosts 5 -for 2m -rates
//
// Each host is this program once more, with a real Scheduler, behind fault proxies of its own. Its
// handlers overstay, panic, hang and ignore their contexts, and write down in which stretches of
// time their own Valid was true. Meanwhile other clients call the store directly, for a check that
// it is linearizable. What was written down is examined at the end by package torture, which knows
// nothing of the library. The clocks of all hosts and of one Redis also step on, or back, together,
// and right again. The last line of the output is a line of JSON; the exit status is 1 if
// anything was broken, or if too little happened to tell.
//
// With -other every second host runs another build of this program, to find faults between two
// versions that share a store. Both must write the same log format.
//
//	git worktree add ../before COMMIT && (cd ../before && go build -tags sqlite -o fleet ./proof/torture/fleet)
//	go run -tags sqlite ./proof/torture/fleet -store redis,postgres,sqlite -other ../before/fleet -for 5m
//
// The seed decides what is done to whom, when and for how long (-plan prints it), not what comes of
// it. What it cannot do: lose power, or let the clocks of hosts run at different speeds.
package main
