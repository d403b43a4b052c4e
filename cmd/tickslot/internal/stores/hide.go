package stores

import (
	"net/url"
	"strings"

	"github.com/tickslot/tickslot/internal/mask"
)

// Hide returns text without the store's password, wherever it stands, and without those of URLs.
func (s *Store) Hide(text string) string {
	if s != nil {
		for _, secret := range s.secrets {
			text = strings.ReplaceAll(text, secret, "***")
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
