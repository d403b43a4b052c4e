// Command fleet tortures timers and leaders, to attack I1 to I4, I7 to I9, I13 and I16. Operating
// system processes are the hosts, with a real store, and a nemesis breaks both.
//
//	go run ./proof/torture/fleet -store redis -for 40s
//	go run -tags sqlite ./proof/torture/fleet -store redis,sentinel,cluster,postgres,sqlite -for 30m -seed 7
//	go run -tags sqlite ./proof/torture/fleet -store mariadb -hosts 5 -for 2m -rates
//
// Each host is another process of this program, with a real Scheduler behind its own fault proxies.
// Its handlers overstay, panic, hang and ignore their contexts, and log when their own Valid was
// true. Meanwhile other clients call the store directly, for a check that it is linearizable. At
// the end, package torture, which knows nothing of the library, checks the logs. The clocks of all
// hosts and of one Redis also jump together, ahead or back, and return. The last line of the output
// is JSON. The exit status is 1 if a promise was broken, or if too little happened.
//
// With -other, every second host runs another build of this program, to find faults between two
// versions that share a store. Both must use the same log format.
//
//	git worktree add ../before COMMIT && (cd ../before && go build -tags sqlite -o fleet ./proof/torture/fleet)
//	go run -tags sqlite ./proof/torture/fleet -store redis,postgres,sqlite -other ../before/fleet -for 5m
//
// The seed determines the target, time and duration of each fault (-plan prints them), but not the
// consequences. The program cannot simulate power loss, or clocks of hosts that run at different
// speeds.
package main
