package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(hostEnv); text != "" {
		if err := runHost(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	servertest.Main(m)
}

// A fleet is three hosts on a store.
type fleet struct {
	t     *testing.T
	store interface { // of locks and registry
		Pause() error
		Resume() error
		Kill() error
	}
	hosts []*servertest.Server
}

// onEach runs a test with a fleet on each store, one after the other: a browser takes a whole
// processor.
func onEach(t *testing.T, test func(t *testing.T, f *fleet)) {
	requireBrowser(t)
	for name, on := range map[string]func(*testing.T) *fleet{"Redis": onRedis, "Postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, on(t))
		})
	}
}

func onRedis(t *testing.T) *fleet {
	t.Helper()
	server := redistest.New(t)
	return start(t, &fleet{t: t, store: server}, hostSettings{Redis: server.URL(), Folder: t.TempDir()})
}

func onPostgres(t *testing.T) *fleet {
	t.Helper()
	server := sqltest.Postgres(t)
	return start(t, &fleet{t: t, store: server}, hostSettings{Postgres: server.DSN("", "", "postgres")})
}

// start starts the hosts, and waits until there is something to see.
func start(t *testing.T, f *fleet, s hostSettings) *fleet {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.Seldom = time.Now().Add(30 * time.Minute)
	for i := range 3 {
		h, err := servertest.Start(servertest.Program{
			Name: fmt.Sprint("host-", i+1),
			Command: func(base *servertest.Server) (*exec.Cmd, error) {
				own := s
				own.Name, own.Addr, own.First = fmt.Sprint("host-", i+1), base.Addr(), i == 0
				text, err := json.Marshal(own)
				cmd := base.Command(exe)
				cmd.Env = append(os.Environ(), hostEnv+"="+string(text))
				return cmd, err
			},
			Ready: func(ctx context.Context, base *servertest.Server, _ int, _ string) error {
				r, err := http.NewRequestWithContext(ctx, "GET", "http://"+base.Addr()+"/ops/openapi.json", nil)
				if err != nil {
					return err
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					return err
				}
				return answer.Body.Close()
			},
		})
		f.hosts = append(f.hosts, servertest.Own(t, h, err))
	}
	testkit.Eventually(t, testkit.Patience, "there is something to see", func() error {
		switch {
		case len(list(f.json(0, "hosts"), "hosts")) < 3:
			return fmt.Errorf("not all hosts")
		case len(list(f.json(0, "leaders"), "leases")) == 0:
			return fmt.Errorf("no leader")
		case len(list(f.json(0, "durable?state=dead"), "runs")) == 0:
			return fmt.Errorf("no dead run")
		case len(list(f.json(0, "outbox?state=dead"), "messages")) == 0:
			return fmt.Errorf("no dead message")
		case len(list(f.json(0, page.URL("timer", "name", timerBroken)), "runs")) < 3:
			return fmt.Errorf("no run that failed")
		}
		return nil
	})
	return f
}

// url is that of a page of a host.
func (f *fleet) url(host int, target string) string {
	return "http://" + f.hosts[host].Addr() + "/ops/" + target
}

// json returns a page as JSON.
func (f *fleet) json(host int, target string) map[string]any {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), "GET", f.url(host, target), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	var v map[string]any
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(text, &v) != nil {
		f.t.Fatalf("%s: %s %v: %s", target, answer.Status, err, text)
	}
	return v
}

// list returns the rows of a page.
func list(v map[string]any, name string) []map[string]any {
	rows, _ := v[name].([]any)
	var all []map[string]any
	for _, row := range rows {
		if row, ok := row.(map[string]any); ok {
			all = append(all, row)
		}
	}
	return all
}

// change changes something without a browser.
func (f *fleet) change(target string, fields url.Values) {
	f.t.Helper()
	answer, err := http.PostForm(f.url(0, target), fields)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		f.t.Fatalf("%s: %s %v: %.2000s", target, answer.Status, err, strings.TrimSpace(string(text)))
	}
}
