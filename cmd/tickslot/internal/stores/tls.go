package stores

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// namedCA is how users name a CA.
const namedCA = "--ca, or TICKSLOT_CA"

// refusedTLS is pgx's text for a server without TLS.
const refusedTLS = "server refused TLS connection"

// namedCert is how users name a client certificate.
const namedCert = "--cert and --key, or TICKSLOT_CERT and TICKSLOT_KEY"

// errNoTLS is returned because a user who names a certificate expects it to be presented.
var errNoTLS = errors.New("a client's certificate is named (" + namedCert + "), but by the URL there is no TLS")

// errUnchecked is returned if a CA is named but the URL disables verification, because the user
// expects the server to be verified.
var errUnchecked = errors.New("a CA is named (" + namedCA + "), but by the URL no certificate is checked against it")

// readCA reads the file of Options.CA.
func (s *Store) readCA(file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the file of the CA (%s): %w", namedCA, err)
	}
	s.ca, s.roots = file, x509.NewCertPool()
	if !s.roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("the file of the CA (%s) has no certificate in PEM", namedCA)
	}
	return nil
}

// readCert reads the client's certificate and key.
func (s *Store) readCert(certFile, keyFile string) error {
	switch {
	case certFile == "" && keyFile == "":
		return nil
	case certFile == "" || keyFile == "":
		return errors.New("a client's certificate needs both files: " + namedCert)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("the client's certificate (%s): %w", namedCert, err)
	}
	s.cert, s.key, s.pair = certFile, keyFile, &pair
	return nil
}

// trust makes a client present its certificate and verify the server against the CA, if they are
// named.
func (s *Store) trust(config *tls.Config) error {
	s.tls = config != nil
	if s.pair != nil {
		if config == nil {
			return fmt.Errorf("%w: %s", errNoTLS, s.checked())
		}
		config.Certificates = []tls.Certificate{*s.pair}
	}
	if s.roots == nil {
		return nil
	}
	if config == nil || config.InsecureSkipVerify {
		return s.unchecked()
	}
	config.RootCAs = s.roots
	return nil
}

// withCA returns a Postgres URL with pgx's parameters for the named CA and client certificate.
func (s *Store) withCA(address string) (string, error) {
	if s.ca == "" && s.pair == nil {
		return address, nil
	}
	server, query, _ := strings.Cut(address, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errBadURL
	}
	if s.pair != nil {
		if values.Get("sslmode") == "disable" {
			return "", fmt.Errorf("%w: %s", errNoTLS, s.checked())
		}
		values.Set("sslcert", s.cert)
		values.Set("sslkey", s.key)
	}
	if s.ca == "" {
		if values.Get("sslmode") == "" {
			values.Set("sslmode", "verify-full")
		}
		return server + "?" + values.Encode(), nil
	}
	switch values.Get("sslmode") {
	case "":
		values.Set("sslmode", "verify-full")
	case "require", "verify-ca", "verify-full":
	default: // the URL disables verification
		return "", s.unchecked()
	}
	values.Set("sslrootcert", s.ca)
	return server + "?" + values.Encode(), nil
}

func (s *Store) unchecked() error {
	return fmt.Errorf("%w: %s, or name no CA", errUnchecked, s.checked())
}

// checked returns how to change a URL so that the server's certificate is verified.
func (s *Store) checked() string {
	kind, rest, several := strings.Cut(s.scheme, "-")
	switch {
	case kind == "mysql":
		return "let the URL have tls=true"
	case kind == "redis" && several:
		return "let the URL begin with rediss-" + rest + "://"
	case kind == "redis":
		return "let the URL begin with rediss://"
	case kind == "rediss":
		return "leave skip_verify out of the URL"
	}
	return "let the URL have sslmode=verify-full"
}

// Advice returns advice if err is a TLS error, and otherwise "". sure says that err cannot be
// anything else.
func (s *Store) Advice(err error) (advice string, sure bool) {
	if s == nil {
		return "", false
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, named := errors.AsType[x509.HostnameError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	login, _ := errors.AsType[*pgconn.PgError](err)
	access, _ := errors.AsType[*mysql.MySQLError](err)
	redis := s.Redis != nil
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case unknown && s.ca != "":
		return "See that " + s.ca + " (" + namedCA + ") has the CA of the server's certificate.", true
	case unknown:
		return "Name the file with the CA of the server's certificate, in PEM: " + namedCA + ".", true
	case named && redis:
		return "Name a server that its certificate is for, by that name, as the first host of the URL.", true
	case named:
		return "Name the server in the URL by a host that its certificate is for.", true
	case s.tls && redis && (noTLS || errors.Is(err, context.DeadlineExceeded)):
		return "If the server speaks no TLS there, let the URL begin with " +
			strings.Replace(s.scheme, "rediss", "redis", 1) + "://.", noTLS
	case errors.Is(err, mysql.ErrNoTLS):
		return "Leave tls out of the URL" + s.orCA() + ", or turn TLS on at the server.", true
	case err != nil && login == nil && strings.Contains(err.Error(), refusedTLS):
		return "Leave sslmode out of the URL" + s.orCA() + ", or turn TLS on at the server.", true
	case s.pair == nil && s.tls && err != nil && strings.Contains(err.Error(), "certificate required"):
		return "The server wants a client's certificate: " + namedCert + ".", true
	case !s.tls && (redis && closed || login != nil && login.Code == "28000" ||
		access != nil && (access.Number == 3159 || access.Number == 1045)): // MariaDB uses 1045 for it
		return "If the server wants TLS, " + s.checked() + ".", false
	}
	return "", false
}

// orCA returns other ways to request TLS.
func (s *Store) orCA() string {
	if s.ca == "" {
		return ""
	}
	return ", and name no CA"
}
