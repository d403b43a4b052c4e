package dynamolock

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// dynalite is the emulator, which all tests share, with a table.
var dynalite servertest.Shared[*servertest.Server]

const table = "tickslot"

// newClient returns a client of dynalite. Its requests pass through the link.
func newClient(t testing.TB, through *link) *dynamodb.Client {
	t.Helper()
	program := servertest.Fetched("dynalite-4", "node_modules/dynalite/cli.js")
	if program == "" {
		servertest.Require(t, errors.New("dynalite is not installed"),
			"install node and npm, then sh scripts/fetch.sh dynalite-4")
	}
	server := dynalite.Get(t, func() (*servertest.Server, error) {
		server, err := servertest.Start(servertest.Program{
			Name: "dynalite",
			Prepare: func(s *servertest.Server) error { // dynalite ends when a client gives a request up
				return os.WriteFile(filepath.Join(s.Dir(), "start.js"), fmt.Appendf(nil, `
					process.on("uncaughtException", e => { if (e.code !== "ECONNRESET") throw e })
					require(%q)`, program), 0o600)
			},
			Command: func(s *servertest.Server) (*exec.Cmd, error) {
				return s.Command("node", "start.js", "--host", "127.0.0.1", "--port", fmt.Sprint(s.Port()),
					"--createTableMs", "0"), nil
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
		client := connect(server.Addr(), new(link))
		return server, errors.Join(create(client, table, attrName), create(client, "foreign", "colour"))
	})
	return connect(server.Addr(), through)
}

func connect(addr string, through *link) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{BaseEndpoint: aws.String("http://" + addr), Region: "eu-central-1",
		HTTPClient: through, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: servertest.Canary}, nil
		})})
}

// create creates a table with the keys fleet and second.
func create(client *dynamodb.Client, name, second string) error {
	ctx := context.Background()
	if _, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{TableName: &name,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrFleet), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: &second, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrFleet), KeyType: types.KeyTypeHash},
			{AttributeName: &second, KeyType: types.KeyTypeRange}}}); err != nil {
		return err
	}
	return testkit.Poll(time.Minute, "create a table", func(ctx context.Context) error {
		is, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
		if err == nil && is.Table.TableStatus != types.TableStatusActive {
			err = fmt.Errorf("it is %s", is.Table.TableStatus)
		}
		return err
	})
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

// says returns an answer with a status, a text and the time.
func says(status int, body string) func(*http.Request) *http.Response {
	return func(req *http.Request) *http.Response {
		return &http.Response{StatusCode: status, Request: req, Body: io.NopCloser(strings.NewReader(body)),
			Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)},
				"Content-Type": {"application/x-amz-json-1.0"}}}
	}
}

// fails returns an answer with the name of an error.
func fails(status int, name string) func(*http.Request) *http.Response {
	return says(status, `{"__type":"com.amazonaws.dynamodb.v20120810#`+name+`","message":"no"}`)
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

// deleteAll deletes all items of a fleet.
func deleteAll(t testing.TB, b *backend) {
	t.Helper()
	docs, more, err := b.List(context.Background(), "", 10_000)
	if err != nil || more {
		t.Error(err, more)
	}
	for _, doc := range docs {
		if _, err := b.client.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: &b.table,
			Key: b.key(doc.Key)}); err != nil {
			t.Error(err)
		}
	}
}

