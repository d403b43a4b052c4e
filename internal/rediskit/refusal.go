package rediskit

import (
	"regexp"
	"strings"
)

// head matches the text that servers before Redis 7 prepend to the error of a command in a script.
var head = regexp.MustCompile(`^(ERR )?(Error running script \(call to \w+\): )?(@user_script: ?\d+: )*-?`)

// Bare returns the text of an error without its position in a script.
func Bare(text string) string {
	if found := head.FindString(text); found != "ERR " {
		return text[len(found):]
	}
	return text
}

// Refusal describes how to fix an error that a server returns to every client until it is fixed. It
// returns "" for any other error. direct says that the client is a *redis.Client, which does not
// follow redirections; tagged says that the keys of a name contain braces. Only the beginning of
// the text is matched, because the rest may contain names.
func Refusal(said string, direct, tagged bool) string {
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
	case begins("NOAUTH", "WRONGPASS", "NOPERM", "The user executing the script can't run this command",
		"ACL failure in script", "AUTH ", "Client sent AUTH", "invalid password", "Protocol error: unauthenticated"):
		return "the server refuses: check user, password and ACL (docs/redis.md lists the rights)"
	case begins("DENIED"):
		return "the server refuses: it is in protected mode"
	case begins("unknown command", "Unknown Redis command", "unknown subcommand",
		"This Redis command is not allowed from script", "command is not allowed"):
		return "this server or service lacks a command, or does not let scripts call it: see docs/redis.md for the " +
			"services that can be used"
	case begins("DB index is out of range", "invalid DB index", "SELECT is not allowed"):
		return "there is no such database on this server: change the client's DB"
	case begins("script tried accessing undeclared key", "bad lua script for redis cluster",
		"Script keys must be declared"):
		return "this server wants every key of a script declared, which is not possible: allow undeclared keys " +
			"(docs/redis.md says how)"
	case begins("This instance has cluster support disabled"):
		return "this server is no node of a Redis Cluster: pass a *redis.Client"
	case direct && begins("MOVED", "CROSSSLOT"), !tagged &&
		begins("Script attempted to access a non local key", "Lua script attempted to access a non local key"):
		return "the keys of a name are on different nodes of a Redis Cluster: pass a *redis.ClusterClient, or " +
			"through a proxy set Options.Keys: KeysTagged"
	}
	return ""
}

// Refuses is like Refusal, for an error from one of several servers.
func Refuses(err error) string { return Refusal(Said(err), false, true) }
