package health

import (
	"mime"
	"strconv"
	"strings"
)

const (
	textType = "text/plain"
	jsonType = "application/health+json"
)

// wantsJSON reports whether the Accept headers prefer JSON to text. If both have the same quality,
// a type that is named explicitly wins over a type that only matches a wildcard. Otherwise text
// wins. A malformed header is ignored, so it never fails a probe.
func wantsJSON(accept []string) bool {
	json, jsonNamed := quality(accept, jsonType)
	text, textNamed := quality(accept, textType)
	return json > text || json == text && json > 0 && jsonNamed && !textNamed
}

// quality returns the q-value that the headers assign to a type, and whether the matching range
// names the type explicitly. If several ranges match, the most specific one counts.
func quality(accept []string, typ string) (q float64, named bool) {
	group, _, _ := strings.Cut(typ, "/")
	precision := 0
	for _, header := range accept {
		for item := range strings.SplitSeq(header, ",") {
			found, params, err := mime.ParseMediaType(item)
			if err != nil {
				continue
			}
			p := 0
			switch found {
			case typ:
				p = 3
			case group + "/*":
				p = 2
			case "*/*":
				p = 1
			}
			v := 1.0
			if text, ok := params["q"]; ok {
				if v, err = strconv.ParseFloat(text, 64); err != nil || !(v >= 0 && v <= 1) {
					continue
				}
			}
			if p > precision || p == precision && p > 0 && v > q {
				q, precision = v, p
			}
		}
	}
	return q, precision == 3
}
