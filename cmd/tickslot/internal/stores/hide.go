package stores

import (
	"net/url"
	"regexp"
	"strings"
)

// credentials are those in a URL, also of one that is misspelt or stands where none is expected.
var credentials = regexp.MustCompile(`(//|:)[^\s"/@]*:[^\s"]*@`)

// parameters are passwords behind the question mark of a URL.
var parameters = regexp.MustCompile(`(?i)(password=)[^\s"&]*`)

// Hide returns text without user names and passwords of URLs.
func Hide(text string) string {
	return parameters.ReplaceAllString(credentials.ReplaceAllString(text, "${1}***@"), "${1}***")
}

// Hide returns text without the store's password, wherever it stands, and without those of URLs.
func (s *Store) Hide(text string) string {
	if s != nil {
		for _, secret := range s.secrets {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return Hide(text)
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