func TestConformance(t *testing.T) {
	client := newClient(t, new(link))
	first := newBackend(client, table, Options{MaxSkew: skew})
	sharpClock(t, first)
	dlocktest.Run(t, dlocktest.Harness{
		Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Delay: true, Listing: true, Enumeration: true},
		TTL:   time.Second,
		Slack: skew + 300*time.Millisecond,
		// Some characters take up to six in JSON.
		LongestValue: 320 << 10,
		New: func(t testing.TB) dlocktest.Namespace {
			fleet := rand.Text()
			open := func() *backend {
				b := newBackend(client, table, Options{Fleet: fleet, MaxSkew: skew})
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
	client := newClient(t, l)
	fleet := rand.Text()
	a, b := New(client, table, Options{Fleet: fleet}), New(client, table, Options{Fleet: fleet})
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
	trips("an acquire, warm", 1, func() { mustAcquire(t, a, req) })
}

// A write with the version of an item that was deleted and made anew meanwhile is refused, and so
// is one of an item that is not there.
//
// Fails when an item is written whatever its version, and when a version is used again.
func TestVersions(t *testing.T) {
	b := newBackend(newClient(t, new(link)), table, Options{Fleet: rand.Text()})
	first, err := b.Put(t.Context(), caslock.Document{Key: "x", Data: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	deleteAll(t, b)
	if _, err := b.Put(t.Context(), caslock.Document{Key: "x", Data: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	for what, doc := range map[string]caslock.Document{
		"made anew":     {Key: "x", Version: first[0], Data: []byte("late")},
		"there already": {Key: "x", Data: []byte("late")},
		"deleted":       {Key: "y", Version: first[0], Data: []byte("late")},
	} {
		_, err := b.Put(t.Context(), doc)
		if _, ok := errors.AsType[*caslock.ConflictError](err); !ok {
			t.Errorf("a write of a document that was %s: %v: must conflict", what, err)
		}
	}
	if doc, err := b.Get(t.Context(), "x"); err != nil || string(doc.Data) != "2" {
		t.Errorf("%+v, %v: must be what was written before", doc, err)
	}
	if store := caslock.New(b); store.CheckShared("x", "limit") == nil {
		t.Error("shared limits, which need several items in one step, are not refused")
	}
}

// The item that a conflict tells of is not read once more: DynamoDB tells it; dynalite does not.
func TestConflictTellsTheItem(t *testing.T) {
	b := newBackend(newClient(t, &link{answer: says(400, `{"__type":"com.amazonaws.dynamodb.v20120810#`+
		`ConditionalCheckFailedException","message":"no","Item":{"version":{"S":"v2"},"data":{"B":"e30="}}}`)}), table,
		Options{})
	_, err := b.Put(t.Context(), caslock.Document{Key: "x", Version: "v1"})
	conflict, ok := errors.AsType[*caslock.ConflictError](err)
	if !ok || len(conflict.Current) != 1 || conflict.Current[0].Version != "v2" ||
		string(conflict.Current[0].Data) != "{}" {
		t.Errorf("%+v, %v: must tell the item", conflict, err)
	}
}

// A document as long as Limits says is kept, and pages of the list have all documents, once each.
func TestLimits(t *testing.T) {
	b := newBackend(newClient(t, new(link)), table, Options{Fleet: rand.Text()})
	long := bytes.Repeat([]byte{'<', 0xc3, 0xa4, 0}, b.Limits().Bytes/4)
	left := make(map[string]bool)
	for i := range 12 { // several megabytes: more than one answer bears
		key := fmt.Sprint("semaphore:", strings.Repeat("世", 80), i)
		left[key] = true
		if _, err := b.Put(t.Context(), caslock.Document{Key: key, Data: long}); err != nil {
			t.Fatal(err)
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
			if !left[doc.Key] || doc.Version == "" || !bytes.Equal(doc.Data, long) {
				t.Errorf("%q, version %q, %d bytes: came twice, or is none of them", doc.Key, doc.Version,
					len(doc.Data))
			}
			delete(left, doc.Key)
			after = doc.Key
		}
	}
	if len(left) > 0 {
		t.Errorf("not listed: %v", left)
	}
}

// Whoever sees what somebody has to fix is told how, and an outage is told from that.
//
// Fails when a refusal is taken for an outage, which timers would run without the store in, and
// when the SDK tries again by itself.
func TestErrors(t *testing.T) {
	req := driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute}
	good := newClient(t, new(link))
	item := newBackend(good, table, Options{Fleet: "other"}).key("semaphore:x")
	if _, err := good.PutItem(t.Context(),
		&dynamodb.PutItemInput{TableName: aws.String(table), Item: item}); err != nil {
		t.Fatal(err)
	}
	answering := func(status int, name string) *dynamodb.Client {
		return newClient(t, &link{answer: fails(status, name)})
	}
	for what, c := range map[string]struct {
		client *dynamodb.Client
		table  string
		is     error
		fix    string
	}{
		"no table":        {good, "missing", driver.ErrSetup, "aws dynamodb create-table --table-name missing "},
		"other keys":      {good, "foreign", driver.ErrSetup, "its keys have to be fleet"},
		"a foreign item":  {good, table, driver.ErrFault, "use another table or prefix"},
		"expired":         {answering(400, "ExpiredTokenException"), table, driver.ErrSetup, "renew them"},
		"no right":        {answering(400, "AccessDeniedException"), table, driver.ErrSetup, "grant dynamodb:GetItem"},
		"broken":          {answering(500, "InternalServerError"), table, nil, "InternalServerError"},
		"nobody answers":  {connect("127.0.0.1:1", new(link)), table, nil, "refused"},
		"busy, to no end": {answering(400, "ProvisionedThroughputExceededException"), table, nil, "asks to retry"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := New(c.client, c.table, Options{Fleet: "other"}).TryAcquire(ctx, req)
		cancel()
		if err == nil || c.is != nil && !errors.Is(err, c.is) || c.is == nil && errors.Is(err, driver.ErrSetup) ||
			!strings.Contains(err.Error(), c.fix) {
			t.Errorf("%s: %v: must say %q", what, err, c.fix)
		}
	}
	l := &link{answer: fails(500, "InternalServerError")}
	_, err := newBackend(newClient(t, l), table, Options{}).Get(t.Context(), "x")
	if err == nil || l.requests.Load() != 1 {
		t.Errorf("%v, after %d requests: must be one", err, l.requests.Load())
	}
}
