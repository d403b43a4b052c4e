package stores

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/tickslot/tickslot/internal/mask"
)

// Hide returns text without the store's password, wherever it occurs, and without the passwords of
// URLs.
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

// shortSecret is the maximum length in bytes of a password that may be part of other words. Such a
// password is hidden only where it is a separate word.
const shortSecret = 3

func hide(text, secret string) string {
	if len(secret) > shortSecret {
		return strings.ReplaceAll(text, secret, "***")
	}
	alone := regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(secret) + `($|[^\pL\pN])`)
	for alone.MatchString(text) { // two occurrences may share the character between them
		text = alone.ReplaceAllString(text, "${1}***${2}")
	}
	return text
}
