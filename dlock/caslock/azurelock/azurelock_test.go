package azurelock

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/servertest"
)

// Azurite is one thread: with more tests at once, calls of the largest take longer than they may.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	servertest.Main(m)
}

// azurite is the emulator, which all tests share, with a table.
var azurite servertest.Shared[*servertest.Server]

const (
	account = "tickslot"
	table   = "tickslot"
)

// newClient returns a client of a table of Azurite. Each of its requests passes through the
// transports, which may be none.
func newClient(t testing.TB, table string, through ...policy.Transporter) *aztables.Client {
	t.Helper()
	program := servertest.Fetched("azurite-3.35", "node_modules/azurite/dist/src/table/main.js")
	if program == "" {
		servertest.Require(t, errors.New("azurite is not installed"),
			"install node and npm, then sh scripts/fetch.sh azurite-3.35")
	}
	secret := base64.StdEncoding.EncodeToString([]byte(servertest.Canary))
	server := azurite.Get(t, func() (*servertest.Server, error) {
		server, err := servertest.Start(servertest.Program{
			Name: "azurite",
			Command: func(s *servertest.Server) (*exec.Cmd, error) {
				cmd := s.Command("node", program, "--tableHost", "127.0.0.1", "--tablePort", fmt.Sprint(s.Port()),
					"--inMemoryPersistence", "--silent", "--disableTelemetry", "--disableProductStyleUrl")
				cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+account+":"+secret)
				return cmd, nil
			},
			Ready: func(ctx context.Context, s *servertest.Server, _ int, _ string) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr(), nil)
				if err != nil {
					return err
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return err
				}
				return resp.Body.Close()
			},
		})
		if err != nil {
			return nil, err
		}
		_, err = connect(t, server.Addr(), secret, "tickslot", nil).CreateTable(context.Background(), nil)
		return server, err
	})
	var transport policy.Transporter
	if len(through) > 0 {
		transport = through[0]
	}
	return connect(t, server.Addr(), secret, table, transport)
}

func connect(t testing.TB, addr, secret, table string, transport policy.Transporter) *aztables.Client {
	t.Helper()
	credential, err := aztables.NewSharedKeyCredential(account, secret)
	if err != nil {
		t.Fatal(err)
	}
	client, err := aztables.NewClientWithSharedKey("http://"+addr+"/"+account+"/"+table, credential,
		&aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A link is what requests pass through: it counts them, and may answer in place of the server.
type link struct {
	requests atomic.Int64
	answer   func(*http.Request) *http.Response // nil: the server answers
}

func (l *link) Do(req *http.Request) (*http.Response, error) {
	l.requests.Add(1)
	if l.answer != nil {
		return l.answer(req), nil
	}
	return http.DefaultClient.Do(req)
}

// says returns an answer with a status, a code and headers.
func says(status int, code string, headers ...string) func(*http.Request) *http.Response {
	return func(req *http.Request) *http.Response {
		resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Request: req,
			Body: io.NopCloser(strings.NewReader(`{"odata.error":{"code":"` + code + `"}}`))}
		for i := 0; i < len(headers); i += 2 {
			resp.Header.Set(headers[i], headers[i+1])
		}
		return resp
	}
}

// skew is how late the Date of an answer may be: node makes it by a timer, which waits while it
// works.
const skew = 200 * time.Millisecond

// sharpClock asks for the time until it is known well enough for short leases.
func sharpClock(t testing.TB, b *backend) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := b.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		bounds, ok := b.clock.Now()
		if ok && bounds.Until.Sub(bounds.From) < skew+50*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute the time is known to %v", bounds.Until.Sub(bounds.From))
		}
		time.Sleep(37 * time.Millisecond) // so that answers come at all times of a second
	}
}

