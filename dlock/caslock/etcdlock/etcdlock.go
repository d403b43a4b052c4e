// Package etcdlock keeps leases in etcd: package caslock on etcd's transactions.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	store := etcdlock.New(client, etcdlock.Options{})
//
// It is a module of its own, so that only its users link the client. It keeps all promises of
// package caslock, with shared limits and rates: one transaction writes several documents.
//
// A document is a key, and its version the revision of etcd, so a member that lags behind, or that
// has lost its leader, answers nothing that counts. A name bears about 4,800 slots with etcd's
// default limit of 1.5 MB for a request.
//
// etcd tells no time over gRPC. The store reads it from the header Date of GET /version, which the
// same port answers, with one more request every 10 s at most, and some more in the first seconds
// of use. So a gateway in front of etcd has to pass on HTTP, too.
//
// It was run on etcd 3.7.3 with one member, without TLS. Other versions, several members and TLS
// were not run.
//
// What it does not promise: anything after a restore from a snapshot that was made without
// --bump-revision --mark-compacted (etcdutl snapshot restore), because revisions then repeat; and
// that a cluster whose members' clocks differ by more than Options.MaxSkew keeps its limits.
package etcdlock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/driver"
)

const (
	// defaultPrefix is the default of Options.Prefix.
	defaultPrefix = "tickslot/"
	// request is what a request may have besides its documents, of the 1.5 MB that etcd allows.
	request = 16 << 10
	// askEvery is how long the time is known well enough, and askSoon how long if it is known to
	// more than sharp.
	askEvery, askSoon, sharp = 10 * time.Second, 100 * time.Millisecond, 100 * time.Millisecond
	// patience is how long one member may take to tell the time, before the next one is asked.
	patience = 300 * time.Millisecond
)

// Options are the settings of a store. The zero value is fine.
type Options struct {
	// Prefix begins all keys, and keeps fleets apart. Default "tickslot/".
	Prefix string
	// MaxSkew is by how much the clocks of etcd's members differ at most; leases may last by so
	// much longer. See caslock.Clock. Default 500 ms; negative: there is one member.
	MaxSkew time.Duration
	// TLS is that of the client's Config, to ask for the time. Default nil: etcd has none.
	TLS *tls.Config
}

// New returns a store on a client, which stays the caller's to close. It does not call etcd.
func New(client *clientv3.Client, options Options) *caslock.Store {
	return caslock.New(newBackend(client, options))
}

type backend struct {
	client *clientv3.Client
	prefix string
	scheme string // of endpoints that have none
	http   *http.Client
	clock  *caslock.Clock
	skew   time.Duration

	mu    sync.Mutex
	asked time.Time // when the time was asked for last
	first int       // of the endpoints: that which told the time last
}

func newBackend(client *clientv3.Client, o Options) *backend {
	scheme := "http://"
	if o.TLS != nil {
		scheme = "https://"
	}
	return &backend{client: client, prefix: cmp.Or(o.Prefix, defaultPrefix), scheme: scheme,
		clock: &caslock.Clock{MaxSkew: o.MaxSkew}, skew: o.MaxSkew,
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
			IdleConnTimeout: time.Minute}}}
}

func (b *backend) String() string { return "etcd at " + strings.Join(b.client.Endpoints(), ", ") }

// Limits implements caslock.Backend. A transaction may have 128 operations; a request has 11 names.
func (b *backend) Limits() caslock.Limits {
	return caslock.Limits{Bytes: 3<<19 - request, Together: 1 + driver.MaxShared}
}

// Get implements caslock.Backend. The read is linearizable, which is etcd's default.
func (b *backend) Get(ctx context.Context, key string) (caslock.Document, error) {
	resp, err := b.client.Get(ctx, b.prefix+key)
	if err != nil {
		return caslock.Document{}, meaning(err)
	}
	return b.document(key, resp), nil
}

func (b *backend) document(key string, resp *clientv3.GetResponse) caslock.Document {
	if len(resp.Kvs) == 0 {
		return caslock.Document{Key: key}
	}
	kv := resp.Kvs[0]
	return caslock.Document{Key: key, Version: strconv.FormatInt(kv.ModRevision, 10), Data: kv.Value}
}

