package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// This file sorts errors into three kinds. Some affect every client until the server is repaired
// (driver.ErrSetup), and some come from bad keys of one name (driver.ErrFault). All others are
// temporary and are returned unchanged: no connection, no answer in time, READONLY, OOM, LOADING,
// BUSY, MASTERDOWN, CLUSTERDOWN, NOREPLICAS, MISCONF, TRYAGAIN.

// classify wraps an error according to its kind. direct means that the client is a *redis.Client,
// which follows no redirections.
func classify(err error, direct, tagged bool) error {
	if err == nil || errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault) {
		return err
	}
	reply := err
	// A refusal is classified even if its result came too late.
	if late, ok := errors.AsType[*lateError](err); ok && late.err != nil {
		reply = late.err
	}
	text := rediskit.Bare(reply.Error())
	if message, ok := strings.CutPrefix(text, "TICKSLOT "); ok {
		// The server's own error follows a tab, because names may contain any other character.
		message, said, _ := strings.Cut(message, "\t")
		said = rediskit.Bare(tail.ReplaceAllString(said, ""))
		if message, ok := strings.CutPrefix(tail.ReplaceAllString(message, ""), "SETUP "); ok {
			if strings.HasPrefix(said, "section (") { // miniredis's error
				message = "this is miniredis, which does not report when it was started: set Options.Embedded in tests"
			}
			if said != "" {
				message += " (" + said + ")"
			}
			return fmt.Errorf("redislock: %w: %s", driver.ErrSetup, message)
		}
		if fix := rediskit.Refusal(said, direct, tagged); fix != "" {
			return fmt.Errorf("redislock: %w: %s: %s", driver.ErrSetup, fix, said)
		}
		if said != "" {
			message += ": " + said
		}
		if moving.MatchString(said) {
			return fmt.Errorf("redislock: a slot of the Cluster is being moved: %s", tail.ReplaceAllString(message, ""))
		}
		return fmt.Errorf("redislock: %w: %s", driver.ErrFault, tail.ReplaceAllString(message, ""))
	}
	if fix := rediskit.Refusal(text, direct, tagged); fix != "" {
		return fmt.Errorf("redislock: %w: %s: %w", driver.ErrSetup, fix, err)
	}
	if strings.HasPrefix(text, "WRONGTYPE") {
		return fmt.Errorf("redislock: %w: %w", driver.ErrFault, err)
	}
	return err
}

var (
	// moving matches a node's errors for a key that it has given away or has not received yet.
	moving = regexp.MustCompile(`^(ERR )?(TRYAGAIN|ASK |MOVED |CLUSTERDOWN|` +
		`(Lua )?[Ss]cript attempted to access a non local key)`)
	// tail matches the text that servers append to a script's error.
	tail = regexp.MustCompile(`(?s)\.?( script: [0-9a-f]{40}|\n| stack traceback:).*`)
)