// deleteAll deletes all entities of a partition.
func deleteAll(t testing.TB, b *backend) {
	t.Helper()
	docs, more, err := b.List(context.Background(), "", 1000)
	if err != nil || more {
		t.Error(err, more)
	}
	for _, doc := range docs {
		if _, err := b.client.DeleteEntity(context.Background(), b.partition, rowKey(doc.Key), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestConformance(t *testing.T) {
	client := newClient(t, table)
	first := newBackend(client, Options{MaxSkew: skew})
	sharpClock(t, first)
	dlocktest.Run(t, dlocktest.Harness{
		Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true,
			Enumeration: true},
		TTL:   time.Second,
		Slack: skew + 300*time.Millisecond,
		// Some characters take up to six in JSON.
		LongestValue: 590 << 10,
		New: func(t testing.TB) dlocktest.Namespace {
			own := newClient(t, "t"+rand.Text()) // Azurite looks at all entities of a table in turn
			if _, err := own.CreateTable(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			open := func() *backend {
				b := newBackend(own, Options{MaxSkew: skew})
				b.clock = first.clock // a host that begins knows the time to a second only
				return b
			}
			return dlocktest.Namespace{
				Open:     func() driver.Store { return caslock.New(open()) },
				LoseData: func() { deleteAll(t, open()) },
			}
		},
	})
}

func mustAcquire(t *testing.T, s *caslock.Store, req driver.Request) driver.Grant {
	t.Helper()
	g, err := s.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A change takes one round trip if this host made the last one, and else two; a refusal takes one.
//
// Fails when the client's own calls are more than one for each of the store, and when the time is
// asked for.
func TestRoundTrips(t *testing.T) {
	l := &link{}
	client := newClient(t, table, l)
	partition := rand.Text()
	a, b := New(client, Options{Partition: partition}), New(client, Options{Partition: partition})
	trips := func(what string, want int64, do func()) {
		t.Helper()
		before := l.requests.Load()
		do()
		if n := l.requests.Load() - before; n != want {
			t.Errorf("%s took %d round trips: must be %d", what, n, want)
		}
	}
	req := driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute}
	other := req
	other.Token = "b"
	shared := driver.Request{Name: "y", Slots: 2, Token: "c", TTL: time.Minute,
		Shared: []driver.SemaphoreSpec{{Name: "limit", Slots: 2}, {Name: "other", Slots: 2}}}
	var g driver.Grant
	trips("the first acquire of all, cold", 2, func() { g = mustAcquire(t, a, req) })
	trips("a refusal", 1, func() {
		if _, err := b.TryAcquire(t.Context(), other); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%v: must be refused", err)
		}
	})
	trips("a heartbeat, warm", 1, func() {
		if r, err := a.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Errorf("%+v, %v", r, err)
		}
	})
	trips("a release, warm", 1, func() {
		if r, err := a.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Errorf("%+v, %v", r, err)
		}
	})
	trips("an acquire, warm", 1, func() { g = mustAcquire(t, a, req) })
	trips("an acquire with two limits, cold", 4, func() { mustAcquire(t, a, shared) })
	shared.Token = "d"
	trips("an acquire with two limits, warm", 1, func() { mustAcquire(t, a, shared) })
}

// A host that has just begun knows the time to a second and Options.MaxSkew, and takes a lease that
// lasts longer by it.
func TestFirstCalls(t *testing.T) {
	store := New(newClient(t, table), Options{Partition: "a 'partition'/" + rand.Text()})
	if err := store.Check(); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, store, driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute})
	list, err := store.List(t.Context(), "x", 1)
	if err != nil || len(list) != 1 || list[0].ExpiresIn > time.Minute || list[0].ExpiresIn < 50*time.Second {
		t.Errorf("%+v, %v: must end in a minute", list, err)
	}
}

