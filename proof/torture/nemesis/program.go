//go:build linux

package nemesis

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

// A Program is a torture of one kind of database after another.
type Program struct {
	Kinds string        // kinds of databases, for the help
	Lease time.Duration // default of -lease
	// Role runs a child process.
	Role func(text string) error
	Plan func(kind string, seed uint64, length, lease time.Duration) []Fault
	// Run tortures one kind of database for this long. The report is printed as JSON.
	Run func(ctx context.Context, kind, dir string, seed uint64, length, lease time.Duration) (report any, well bool)
}

// Main is the main function of the program.
func (p Program) Main() {
	if text := os.Getenv(SpecEnv); text != "" {
		if err := p.Role(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	kinds := flag.String("store", "postgres", p.Kinds+"; several with commas, one after the other")
	length := flag.Duration("for", 4*time.Minute, "how long, all stores together")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of faults")
	lease := flag.Duration("lease", p.Lease, "of the processes; all else is as quick")
	show := flag.Bool("plan", false, "print what is to be done, and do nothing")
	keep := flag.String("logs", "", "the `FOLDER` for the logs (default: one that is removed if all was well)")
	flag.Parse()
	stores := strings.Split(*kinds, ",")
	each := *length / time.Duration(len(stores))
	if *show {
		for _, kind := range stores {
			fmt.Println(kind)
			for _, f := range p.Plan(kind, *seed, each, *lease) {
				fmt.Println(f)
			}
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := folder(*keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stderr, "torture: -store %s -for %v -seed %d, logs in %s\n", *kinds, *length, *seed, dir)
	well := true
	for _, kind := range stores {
		r, ok := p.Run(ctx, kind, dir, *seed, each, *lease)
		well = well && ok
		text, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
	if !well {
		fmt.Fprintf(os.Stderr, "torture: broken, or too weak to tell; the logs are in %s\n", dir)
		os.Exit(1)
	}
	if *keep == "" {
		_ = os.RemoveAll(dir)
	}
}

func folder(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "tickslot-torture-")
	}
	return keep, os.MkdirAll(keep, 0o755)
}
