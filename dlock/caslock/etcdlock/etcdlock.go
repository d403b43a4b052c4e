// Package etcdlock is a dlock store on etcd. It combines package caslock with etcd's
// transactions.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	store := etcdlock.New(client, etcdlock.Options{})
//
// It is a separate module, so that only its users link the etcd client. It keeps all promises of
// package caslock. A transaction can write several documents, so it supports shared limits and
// rates.
//
// Each document is an etcd key, and its version is the key's revision. Reads are linearizable, so a
// member that lags behind or has no leader cannot return stale data. A name supports about 4,800
// slots with etcd's default request limit of 1.5 MB.
//
// etcd's gRPC API does not return the time. The store reads it from the Date header of GET /version
// on the same port. This takes at most one extra request every 10 s, and a few more in the first
// seconds of use. A gateway in front of etcd must therefore also forward HTTP.
//
// Tested with etcd 3.7.3, one member, without TLS. Not tested: other versions, several members,
// TLS.
//
// It promises nothing after a restore from a snapshot without --bump-revision --mark-compacted
// (etcdutl snapshot restore), because revisions then repeat. If the clocks of a cluster's members
// differ by more than Options.MaxSkew, limits may be exceeded.
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
	// request is the space for the rest of a request, out of the 1.5 MB that etcd allows.
	request = 16 << 10
	// askEvery is the interval between requests for the time. While the bounds are wider than
	// sharp, the interval is askSoon.
	askEvery, askSoon, sharp = 10 * time.Second, 100 * time.Millisecond, 100 * time.Millisecond
	// patience is how long the store waits for one member's time before it asks the next one.
	patience = 300 * time.Millisecond
)

// Options are the settings of a store. The zero value is valid.
type Options struct {
	// Prefix is put before all keys and separates fleets. Default "tickslot/".
	Prefix string
	// MaxSkew is the maximum difference between the clocks of etcd's members. Leases may last
	// longer by this much. See caslock.Clock. A negative value means that there is one member.
	// Default 500 ms.
	MaxSkew time.Duration
	// TLS is the TLS field of the client's Config. The store needs it to ask for the time. If it is
	// nil, etcd is asked over plain HTTP. Default nil.
	TLS *tls.Config
}

// New returns a store on a client. The caller still closes the client. New does not call etcd.
func New(client *clientv3.Client, options Options) *caslock.Store {
	return caslock.New(newBackend(client, options))
}

type backend struct {
	client *clientv3.Client
	prefix string
	scheme string // for endpoints without a scheme
	http   *http.Client
	clock  *caslock.Clock
	skew   time.Duration

	mu    sync.Mutex
	asked time.Time // time of the last request for the time
	first int       // index of the endpoint that last returned the time
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

// Limits implements caslock.Backend. A request has at most 11 names, and etcd allows 128 operations
// per transaction.
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

// Put implements caslock.Backend. The client retries a write transaction only if the request cannot
// have been sent.
func (b *backend) Put(ctx context.Context, docs ...caslock.Document) (versions []string, err error) {
	var same []clientv3.Cmp
	var write, read []clientv3.Op
	for _, doc := range docs {
		revision := int64(0) // matches a key that does not exist
		if doc.Version != "" {
			if revision, err = strconv.ParseInt(doc.Version, 10, 64); err != nil {
				return nil, fmt.Errorf("the version %q is not an etcd revision: %w", doc.Version, err)
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

// List implements caslock.Backend. It returns documents in the order of their keys.
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
		return bounds, nil // even if this request failed, earlier answers give bounds
	}
	return caslock.Bounds{}, err
}

// ask asks the members for the time, one after the other, until one answers.
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
		errs = append(errs, fmt.Errorf("%s does not report the time: %w", endpoints[at], err))
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
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // otherwise the connection is not reused
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

// url returns the URL of an endpoint's version, whose answer has the time in its Date header.
func (b *backend) url(endpoint string) string {
	if !strings.Contains(endpoint, "://") {
		endpoint = b.scheme + endpoint
	}
	return strings.TrimSuffix(endpoint, "/") + "/version"
}

// meaning marks errors that someone must fix with driver.ErrSetup, and throttling as
// ThrottledError.
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