// A write with the version of a document that was deleted and made anew meanwhile is refused, alone
// and in a transaction, and so is one of a document that is not there.
//
// Fails when an entity is written whatever its ETag.
func TestVersions(t *testing.T) {
	b := newBackend(newClient(t, table), Options{Partition: rand.Text()})
	put := func(docs ...caslock.Document) ([]string, error) { return b.Put(t.Context(), docs...) }
	first, err := put(caslock.Document{Key: "x", Data: []byte("1")}, caslock.Document{Key: "y", Data: []byte("1")})
	if err != nil || len(first) != 2 || first[0] == "" || first[1] == "" {
		t.Fatalf("%q, %v: must be two versions", first, err)
	}
	for i, key := range []string{"x", "y"} {
		if doc, err := b.Get(t.Context(), key); err != nil || doc.Version != first[i] || string(doc.Data) != "1" {
			t.Errorf("%+v, %v: must have the version %s", doc, err, first[i])
		}
	}
	deleteAll(t, b)
	if _, err := put(caslock.Document{Key: "x", Data: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	for what, docs := range map[string][]caslock.Document{
		"made anew":          {{Key: "x", Version: first[0], Data: []byte("late")}},
		"there already":      {{Key: "x", Data: []byte("late")}},
		"deleted":            {{Key: "y", Version: first[1], Data: []byte("late")}},
		"one of two":         {{Key: "z", Data: []byte("late")}, {Key: "x", Version: first[0], Data: []byte("late")}},
		"one of two is gone": {{Key: "z", Data: []byte("late")}, {Key: "y", Version: first[1], Data: []byte("late")}},
		"one of two is new":  {{Key: "z", Data: []byte("late")}, {Key: "x", Data: []byte("late")}},
	} {
		if _, err := put(docs...); !isConflict(err) {
			t.Errorf("a write of a document that was %s: %v: must conflict", what, err)
		}
	}
	docs, more, err := b.List(t.Context(), "", 10)
	if err != nil || more || len(docs) != 1 || docs[0].Key != "x" || string(docs[0].Data) != "2" {
		t.Errorf("%+v, %t, %v: must be what was written before", docs, more, err)
	}
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*caslock.ConflictError](err)
	return ok
}

// A document as long as Limits says is kept, and pages of the list have all documents, once each,
// whatever is in their keys.
func TestLimits(t *testing.T) {
	b := newBackend(newClient(t, table), Options{Partition: rand.Text()})
	long := bytes.Repeat([]byte{'<', 0xc3, 0xa4, 0}, b.Limits().Bytes/4)
	if _, err := b.Put(t.Context(), caslock.Document{Key: "long", Data: long}); err != nil {
		t.Fatal(err)
	}
	if doc, err := b.Get(t.Context(), "long"); err != nil || !bytes.Equal(doc.Data, long) {
		t.Errorf("%d bytes, %v: must be the %d that were written", len(doc.Data), err, len(long))
	}
	keys := map[string]bool{"long": true}
	for _, key := range []string{"a/b", `a\b`, "a#b?c", "100%", "a'b", "ä", "a b", "A", "a", "=YQ", strings.Repeat("世", 88)} {
		keys["semaphore:"+key] = true
		if _, err := b.Put(t.Context(), caslock.Document{Key: "semaphore:" + key, Data: []byte(key)}); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		if doc, err := b.Get(t.Context(), "semaphore:"+key); err != nil || string(doc.Data) != key {
			t.Errorf("%q: %+v, %v", key, doc, err)
		}
	}
	after := ""
	for more := true; more; {
		var docs []caslock.Document
		var err error
		if docs, more, err = b.List(t.Context(), after, 5); err != nil || more && len(docs) != 5 {
			t.Fatalf("%d documents, more: %t, %v", len(docs), more, err)
		}
		for _, doc := range docs {
			if !keys[doc.Key] || doc.Version == "" {
				t.Errorf("%q, version %q, came twice, or is none of them", doc.Key, doc.Version)
			}
			delete(keys, doc.Key)
			after = doc.Key
		}
	}
	if len(keys) > 0 {
		t.Errorf("not listed: %v", keys)
	}
}

// Whoever sees what somebody has to fix is told how, and no key or signature is in the text.
//
// Fails when a table that is missing is taken for an entity that is, and when a refusal is taken
// for an outage, which timers would run without the store in.
func TestWhatSomebodyHasToFix(t *testing.T) {
	req := driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute}
	shared := req
	shared.Shared = []driver.SemaphoreSpec{{Name: "limit", Slots: 2}}
	answering := func(status int, code string) *aztables.Client {
		return newClient(t, table, &link{answer: says(status, code)})
	}
	for name, c := range map[string]struct {
		client *aztables.Client
		fix    string
	}{
		"no table":        {newClient(t, "missing"), "az storage table create --name "},
		"being deleted":   {answering(409, "TableBeingDeleted"), "create it"},
		"expired SAS":     {answering(403, "AuthenticationFailed"), "renew it if it has expired"},
		"no role":         {answering(403, "AuthorizationPermissionMismatch"), "Data Contributor"},
		"a foreign table": {foreign(t), "use another table or prefix"},
	} {
		for _, req := range []driver.Request{req, shared} {
			_, err := New(c.client, Options{Partition: "fix"}).TryAcquire(t.Context(), req)
			want := driver.ErrSetup
			if name == "a foreign table" {
				want = driver.ErrFault
			}
			if !errors.Is(err, want) ||
				!strings.Contains(fmt.Sprint(err), c.fix) || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("%s: %v: must say %q, in one line", name, err, c.fix)
			}
		}
	}
}

