package dlocktest

import (
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var names = []promise{
	{name: "names/are bytes, each its own lock", show: namesApart},
}

// trickyNames returns names that a key, pattern, script, statement or collation may confuse with
// one another.
func trickyNames() []string {
	list := []string{
		// These look like other keys.
		"a", "a:", ":a", "a:0", "a:1", "a:slot", "a:slots", "a:tick", "a:fence", "a:mark", "a:token", "timer:a",
		"timer:timer:a",
		"aa", "ab", "a b", "a/b", "a//b", "a.b", "a|b", "a,b", "a;b", "0", "00", "-1", "1e3", "NULL", "null", "nil",
		"true",
		// These contain hash tags of Redis Cluster.
		"{", "}", "{}", "}{", "{a}", "{a}b", "a{b}", "{{a}}", "{}a", "a{}", "{a", "a}",
		// These are patterns and formats.
		"*", "?", "a*", "a?", "[a]", "[a-z]", "^a", "%", "%%", "%s", "a%", "a_", "_", "$1", "$$", "?1", ":x", "@x", "#",
		// These contain quotes and comments.
		"'", "''", `"`, "`", `\`, `\\`, `\'`, `a\`, "a'b", `a"b`, "'; DROP TABLE leases; --", "-- a", "/* a */", "]]",
		"[[a]]", `\n`,
		// These contain spaces.
		" ", "  ", " a", "a ", "a  ", " a ", "a\u00a0", "\u00a0a", "a\u3000",
		// Collations may treat these as equal.
		"A", "Aa", "aA", "á", "a\u0301", "à", "ä", "ß", "ss", "SS", "æ", "ae", "ı", "i", "I", "İ", "ａ", "ª", "①", "1",
		"½", "ﬁ", "fi",
		// These contain runes of every length and invisible runes.
		"é", "世界", "😀", "😀😀", "👩\u200d🚀", "👩🚀", "\u200b", "a\u200b", "\ufeffa", "\u2028", "\U0010ffff",
		"а", // Cyrillic
	}
	long := strings.Repeat("n", driver.MaxNameLen-1)
	wide := strings.Repeat("😀", driver.MaxNameLen/4-1)
	return append(list, long, long+"1", long+"2", wide+"abcd", wide+"😀", strings.Repeat(" ", driver.MaxNameLen))
}

// namesApart catches a name that is folded, trimmed, truncated, expanded or taken for a key. Any
// two names must be separate locks.
func namesApart(c *check) {
	h := c.host()
	all := trickyNames()
	at := time.Now().Truncate(time.Second)
	var grants, swapped []driver.Grant
	for _, slots := range []int{0, 1} {
		for _, name := range all {
			req := c.request(name, slots)
			if slots > 0 && c.h.Features.AtomicTick {
				req.Tick = &driver.Tick{At: at, Max: 1}
			}
			a := h.try(req)
			if a.err != nil {
				c.fatalf("%q, the first time, with %d slots: %v", name, slots, a.err)
			}
			grants = append(grants, a.grant)
		}
	}
	for i, g := range grants {
		no := h.try(c.request(g.Name, i/len(all)))
		if reason(no.err) != driver.ReasonFull {
			c.fatalf("%q, the second time, with %d slots: %v: must be refused as full", g.Name, i/len(all), no.err)
		}
		g.Name = grants[(i+1)%len(all)].Name
		swapped = append(swapped, g)
	}
	for i, r := range h.release(swapped...) {
		if r.Outcome != driver.GrantLost {
			c.errorf("the token of %q released %q", grants[i].Name, swapped[i].Name)
		}
	}
	for i, r := range h.extend(c.long, grants...) {
		if r.Outcome != driver.GrantOK {
			c.errorf("extend of %q: %v", grants[i].Name, r.Outcome)
		}
	}
	if lister := h.caps().Lister; lister != nil && c.h.Features.Listing {
		for i, g := range grants {
			ctx, cancel := callContext()
			list, err := lister.List(ctx, g.Name, i/len(all))
			cancel()
			if err != nil || len(list) != 1 || list[0].Name != g.Name || list[0].Fence != g.Fence {
				c.errorf("list of %q: %+v, %v: must be its one lease, with fence %d", g.Name, list, err, g.Fence)
			}
		}
	}
	for i, r := range h.release(grants...) {
		if r.Outcome != driver.GrantOK {
			c.errorf("release of %q: %v", grants[i].Name, r.Outcome)
		}
	}
}

// badNames returns names that CheckName refuses.
func badNames() []string {
	bad := []string{
		"", "slot:0", "a:slot:0", "a:slot:", ":slot:", ":slot:1", "a:slot:0:slot:1",
		"a\x00", "\x00", "a\nb", "a\r\nSET x y", "a\tb", "\x1b[0m", "a\x7f", "a\u0085",
		"\xff", "a\xc3", "\xed\xa0\x80", "a\xf0\x9f\x98",
		strings.Repeat("n", driver.MaxNameLen+1), strings.Repeat("😀", driver.MaxNameLen/4) + "n",
	}
	for r := range rune(0x20) {
		bad = append(bad, fmt.Sprintf("a%cb", r))
	}
	return bad
}
