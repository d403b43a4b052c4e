package redistest

import (
	"bytes"
	"strconv"
	"strings"
)

// A commandParser finds the command names in a client's byte stream, however it is split into
// chunks. It implements just enough of RESP: arrays of bulk strings, and inline commands.
type commandParser struct {
	line  []byte // an incomplete line
	args  int    // remaining arguments of the current command
	body  int    // remaining bytes of the current argument, including CRLF
	first bool   // the current argument is the command's name
	name  []byte
}

// Longer names and lines are not commands and are not stored.
const (
	longestName = 64
	longestLine = 64 << 10
)

// feed parses the next chunk and returns, in upper case, the command names that end in it.
func (c *commandParser) feed(b []byte) (names []string) {
	for len(b) > 0 {
		if c.body > 0 {
			n := min(c.body, len(b))
			if c.first && len(c.name) < longestName {
				c.name = append(c.name, b[:n]...)
			}
			b = b[n:]
			if c.body -= n; c.body == 0 {
				c.args--
				if c.first {
					names = append(names, upper(c.name))
					c.first, c.name = false, c.name[:0]
				}
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			if c.line = append(c.line, b...); len(c.line) > longestLine {
				c.line = c.line[:0]
			}
			break
		}
		line := string(bytes.TrimSpace(append(c.line, b[:end]...)))
		c.line, b = c.line[:0], b[end+1:]
		if name := c.readLine(line); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// readLine parses a line outside of arguments, and returns the command's name if it is an inline
// command.
func (c *commandParser) readLine(line string) string {
	kind, rest := "", ""
	if line != "" {
		kind, rest = line[:1], line[1:]
	}
	n, err := strconv.Atoi(rest)
	switch {
	case c.args > 0 && kind == "$" && err == nil && n >= 0:
		c.body = n + len("\r\n")
	case c.args > 0:
		c.args = 0 // not RESP: start over with the next line
	case kind == "*" && err == nil:
		c.args, c.first, c.name = max(n, 0), true, c.name[:0]
	case line != "":
		return upper([]byte(strings.Fields(line)[0]))
	}
	return ""
}

// between reports whether the stream so far ends at the end of a command.
func (c *commandParser) between() bool {
	return c.args == 0 && c.body == 0 && len(c.line) == 0
}

func upper(name []byte) string { return strings.ToUpper(string(bytes.TrimSpace(name))) }
