// Package proxytest runs load balancers for this module's tests, with the configurations in
// deploy/: HAProxy and nginx in front of three hosts. It does not promise that they are installed:
// if one is missing, the test skips.
package proxytest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
)

// placeholders are the addresses of the hosts in the configurations in deploy/.
var placeholders = [3]string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"}

// Find returns the path of a program, or skips the test.
func Find(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	if err != nil {
		err = fmt.Errorf("%s not found", name)
	}
	servertest.Require(t, err, fmt.Sprintf("install it (apt-get install %s, or brew install %[1]s)", name))
	return path
}

// Deployed returns the contents of a file in deploy/. The test may be in any package of the module.
func Deployed(t testing.TB, path string) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no folder above has a go.mod")
		}
		dir = filepath.Dir(dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "deploy", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Replace replaces old, which must occur exactly once.
func Replace(t testing.TB, text, old, with string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("it says %q %d times, want once:\n%s", old, n, text)
	}
	return strings.Replace(text, old, with, 1)
}

func fill(t testing.TB, text, listen string, hosts [3]string) string {
	t.Helper()
	word, _, _ := strings.Cut(listen, " ")
	text = Replace(t, text, listen, word+" 127.0.0.1:PORT")
	for i, addr := range hosts {
		text = Replace(t, text, placeholders[i], addr)
	}
	return text
}

// HAProxy runs deploy/haproxy/haproxy.cfg in front of the hosts.
func HAProxy(t testing.TB, hosts [3]string) *servertest.Server {
	t.Helper()
	program := Find(t, "haproxy")
	config := fill(t, Deployed(t, "haproxy/haproxy.cfg"), "bind :80", hosts) + "\n" + stats
	s, err := servertest.Start(servertest.Program{
		Name: "haproxy",
		Command: func(s *servertest.Server) (*exec.Cmd, error) {
			path := filepath.Join(s.Dir(), "haproxy.cfg")
			ports := strings.NewReplacer("PORT+1", fmt.Sprint(s.Port()+1), "PORT", fmt.Sprint(s.Port()))
			return s.Command(program, "-db", "-f", path), os.WriteFile(path, []byte(ports.Replace(config)), 0o600)
		},
		Ready:      answers,
		SecondPort: 1,
	})
	return servertest.Own(t, s, err)
}

// stats adds a page that shows which hosts get requests: http://127.0.0.1:PORT+1/;csv.
const stats = `frontend stats
    bind 127.0.0.1:PORT+1
    stats enable
    stats uri /
`

// Nginx logs these texts, in the format of nginxHTTP, if a host refused the connection or returned
// 503 and the next host answered.
const (
	RetriedRefused = `" 502, 200 200`
	Retried503     = `" 503, 200 200`
)

// nginxHTTP is the rest of the nginx configuration: files only in the temporary folder, a log of
// the hosts' answers, and a header that names the hosts that were tried.
const nginxHTTP = `daemon off;
worker_processes 2;
pid nginx.pid;
error_log stderr warn;
events {}
http {
    log_format hosts '$remote_addr "$request" $upstream_status $status';
    map $upstream_status $asked_again { default 0; "~," 1; }
    access_log /dev/stdout hosts if=$asked_again;
    add_header X-Asked $upstream_addr always;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
%s}
`

// NginxConfig returns deploy/nginx/tickslot.conf inside a complete configuration.
func NginxConfig(t testing.TB, hosts [3]string) string {
	t.Helper()
	return fmt.Sprintf(nginxHTTP, fill(t, Deployed(t, "nginx/tickslot.conf"), "listen 80", hosts))
}

// Nginx runs deploy/nginx/tickslot.conf in front of the hosts.
func Nginx(t testing.TB, hosts [3]string) *servertest.Server {
	t.Helper()
	program := Find(t, "nginx")
	config := NginxConfig(t, hosts)
	s, err := servertest.Start(servertest.Program{
		Name: "nginx",
		Command: func(s *servertest.Server) (*exec.Cmd, error) {
			filled := strings.Replace(config, "PORT", fmt.Sprint(s.Port()), 1)
			err := os.WriteFile(filepath.Join(s.Dir(), "nginx.conf"), []byte(filled), 0o644)
			return s.Command(program, "-e", "stderr", "-p", s.Dir(), "-c", "nginx.conf"), err
		},
		Ready:       answers,
		RefusesRoot: true, // as root, its workers could not read its files
	})
	return servertest.Own(t, s, err)
}

// answers waits until a host answers /readyz through the load balancer.
func answers(ctx context.Context, s *servertest.Server, _ int, _ string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// StatsAddr returns the address of HAProxy's page of hosts.
func StatsAddr(s *servertest.Server) string {
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(s.Port()+1))
}
