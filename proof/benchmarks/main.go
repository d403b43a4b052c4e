package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		exit(child(os.Args[2]))
	}
	short := flag.Bool("short", false, "measure only what has a target, in two minutes")
	results := flag.String("results", "", "write RESULTS.md and the plots to this `folder`")
	only := flag.String("only", "", "measure the groups whose names match this `pattern`")
	rounds := flag.Int("rounds", 7, "how often each case is measured")
	profiles := flag.String("profile", "", "write CPU profiles to this `folder`")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err == nil && flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: use flags only", flag.Arg(0))
	}
	if err == nil && *rounds < 1 {
		err = fmt.Errorf("-rounds %d: at least one", *rounds)
	}
	if err == nil {
		err = run(!*short, *results, pattern, *rounds, *profiles)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(full bool, folder string, only *regexp.Regexp, rounds int, profiles string) (err error) {
	began := time.Now()
	if profiles != "" {
		if profiles, err = filepath.Abs(profiles); err != nil {
			return err
		}
		if err := os.Setenv(profilesEnv, profiles); err != nil {
			return err
		}
	}
	l := &lab{full: full, load: load(), commit: commit()}
	if l.redis, err = startRedis(); err != nil {
		return err
	}
	defer func() { l.redis.Close() }()
	if l.postgres, err = startPostgres(); err != nil {
		return err
	}
	defer func() {
		l.postgres.admin.Close()
		l.postgres.Close()
	}()
	groups := l.groups()
	if folder != "" {
		if err := whole(groups, only); err != nil {
			return err
		}
	}
	var all []Result
	var failures []error
	for _, g := range groups {
		if !only.MatchString(g.Name) {
			continue
		}
		r, err := profiled(profiles, g, func() (Result, error) { return g.run(rounds, full) })
		if err != nil { // continue with the other groups
			fmt.Fprintln(os.Stderr, "benchmarks:", err)
			failures = append(failures, err)
			r = g.failed(err)
		}
		all = append(all, r)
		if full || only.String() != "" {
			fmt.Fprint(os.Stderr, r.table())
		} else {
			fmt.Fprintf(os.Stderr, "%s: %.1f s\n", g.Name, r.Took.Seconds())
		}
		for _, v := range r.Verdicts {
			if v.Target == 0 {
				continue
			}
			line, err := json.Marshal(v.rounded())
			if err != nil {
				return err
			}
			fmt.Println(string(line))
		}
	}
	if len(all) == 0 {
		return errors.New("-only matches no group")
	}
	fmt.Fprintf(os.Stderr, "%d groups in %v\n", len(all), time.Since(began).Round(time.Second))
	if folder != "" {
		failures = append(failures, write(folder, all, occasion{began, l.warning(), machine(l)}))
	}
	return errors.Join(failures...)
}

// profiled writes a profile of this process while it measures a group. Child processes write their
// own.
func profiled(folder string, g Group, measure func() (Result, error)) (Result, error) {
	if folder == "" || g.Sharing != inTurns {
		return measure()
	}
	stop, err := profile(filepath.Join(folder, slug(g.Name)+".pprof"))
	if err != nil {
		return Result{}, err
	}
	defer stop()
	return measure()
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

func slug(name string) string { return notWord.ReplaceAllString(name, "-") }
