package commands_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A tlsServer is a server that requires TLS and whose certificate is valid only for localhost. In
// its URLs, HOST stands for host and port.
type tlsServer struct {
	ca          string // CA file
	port        int
	with, plain string // URLs with and without TLS
	wants       string // the advice for a user who has forgotten TLS
}

func (s tlsServer) url(format, host string) string {
	hostPort := fmt.Sprintf("%s:%d", host, s.port)
	return strings.NewReplacer("PASSWORD", servertest.Canary, "HOST", hostPort).Replace(format)
}

var tlsServers = map[string]func(t *testing.T) tlsServer{
	"redis": func(t *testing.T) tlsServer {
		s := redistest.New(t, redistest.Options{TLS: true})
		return tlsServer{s.CAFile(), s.Port(), "rediss://:PASSWORD@HOST", "redis://:PASSWORD@HOST", "rediss://"}
	},
	// The Sentinels refer to the master by 127.0.0.1, and the nodes of a Cluster refer to each
	// other in the same way. The certificates are not valid for that address, but they need to be
	// valid only for the first host in the URL.
	"sentinel": func(t *testing.T) tlsServer {
		s := redistest.NewSentinel(t, redistest.SentinelOptions{Options: redistest.Options{TLS: true}})
		return tlsServer{s.Master.CAFile(), s.Sentinels[0].Port(), "rediss-sentinel://:PASSWORD@HOST?master=" +
			s.MasterName(), "redis-sentinel://:PASSWORD@HOST?master=" + s.MasterName(), "rediss-sentinel://"}
	},
	"cluster": func(t *testing.T) tlsServer {
		c := redistest.NewCluster(t, 3, redistest.Options{TLS: true})
		others := strings.Join(c.Addrs()[1:], ",")
		return tlsServer{c.Nodes[0].CAFile(), c.Nodes[0].Port(), "rediss-cluster://:PASSWORD@HOST," + others,
			"redis-cluster://:PASSWORD@HOST," + others, "rediss-cluster://"}
	},
	"postgres": func(t *testing.T) tlsServer {
		s := sqltest.Postgres(t, sqltest.Options{TLS: true})
		const url = "postgres://postgres:PASSWORD@HOST/postgres?sslmode="
		return tlsServer{s.CAFile(), s.Port(), url + "verify-full", url + "disable", "sslmode=verify-full"}
	},
	"mariadb": func(t *testing.T) tlsServer { return mysqlTLS(t, sqltest.MariaDB(t, sqltest.Options{TLS: true})) },
	"mysql":   func(t *testing.T) tlsServer { return mysqlTLS(t, sqltest.MySQL(t, sqltest.Options{TLS: true})) },
}

func mysqlTLS(t *testing.T, s *sqltest.Server) tlsServer {
	url := "mysql://root:PASSWORD@HOST/" + s.NewDatabase(t) + "?tls="
	return tlsServer{s.CAFile(), s.Port(), url + "true", url + "false", "tls=true"}
}

// withCA runs a command that trusts a CA, and checks that the output does not contain the password.
func withCA(t *testing.T, url, ca, command string) answer {
	t.Helper()
	a := in(t.Context(), map[string]string{"TICKSLOT_STORE": url, "TICKSLOT_CA": ca}, strings.Fields(command)...)
	if strings.Contains(a.String(), servertest.Canary) {
		t.Errorf("%s tells the password", command)
	}
	return a
}

