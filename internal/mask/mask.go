// Package mask hides secrets in texts that leave the process: errors on pages, in probes, in logs,
// in rows of a store and on a terminal, and message headers. A driver's error may quote the whole
// URL of its server, and a client's error may quote the rejected header.
//
// It recognizes secrets by their form only: it does not find a password in a sentence without the
// word password before it. It hides too much rather than too little.
package mask

import (
	"log/slog"
	"net/textproto"
	"regexp"
	"strings"
)

// Mask replaces secrets.
const Mask = "***"

// names matches names of secrets, including longer names that contain them: x-api-key,
// client_secret, PGPASSWORD.
const names = `pass(?:word|wd|phrase)|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|signature|` +
	`credentials?|\bsig\b|\bpass\b`

// value matches the value after a name, in an assignment, a query, a DSN, a header or JSON. The
// JSON may itself be encoded in a JSON string.
const value = `(?:\\"[^"\\]*\\?"|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.|'')*'?|[^\s"'&;,}\])]+)`

// server matches the part of a URL before user and password.
const server = `([a-zA-Z][\w+.-]*:/{2})`

const headers = `(?i)(\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\\?["']?\s*[=:]\s*`

var patterns = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	// The values of these headers may contain spaces and semicolons. They end with the line or with
	// the quoted text.
	{regexp.MustCompile(headers + `\[)[^\]\r\n]*`), "$1" + Mask},
	{regexp.MustCompile(headers + `)(?:\\?"[^"\r\n]*|'[^'\r\n]*|[^\s"'\[][^\r\n]*)`), "$1" + Mask},
	// user:password@ in a URL or a MySQL DSN; up to the last @, because a password may contain one.
	{regexp.MustCompile(server + `[^\s"'/]*:[^\s"']*@`), "${1}" + Mask + "@"},
	{regexp.MustCompile(`[^\s"'/]*:(?:/?[^\s"'/][^\s"']*)?@`), Mask + "@"},
	{regexp.MustCompile(server + `[^\s"'/@:?#]+@`), "${1}" + Mask + "@"}, // only a token
	{regexp.MustCompile(`(?i)([\w-]*(?:` + names + `)[\w-]*)(\\?["']?\s*(?:=>|[=:])\s*)` + value), "$1$2" + Mask},
	{regexp.MustCompile(`\beyJ[\w-]{4,}\.[\w-]{4,}(?:\.[\w-]*)?`), Mask}, // a JWT
}

// scheme matches the value of an Authorization header without the header's name.
var scheme = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)([\w.~+/=-]{4,})`)

// prose matches words that follow the name of a scheme in ordinary sentences.
var prose = regexp.MustCompile(`(?i)^(?:tokens?|auth\w*|schemes?|credentials?|access)[.:]?$`)

// Text returns a text without the parts that look like secrets.
func Text(s string) string {
	for _, p := range patterns {
		s = p.pattern.ReplaceAllString(s, p.mask)
	}
	return scheme.ReplaceAllStringFunc(s, func(found string) string {
		parts := scheme.FindStringSubmatch(found)
		basic := strings.EqualFold(parts[1], "basic")
		if prose.MatchString(parts[3]) || basic && !strings.ContainsAny(parts[3], "0123456789=") {
			return found
		}
		return parts[1] + parts[2] + Mask
	})
}

var secretName = regexp.MustCompile(`(?i)^(?:proxy-)?authorization$|^(?:set-)?cookie$|[-_]auth$|` + names)

// IsSecret reports whether the name of a value, such as a header, indicates a secret.
func IsSecret(name string) bool { return secretName.MatchString(textproto.TrimString(name)) }

// Headers returns a copy of headers without values that are secret by their name or their form. It
// returns nil for nil.
func Headers(headers map[string]string) map[string]string {
	if headers == nil {
		return nil
	}
	masked := make(map[string]string, len(headers))
	for name, v := range headers {
		if IsSecret(name) {
			v = Mask
		}
		masked[name] = Text(v)
	}
	return masked
}

// A maskedError is an error whose text is masked. errors.Is and errors.As find the original error.
type maskedError struct{ err error }

func (m *maskedError) Error() string { return Text(m.err.Error()) }
func (m *maskedError) Unwrap() error { return m.err }

// Error returns an equivalent error without secrets in its text. It returns err itself if the text
// contains none.
func Error(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil { // the Error method panicked, and will do so again for a caller that prints it
			safe = &maskedError{err}
		}
	}()
	if text := err.Error(); Text(text) == text {
		return err
	}
	return &maskedError{err}
}

// Logger returns a logger that masks secrets in the errors and texts of attributes, and survives a
// handler that panics. A nil logger stands for slog.Default().
func Logger(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		logger = slog.Default()
	}
	if _, done := logger.Handler().(*handler); done {
		return logger
	}
	return slog.New(&handler{logger.Handler()})
}
