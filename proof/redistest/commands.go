package redistest

import (
	"bytes"
	"strconv"
	"strings"
)

// commandParser finds the names of the commands in a client's byte stream,
// however it is cut into chunks. It follows just enough of RESP for that:
// arrays of bulk strings, and inline commands.
type commandParser struct {
	line  []byte // a line that has not ended yet
	args  int    // arguments the current command still has to come
	body  int    // bytes the current argument still has to come, CRLF included
	first bool   // the current argument is the command's name
	name  []byte
}

// Longer names and lines are not commands and need not be stored.
const (
	longestName = 64
	longestLine = 64 << 10
)

// feed takes the next chunk and returns the names, in upper case, of the
// commands whose names end in it.
func (p *commandParser) feed(b []byte) (names []string) {
	for len(b) > 0 {
		if p.body > 0 {
			n := min(p.body, len(b))
			if p.first && len(p.name) < longestName {
				p.name = append(p.name, b[:n]...)
			}
			b = b[n:]
			if p.body -= n; p.body == 0 {
				p.args--
				if p.first {
					names = append(names, upper(p.name))
					p.first, p.name = false, p.name[:0]
				}
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			if p.line = append(p.line, b...); len(p.line) > longestLine {
				p.line = p.line[:0]
			}
			break
		}
		line := string(bytes.TrimSpace(append(p.line, b[:end]...)))
		p.line, b = p.line[:0], b[end+1:]
		if name := p.readLine(line); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// readLine takes a line outside of arguments, and returns the command's name if
// it is an inline command.
func (p *commandParser) readLine(line string) string {
	kind, rest := "", ""
	if line != "" {
		kind, rest = line[:1], line[1:]
	}
	n, err := strconv.Atoi(rest)
	switch {
	case p.args > 0 && kind == "$" && err == nil && n >= 0:
		p.body = n + len("\r\n")
	case p.args > 0:
		p.args = 0 // not RESP: start over with the next line
	case kind == "*" && err == nil:
		p.args, p.first, p.name = max(n, 0), true, p.name[:0]
	case line != "":
		return upper([]byte(strings.Fields(line)[0]))
	}
	return ""
}

// between reports whether the stream so far ends at the end of a command.
func (p *commandParser) between() bool {
	return p.args == 0 && p.body == 0 && len(p.line) == 0
}

func upper(name []byte) string { return strings.ToUpper(string(bytes.TrimSpace(name))) }
