package dlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// Tokens are secrets: nothing prints or logs them.
//
// Fails when a method of redact.go is removed.
func TestTokensAreNotPrinted(t *testing.T) {
	t.Parallel()
	const token = "TOKENTOKENTOKENTOKEN"
	store := recorder{DistributedLock: memlock.New()}
	session, err := dlock.NewSession(&store, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	lease, err := session.Semaphore("a", 2).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(context.Background()) // otherwise its window would close during another test
	_, refused := memlock.New().TryAcquire(t.Context(), driver.Request{Name: "a", Slots: -1, Token: token,
		TTL: time.Second})
	grant := driver.Grant{Name: "a", Token: token}
	request := driver.Request{Name: "a", Token: token, Tick: &driver.Tick{}}
	var out bytes.Buffer
	for _, v := range []any{grant, &grant, []driver.Grant{grant}, request, &request, lease, session, refused} {
		fmt.Fprintf(&out, "%v %+v %s %q\n", v, v, v, v)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			if _, many := v.([]driver.Grant); !many { // slog does not format the elements of lists
				slog.New(h).Info("look", "at", v)
			}
		}
	}
	for what, secret := range map[string]string{"the token": token, "the lease's token": store.token} {
		if secret == "" || strings.Contains(out.String(), secret) {
			t.Errorf("%s %q is in:\n%s", what, secret, &out)
		}
	}
	if !strings.Contains(out.String(), "TOKENT…") {
		t.Errorf("tokens cannot be told apart:\n%s", &out)
	}
}

// recorder remembers the token of the last request.
type recorder struct {
	dlock.DistributedLock
	token string
}

func (r *recorder) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	r.token = req.Token
	return r.DistributedLock.TryAcquire(ctx, req)
}
