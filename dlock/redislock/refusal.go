package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// This file tells what a server refuses to everybody until somebody mends it (dlock.ErrSetup) from what is wrong with the keys of one name
// (dlock.ErrFault), and both from what passes by itself, which goes on as it came: no connection, no answer in time, READONLY, OOM, LOADING, BUSY,
// MASTERDOWN, CLUSTERDOWN, NOREPLICAS, MISCONF, TRYAGAIN.

// classify finds out which of them an error is. The client is direct if it is a *redis.Client, which follows no redirection.
func classify(err error, direct, tagged bool) error {
	if err == nil || errors.Is(err, dlock.ErrSetup) || errors.Is(err, dlock.ErrFault) {
		return err
	}
	text := rediskit.Bare(err.Error())
	if message, ok := strings.CutPrefix(text, "TICKSLOT "); ok {
		// What the server said stands behind a tab, because a name may have anything else in it.
		message, said, _ := strings.Cut(message, "\t")
		said = rediskit.Bare(tail.ReplaceAllString(said, ""))
		if message, ok := strings.CutPrefix(tail.ReplaceAllString(message, ""), "SETUP "); ok {
			if strings.HasPrefix(said, "section (") { // only miniredis says so
				message = "this is miniredis, which does not tell when it was started: set Options.Embedded in tests"
			}
			if said != "" {
				message += " (" + said + ")"
			}
			return fmt.Errorf("redislock: %w: %s", dlock.ErrSetup, message)
		}
		if mend := rediskit.Refusal(said, direct, tagged); mend != "" {
			return fmt.Errorf("redislock: %w: %s: %s", dlock.ErrSetup, mend, said)
		}
		if said != "" {
			message += ": " + said
		}
		if moving.MatchString(said) {
			return fmt.Errorf("redislock: a slot of the Cluster is being moved: %s", tail.ReplaceAllString(message, ""))
		}
		return fmt.Errorf("redislock: %w: %s", dlock.ErrFault, tail.ReplaceAllString(message, ""))
	}
	if mend := rediskit.Refusal(text, direct, tagged); mend != "" {
		return fmt.Errorf("redislock: %w: %s: %w", dlock.ErrSetup, mend, err)
	}
	if strings.HasPrefix(text, "WRONGTYPE") {
		return fmt.Errorf("redislock: %w: %w", dlock.ErrFault, err)
	}
	return err
}

var (
	// moving is what a node says of a key that it has given away, or not been given yet.
	moving = regexp.MustCompile(`^(ERR )?(TRYAGAIN|ASK |MOVED |CLUSTERDOWN|(Lua )?[Ss]cript attempted to access a non local key)`)
	// tail is what they all put behind an error of a script.
	tail = regexp.MustCompile(`(?s)\.?( script: [0-9a-f]{40}|\n| stack traceback:).*`)
)