// foreign returns a client of a table in which another program has the entity of the name x.
func foreign(t *testing.T) *aztables.Client {
	client := newClient(t, table)
	if _, err := client.AddEntity(t.Context(), []byte(`{"PartitionKey":"fix","RowKey":"semaphore:x","Colour":"red"}`), nil); err != nil {
		t.Fatal(err)
	}
	return client
}

// An account that asks to come again is asked again after the time that it says, within the call's
// own time, and one that does not answer is an outage.
//
// Fails when the SDK tries again by itself, and when a signature is in the text of an error.
func TestOutages(t *testing.T) {
	busy := says(503, "ServerBusy", "Retry-After", "1")
	l := &link{}
	l.answer = func(req *http.Request) *http.Response {
		if l.requests.Load() > 2 {
			l.answer = nil
			return says(404, "ResourceNotFound", "Date", time.Now().UTC().Format(http.TimeFormat))(req)
		}
		return busy(req)
	}
	req := driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute}
	store := New(newClient(t, table, l), Options{Partition: rand.Text()})
	began := time.Now()
	mustAcquire(t, store, req)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it took %v: must wait for a second, twice", took)
	}
	for what, answer := range map[string]func(*http.Request) *http.Response{
		"busy":      says(429, "TooManyRequests", "Retry-After", "60"),
		"broken":    says(500, "InternalError"),
		"timed out": says(500, "OperationTimedOut"),
	} {
		l := &link{answer: answer}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := New(newClient(t, table, l), Options{}).TryAcquire(ctx, req)
		cancel()
		if err == nil || errors.Is(err, driver.ErrSetup) || l.requests.Load() != 1 ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, after %d requests: must be an outage after one", what, err, l.requests.Load())
		}
	}
	b := newBackend(newClient(t, table, &link{answer: func(req *http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusAccepted, Header: http.Header{}, Request: req, Body: http.NoBody}
	}}), Options{})
	versions, err := b.Put(t.Context(), caslock.Document{Key: "x"}, caslock.Document{Key: "y"})
	if err == nil && len(versions) > 0 || isConflict(err) {
		t.Errorf("an empty answer to a transaction: %q, %v: must be neither written nor refused", versions, err)
	}
	client, err := aztables.NewClientWithNoCredential("http://127.0.0.1:1/account/table?sig=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(client, Options{}).TryAcquire(t.Context(), req)
	if err == nil || errors.Is(err, driver.ErrSetup) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: %v: must be an outage, without the signature", err)
	}
}
