package stores

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/tickslot/tickslot/internal/mask"
)

// Hide returns text without the store's password, anywhere in it, and without those of URLs.
func (s *Store) Hide(text string) string {
	if s != nil {
		for _, secret := range s.secrets {
			text = hide(text, secret)
		}
	}
	return mask.Text(text)
}

func (s *Store) keepSecret(password string) {
	if password == "" {
		return
	}
	s.secrets = append(s.secrets, password)
	if escaped := url.QueryEscape(password); escaped != password {
		s.secrets = append(s.secrets, escaped, url.PathEscape(password))
	}
}

// shortSecret is the length up to which a password, in bytes, may be a part of any word: it is
// hidden only where it is a word of its own.
const shortSecret = 3

func hide(text, secret string) string {
	if len(secret) > shortSecret {
		return strings.ReplaceAll(text, secret, "***")
	}
	alone := regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(secret) + `($|[^\pL\pN])`)
	for alone.MatchString(text) { // two of them may share the character between them
		text = alone.ReplaceAllString(text, "${1}***${2}")
	}
	return text
}
