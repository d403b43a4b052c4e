package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
)

// This file tells what a server refuses to everybody until somebody mends it (dlock.ErrSetup) from what is wrong with the keys of one name
// (dlock.ErrFault), and both from what passes by itself, which goes on as it came: no connection, no answer in time, READONLY, OOM, LOADING, BUSY,
// MASTERDOWN, CLUSTERDOWN, NOREPLICAS, MISCONF, TRYAGAIN.

// classify finds out which of them an error is. The client is direct if it is a *redis.Client, which follows no redirection.
func classify(err error, direct, tagged bool) error {
	if err == nil || errors.Is(err, dlock.ErrSetup) || errors.Is(err, dlock.ErrFault) {
		return err
	}
	text := bare(err.Error())
	if message, ok := strings.CutPrefix(text, "TICKSLOT "); ok {
		// What the server said stands behind a tab, because a name may have anything else in it.
		message, said, _ := strings.Cut(message, "\t")
		said = bare(tail.ReplaceAllString(said, ""))
		if message, ok := strings.CutPrefix(tail.ReplaceAllString(message, ""), "SETUP "); ok {
			if strings.HasPrefix(said, "section (") { // only miniredis says so
				message = "this is miniredis, which does not tell when it was started: set Options.Embedded in tests"
			}
			if said != "" {
				message += " (" + said + ")"
			}
			return fmt.Errorf("redislock: %w: %s", dlock.ErrSetup, message)
		}
		if mend := setup(said, direct, tagged); mend != "" {
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
	if mend := setup(text, direct, tagged); mend != "" {
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
	// head is what servers before Redis 7 put before the error of a command in a script.
	head = regexp.MustCompile(`^(ERR )?(Error running script \(call to \w+\): )?(@user_script: ?\d+: )*-?`)
	// tail is what they all put behind an error of a script.
	tail = regexp.MustCompile(`(?s)\.?( script: [0-9a-f]{40}|\n| stack traceback:).*`)
)

// bare is the text of an error, without where in a script it happened.
func bare(text string) string {
	if found := head.FindString(text); found != "ERR " {
		return text[len(found):]
	}
	return text
}

// refuses says what to do about an error of one server of several that it gives everybody until that is done, or "".
func refuses(err error) string {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return setup(bare(answer.Error()), false, true)
	}
	return ""
}

// setup says what to do about an error that everybody gets until that is done, or "". It looks at how the text begins: names may be in the rest.
func setup(said string, direct, tagged bool) string {
	begins := func(starts ...string) bool {
		said := strings.TrimPrefix(said, "ERR ")
		for _, start := range starts {
			if strings.HasPrefix(said, start) {
				return true
			}
		}
		return false
	}
	switch {
	case begins("NOAUTH", "WRONGPASS", "NOPERM", "The user executing the script can't run this command", "ACL failure in script", "AUTH ", "Client sent AUTH", "invalid password", "Protocol error: unauthenticated"):
		return "the server refuses: check user, password and ACL (docs/redis.md lists the rights)"
	case begins("DENIED"):
		return "the server refuses: it is in protected mode"
	case begins("unknown command", "Unknown Redis command", "unknown subcommand", "This Redis command is not allowed from script", "command is not allowed"):
		return "this server or service lacks a command, or does not let scripts call it: see docs/redis.md for the services that can be used"
	case begins("DB index is out of range", "invalid DB index", "SELECT is not allowed"):
		return "there is no such database on this server: change the client's DB"
	case begins("script tried accessing undeclared key", "bad lua script for redis cluster", "Script keys must be declared"):
		return "this server wants every key of a script declared, which is not possible: allow undeclared keys (docs/redis.md says how)"
	case begins("This instance has cluster support disabled"):
		return "this server is no node of a Redis Cluster: pass a *redis.Client"
	case direct && begins("MOVED", "CROSSSLOT"), !tagged && begins("Script attempted to access a non local key", "Lua script attempted to access a non local key"):
		return "the keys of a name are on different nodes of a Redis Cluster: pass a *redis.ClusterClient, or through a proxy set Options.Keys: Tagged"
	}
	return ""
}
