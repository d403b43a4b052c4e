package fences

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite" // any other SQLite driver works

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

func openDB(t *testing.T) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reports.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(Schema); err != nil {
		t.Fatal(err)
	}
	return db
}

// A run loses its lease while it computes, and ignores its context. Another host runs the next tick
// and writes. Then the first run's write is refused.
//
// Fails when SaveTotal does not compare the fence.
func TestWriteOfAReplacedRun(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := memlock.New()
	link := dlocktest.NewFaulty(store)
	computing, wakeUp := make(chan struct{}), make(chan struct{})
	var slow sync.Once
	refused := make(chan error, 1)
	save := func(_ context.Context, fence dlock.Fence, _ string, total int64) error {
		err := SaveTotal(context.WithoutCancel(t.Context()), db, fence, "today", total)
		if total == 1 {
			refused <- err
		}
		return err
	}
	start(t, link, Reports(time.Second, func(context.Context) (total int64, err error) {
		total = 2
		slow.Do(func() {
			total = 1
			close(computing)
			<-wakeUp // a long garbage collection or a suspended machine: it does not notice that its context has ended
		})
		return total, nil
	}, save))
	<-computing
	link.Inject(dlocktest.Hang) // its host can no longer renew the lease

	start(t, store, Reports(time.Second, func(context.Context) (int64, error) { return 3, nil }, save))
	awaitTotal(t, db, 3)
	close(wakeUp)
	if err := <-refused; !errors.Is(err, ErrReplaced) {
		t.Errorf("the write of the run that was replaced: %v, want %v", err, ErrReplaced)
	}
	awaitTotal(t, db, 3)
}

// start runs a timer like one host, until the test ends.
func start(t *testing.T, store dlock.DistributedLock, report timer.Timer) {
	t.Helper()
	config := timer.Config{Store: store, TTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	timers, err := timer.New(config, report)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- timers.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func awaitTotal(t *testing.T, db *sql.DB, want int64) {
	t.Helper()
	var total int64
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = db.QueryRow("SELECT total FROM report").Scan(&total); err == nil && total == want {
			return
		}
	}
	t.Fatalf("the total is %d, %v, want %d", total, err, want)
}

// Fails when SaveTotal overwrites a row with a higher fence, or refuses an equal fence, which
// occurs when a run writes twice.
func TestRows(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	for _, c := range []struct {
		fence dlock.Fence
		want  error
	}{{5, nil}, {5, nil}, {4, ErrReplaced}, {7, nil}, {5, ErrReplaced}, {0, ErrReplaced}} {
		if err := SaveTotal(t.Context(), db, c.fence, "today", int64(c.fence)); !errors.Is(err, c.want) {
			t.Errorf("fence %d: %v, want %v", c.fence, err, c.want)
		}
	}
	awaitTotal(t, db, 7)
}

// Fails when InTransaction does not compare the fence, or commits after a failure.
func TestTransaction(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	errWrite := errors.New("no")
	for i, c := range []struct {
		fence dlock.Fence
		fail  error
		want  error
	}{
		{5, nil, nil}, {5, nil, nil}, {4, nil, ErrReplaced}, {9, errWrite, errWrite}, {8, nil, nil},
		{7, nil, ErrReplaced},
	} {
		err := InTransaction(t.Context(), db, c.fence, "invoices", func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO report VALUES ($1, $2, 0)", fmt.Sprint("day ", i), i)
			return errors.Join(err, c.fail)
		})
		if !errors.Is(err, c.want) {
			t.Errorf("write %d with fence %d: %v, want %v", i, c.fence, err, c.want)
		}
	}
	var written int
	if err := db.QueryRow("SELECT count(*) FROM report").Scan(&written); err != nil || written != 3 {
		t.Errorf("%d rows, %v, want those of the three that succeeded", written, err)
	}
}

// objects is an object store with conditional writes that answers like S3.
type objects struct {
	mu      sync.Mutex
	body    string
	fence   string
	version int          // 0 if there is no object
	before  func() error // called before each PUT
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && o.before != nil {
		if err := o.before(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	tag := fmt.Sprintf(`"%d"`, o.version)
	switch {
	case r.Method == http.MethodHead && o.version == 0:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodHead:
		w.Header().Set("ETag", tag)
		w.Header().Set(fenceHeader, o.fence)
	case r.Header.Get("If-None-Match") == "*" && o.version != 0,
		r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != tag:
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		body, _ := io.ReadAll(r.Body)
		o.body, o.fence, o.version = string(body), r.Header.Get(fenceHeader), o.version+1
	}
}

// Fails when PutObject does not compare fences, or writes unconditionally and overwrites a later
// run that has written between its two requests.
func TestObjects(t *testing.T) {
	t.Parallel()
	o := new(objects)
	server := httptest.NewServer(o)
	defer server.Close()
	put := func(fence dlock.Fence) error {
		return PutObject(t.Context(), server.Client(), server.URL, fence, []byte(fmt.Sprint("by ", fence)))
	}
	for _, c := range []struct {
		fence dlock.Fence
		want  error
	}{{5, nil}, {5, nil}, {4, ErrReplaced}, {7, nil}, {0, ErrReplaced}} {
		if err := put(c.fence); !errors.Is(err, c.want) {
			t.Errorf("fence %d: %v, want %v", c.fence, err, c.want)
		}
	}
	var overtaken atomic.Bool
	o.before = func() error {
		if overtaken.Swap(true) {
			return nil
		}
		return put(9) // a later run writes between the two requests of the run with fence 8
	}
	if err := put(8); !errors.Is(err, ErrReplaced) {
		t.Errorf("overtaken between the requests: %v, want %v", err, ErrReplaced)
	}
	if o.body != "by 9" {
		t.Errorf("written %s, want by 9", o.body)
	}
	o.before = func() error { return errors.New("broken") }
	if err := put(10); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("a server that fails: %v", err)
	}
}