// Put implements caslock.Backend. A transaction that writes is not repeated by the client, except
// where it cannot have been sent.
func (b *backend) Put(ctx context.Context, docs ...caslock.Document) (versions []string, err error) {
	var same []clientv3.Cmp
	var write, read []clientv3.Op
	for _, doc := range docs {
		revision := int64(0) // of a key that there is not
		if doc.Version != "" {
			if revision, err = strconv.ParseInt(doc.Version, 10, 64); err != nil {
				return nil, fmt.Errorf("the version %q is no revision of etcd: %w", doc.Version, err)
			}
		}
		key := b.prefix + doc.Key
		same = append(same, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
		write = append(write, clientv3.OpPut(key, string(doc.Data)))
		read = append(read, clientv3.OpGet(key))
	}
	resp, err := b.client.Txn(ctx).If(same...).Then(write...).Else(read...).Commit()
	if err != nil {
		return nil, meaning(err)
	}
	if !resp.Succeeded {
		conflict := &caslock.ConflictError{}
		for i, r := range resp.Responses {
			now := b.document(docs[i].Key, (*clientv3.GetResponse)(r.GetResponseRange()))
			conflict.Current = append(conflict.Current, now)
		}
		return nil, conflict
	}
	for range docs {
		versions = append(versions, strconv.FormatInt(resp.Header.Revision, 10))
	}
	return versions, nil
}

// List implements caslock.Backend, in the order of keys.
func (b *backend) List(ctx context.Context, after string, limit int) (docs []caslock.Document, more bool, err error) {
	from := b.prefix
	if after != "" {
		from += after + "\x00"
	}
	resp, err := b.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(b.prefix)),
		clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, false, meaning(err)
	}
	for _, kv := range resp.Kvs {
		docs = append(docs, caslock.Document{Key: strings.TrimPrefix(string(kv.Key), b.prefix),
			Version: strconv.FormatInt(kv.ModRevision, 10), Data: kv.Value})
	}
	return docs, resp.More, nil
}

// Clock implements caslock.Backend.
func (b *backend) Clock(ctx context.Context) (caslock.Bounds, error) {
	bounds, known := b.clock.Now()
	wait := askEvery
	if bounds.Until.Sub(bounds.From) > sharp+max(0, b.skew) {
		wait = askSoon
	}
	b.mu.Lock()
	due := !known || time.Since(b.asked) >= wait
	if due {
		b.asked = time.Now()
	}
	b.mu.Unlock()
	if !due {
		return bounds, nil
	}
	err := b.ask(ctx)
	if bounds, ok := b.clock.Now(); ok {
		return bounds, nil // also if this answer failed: it is known from those before
	}
	return caslock.Bounds{}, err
}

// ask asks one member after the other for the time.
func (b *backend) ask(ctx context.Context) error {
	endpoints := b.client.Endpoints()
	b.mu.Lock()
	first := b.first
	b.mu.Unlock()
	var errs []error
	for i := range endpoints {
		at := (first + i) % len(endpoints)
		err := b.askOne(ctx, endpoints[at])
		if err == nil {
			b.mu.Lock()
			b.first = at
			b.mu.Unlock()
			return nil
		}
		errs = append(errs, fmt.Errorf("%s does not tell the time: %w", endpoints[at], err))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (b *backend) askOne(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url(endpoint), nil)
	if err != nil {
		return err
	}
	sent := time.Now()
	resp, err := b.http.Do(req)
	if err != nil {
		return err
	}
	received := time.Now()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // or the connection is not used again
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	stamp, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return fmt.Errorf("its answer, %s, has no date: %w", resp.Status, err)
	}
	b.clock.Observe(sent, received, stamp, time.Second)
	return nil
}

// url returns where an endpoint of the client tells its version, and thereby the time.
func (b *backend) url(endpoint string) string {
	if !strings.Contains(endpoint, "://") {
		endpoint = b.scheme + endpoint
	}
	return strings.TrimSuffix(endpoint, "/") + "/version"
}

// meaning tells what passes by itself from what somebody has to fix.
func meaning(err error) error {
	for _, setup := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty,
		rpctypes.ErrUserNotFound, rpctypes.ErrNoSpace, rpctypes.ErrRequestTooLarge} {
		if errors.Is(err, setup) {
			return fmt.Errorf("%w: %w", driver.ErrSetup, err)
		}
	}
	if errors.Is(err, rpctypes.ErrTooManyRequests) {
		return &caslock.ThrottledError{Err: err}
	}
	return err
}