// strangersCA returns the file of a CA that has signed none of the servers' certificates.
func strangersCA(t *testing.T) string {
	t.Helper()
	stranger := httptest.NewTLSServer(nil)
	defer stranger.Close()
	file := filepath.Join(t.TempDir(), "stranger.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Commands reach each kind of server over TLS with the named CA. They reach no server without a
// valid certificate, and print advice instead.
//
// Fails when the CA is not read, when the name in a certificate is not checked, or when a TLS error
// is reported as an outage.
func TestTLS(t *testing.T) {
	t.Parallel()
	// Go reads the system's CAs in the first handshake that needs them. Under the race detector,
	// that has used up the whole time of a call.
	if _, err := x509.SystemCertPool(); err != nil {
		t.Fatal(err)
	}
	for kind, start := range tlsServers {
		t.Run(kind, func(t *testing.T) { // one server at a time: six are too many for two processors
			s := start(t)
			good, stranger := s.url(s.with, "localhost"), strangersCA(t)
			if !strings.HasPrefix(good, "rediss") {
				if a := withCA(t, good, s.ca, "migrate up"); a.code != 0 {
					t.Errorf("migrate up: %s", a)
				}
				short := strings.TrimRight(strings.TrimSuffix(good, s.wants), "?") // only the CA implies TLS
				if a := withCA(t, short, s.ca, "slots ls"); a.code != 0 || short == good {
					t.Errorf("the URL does not say TLS: %s", a)
				}
			}
			if kind == "postgres" {
				if a := withCA(t, good+"&sslrootcert="+s.ca, "", "slots ls"); a.code != 0 {
					t.Errorf("sslrootcert in the URL: %s", a)
				}
			}
			for _, command := range []string{"slots ls", "limit report 2 --by ann --force", "explain report"} {
				if a := withCA(t, good, s.ca, command); a.code != 0 {
					t.Errorf("%s: %s", command, a)
				}
			}
			a := withCA(t, good, stranger, "doctor --calls 1 --ca "+s.ca)
			if strings.Contains(a.out, "FAIL connection") || !strings.Contains(a.out, "round trips") {
				t.Errorf("--ca wins over TICKSLOT_CA: %s", a)
			}
			for _, c := range []struct{ what, url, ca, want string }{
				{"an unknown CA", good, "", "Name the file with the CA of the server's certificate, in PEM: --ca"},
				{"another CA", good, stranger, "See that " + stranger + " (--ca, or TICKSLOT_CA) has the CA"},
				{"another host", s.url(s.with, "127.0.0.1"), s.ca, "its certificate is for"},
				{"no TLS", s.url(s.plain, "localhost"), "", "If the server wants TLS, let the URL "},
				{"no TLS", s.url(s.plain, "localhost"), "", s.wants},
				{"no TLS, and a CA", s.url(s.plain, "localhost"), s.ca, "no certificate is checked against it: let"},
				{"no TLS, and a CA", s.url(s.plain, "localhost"), s.ca, s.wants},
			} {
				for _, command := range []string{"slots ls", "pause report", "doctor --calls 1"} {
					if a := withCA(t, c.url, c.ca, command); a.code != 1 || !strings.Contains(a.String(), c.want) {
						t.Errorf("%s: %s: exit code %d, and no %q: %s", c.what, command, a.code, c.want, a)
					}
				}
			}
		})
	}
}

// The error for a server without TLS differs from that for a server that is down, where the driver
// can tell them apart.
//
// Fails when a handshake that gets no answer causes an error without advice.
func TestTLSThatIsNotSpoken(t *testing.T) {
	t.Parallel()
	url := strings.Replace(redistest.New(t).URL(), "redis", "rediss", 1)
	const advice = "If the server speaks no TLS there, let the URL begin with redis://"
	for _, command := range []string{"slots ls", "doctor --calls 1"} {
		a := withCA(t, url, "", command)
		if a.code != 1 || !strings.Contains(a.String(), advice) {
			t.Errorf("redis: %s: exit code %d: %s", command, a.code, a)
		}
	}
	url = strings.Replace(sqltest.SharedPostgres(t).DSN("", "", ""), "sslmode=disable", "sslmode=verify-full", 1)
	if a := withCA(t, url, "", "slots ls"); a.code != 1 ||
		!strings.Contains(a.err, "speaks no TLS. Leave sslmode out") {
		t.Errorf("postgres: exit code %d: %s", a.code, a)
	}
}

// A user who names a CA gets no connection whose server is not checked against it.
//
// Fails when an unreadable file, or a URL that disables the check, is accepted.
func TestTLSWithACAThatIsNotUsed(t *testing.T) {
	t.Parallel()
	ca := strangersCA(t)
	empty := filepath.Join(t.TempDir(), "empty.crt")
	if err := os.WriteFile(empty, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ url, ca, want string }{
		{"rediss://127.0.0.1:1", filepath.Join(filepath.Dir(empty), "none.crt"), "no such file"},
		{"mysql://127.0.0.1:1/db", empty, "has no certificate in PEM"},
		{"rediss://127.0.0.1:1?skip_verify=true", ca, "leave skip_verify out of the URL"},
		{"rediss-sentinel://127.0.0.1:1?master=m&skip_verify=true", ca, "leave skip_verify out of the URL"},
		{"postgres://127.0.0.1:1/db?sslmode=prefer", ca, "let the URL have sslmode=verify-full"},
		{"mysql://127.0.0.1:1/db?tls=skip-verify", ca, "let the URL have tls=true"},
		{"mysql://127.0.0.1:1/db?tls=preferred", ca, "let the URL have tls=true"},
	} {
		if a := withCA(t, c.url, c.ca, "slots ls"); a.code != 1 || !strings.Contains(a.err, c.want) {
			t.Errorf("%s: exit code %d, and no %q: %s", c.url, a.code, c.want, a)
		}
	}
}

// A server that requires a client certificate admits a user who names one.
//
// Fails when the certificate is not presented, or when it is ignored because the URL does not use
// TLS.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	type server struct{ url, ca, cert, key string }
	rd := redistest.New(t, redistest.Options{TLS: true})
	client := rd.Client()
	defer func() { _ = client.Close() }()
	if err := client.ConfigSet(t.Context(), "tls-auth-clients", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	my := sqltest.MariaDB(t, sqltest.Options{TLS: true})
	database := my.NewDatabase(t)
	execute(t, my, database, "CREATE USER 'shown'@'%' IDENTIFIED BY '"+servertest.Canary+"' REQUIRE X509;"+
		"GRANT ALL ON "+database+".* TO 'shown'@'%';")
	pg := sqltest.Postgres(t, sqltest.Options{TLS: true})
	for name, s := range map[string]server{
		"postgres": {fmt.Sprintf("postgres://postgres:%s@localhost:%d/postgres", servertest.Canary, pg.Port()),
			pg.CAFile(),
			pg.CertFile(), pg.KeyFile()},
		"redis": {fmt.Sprintf("rediss://:%s@localhost:%d", servertest.Canary, rd.Port()), rd.CAFile(), rd.CertFile(),
			rd.KeyFile()},
		"mysql": {fmt.Sprintf("mysql://shown:%s@localhost:%d/%s", servertest.Canary, my.Port(), database), my.CAFile(),
			my.CertFile(), my.KeyFile()},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(url, cert, key, command string) answer {
				return in(t.Context(), map[string]string{"TICKSLOT_STORE": url, "TICKSLOT_CA": s.ca,
					"TICKSLOT_CERT": cert, "TICKSLOT_KEY": key}, strings.Fields(command)...)
			}
			command := "slots ls"
			if name != "redis" {
				command = "migrate up"
			}
			if a := run(s.url, s.cert, s.key, command); a.code != 0 {
				t.Errorf("with a certificate: exit code %d: %s", a.code, a)
			}
			if a := run(s.url, "", "", command); name != "postgres" && a.code != 1 { // Postgres does not require one
				t.Errorf("without: exit code %d: %s", a.code, a)
			}
			if a := run(s.url, s.cert, "", command); a.code != 1 ||
				!strings.Contains(a.err, "needs both files: --cert") {
				t.Errorf("without a key: exit code %d: %s", a.code, a)
			}
			if a := run(s.url, s.ca, s.key, command); a.code != 1 ||
				!strings.Contains(a.err, "the client's certificate") {
				t.Errorf("another's key: exit code %d: %s", a.code, a)
			}
		})
	}
	a := in(t.Context(), map[string]string{"TICKSLOT_STORE": "redis://127.0.0.1:1", "TICKSLOT_CERT": rd.CertFile(),
		"TICKSLOT_KEY": rd.KeyFile()}, "slots", "ls")
	if a.code != 1 || !strings.Contains(a.err, "by the URL there is no TLS: let the URL begin with rediss://") {
		t.Errorf("without TLS: exit code %d: %s", a.code, a)
	}
}
