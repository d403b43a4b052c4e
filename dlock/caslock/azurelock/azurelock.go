// Package azurelock keeps leases in Azure Table Storage: package caslock on its entities, each of
// which is written only if its ETag is still the one that was read.
//
// It is a module of its own, so that only its users link the SDK. It keeps all promises of package
// caslock, with shared limits and rates: one transaction writes several entities. The table has to
// be there. Its user needs the role Storage Table Data Contributor, or to read, add and update.
//
// All documents of a fleet are in one partition, as a transaction wants it, so a fleet makes at
// most the 2,000 requests a second that Azure allows for one. A name bears about 2,200 slots, in
// 704 KiB; what a transaction writes has to have less than 4 MiB.
//
// The time is that of the header Date, which every answer has. It has whole seconds, so a host that
// begins knows the time to a second and Options.MaxSkew, and its leases last so much longer.
//
// It was run on Azurite 3.35.0, an emulator. Azure itself and Cosmos DB for Table were not run.
//
// What it does not promise: anything on an endpoint that reads a copy (ACCOUNT-secondary), or on
// Cosmos DB with another consistency than strong; and that an account whose servers' clocks differ
// by more than Options.MaxSkew keeps its limits.
package azurelock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

// part is what a property bears, and an entity bears parts of that: a megabyte, in base64.
const part, parts = 64 << 10, 11

// Options are the settings of a store. The zero value is fine.
type Options struct {
	// Partition is the PartitionKey of all entities, and keeps fleets apart. Default "tickslot".
	Partition string
	// MaxSkew is by how much the clocks of Azure's servers differ at most; leases may last by so
	// much longer. See caslock.Clock. Default 500 ms; negative: there is one server, an emulator.
	MaxSkew time.Duration
}

// New returns a store on a table. It does not call Azure. Retries of the client are not used.
func New(client *aztables.Client, options Options) *caslock.Store {
	return caslock.New(newBackend(client, options))
}

type backend struct {
	client    *aztables.Client
	partition string
	clock     *caslock.Clock
}

func newBackend(client *aztables.Client, o Options) *backend {
	return &backend{client: client, partition: rowKey(cmp.Or(o.Partition, "tickslot")),
		clock: &caslock.Clock{MaxSkew: o.MaxSkew}}
}

func (b *backend) String() string { return "Azure Table Storage, partition " + b.partition }

// Limits implements caslock.Backend. A transaction writes 100 entities; a request has 11 names.
func (b *backend) Limits() caslock.Limits {
	return caslock.Limits{Bytes: parts * part, Together: 1 + driver.MaxShared}
}

// call makes one request, and learns the time. The SDK panics if a transaction's answer is empty.
func (b *backend) call(ctx context.Context, do func(context.Context) error) (resp *http.Response, err error) {
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	sent := time.Now()
	err = guard.Call("SDK", func() error { return do(policy.WithCaptureResponse(ctx, &resp)) })
	if resp != nil && resp.StatusCode < 500 { // what is beyond a proxy may say, by its own clock
		if stamp, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			b.clock.Observe(sent, time.Now(), stamp, time.Second)
		}
	}
	return resp, err
}

// Get implements caslock.Backend.
func (b *backend) Get(ctx context.Context, key string) (caslock.Document, error) {
	var doc caslock.Document
	_, err := b.call(ctx, func(ctx context.Context) error {
		got, err := b.client.GetEntity(ctx, b.partition, rowKey(key), nil)
		if err == nil {
			doc, err = document(got.Value)
		}
		doc.Key, doc.Version = key, string(got.ETag)
		return err
	})
	if isCode(err, aztables.ResourceNotFound, aztables.EntityNotFound) {
		return caslock.Document{Key: key}, nil
	}
	return doc, meaning(err)
}

// Put implements caslock.Backend.
func (b *backend) Put(ctx context.Context, docs ...caslock.Document) (versions []string, err error) {
	actions := make([]aztables.TransactionAction, len(docs))
	for i, doc := range docs {
		if actions[i], err = b.write(doc); err != nil {
			return nil, err
		}
	}
	put := b.putAll
	if len(docs) == 1 {
		put = b.putOne
	}
	versions, err = put(ctx, actions)
	if isCode(err, aztables.EntityAlreadyExists, aztables.UpdateConditionNotSatisfied,
		aztables.ResourceNotFound, aztables.EntityNotFound) {
		return nil, &caslock.ConflictError{}
	}
	return versions, meaning(err)
}

func (b *backend) putOne(ctx context.Context, do []aztables.TransactionAction) (versions []string, err error) {
	resp, err := b.call(ctx, func(ctx context.Context) (err error) {
		if do[0].IfMatch == nil {
			_, err = b.client.AddEntity(ctx, do[0].Entity, nil)
			return err
		}
		_, err = b.client.UpdateEntity(ctx, do[0].Entity,
			&aztables.UpdateEntityOptions{IfMatch: do[0].IfMatch, UpdateMode: aztables.UpdateModeReplace})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp.Header.Values("ETag"), nil
}

// putAll makes a transaction. Its answer has one for each entity, or one for that which it failed
// for; the SDK returns neither their ETags nor the code of the failure.
func (b *backend) putAll(ctx context.Context, do []aztables.TransactionAction) (versions []string, err error) {
	resp, err := b.call(ctx, func(ctx context.Context) (err error) {
		_, err = b.client.SubmitTransaction(ctx, do, nil)
		return err
	})
	if resp == nil || resp.StatusCode != http.StatusAccepted {
		return nil, cmp.Or(err, errors.New("a transaction was not accepted"))
	}
	body, err := runtime.Payload(resp)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if strings.HasPrefix(name, "HTTP/1.") {
			if status, _ := strconv.Atoi(value[:min(3, len(value))]); status >= 400 {
				code := append(codeIn.FindSubmatch(body), nil, nil)[1]
				return nil, &azcore.ResponseError{StatusCode: status, ErrorCode: string(code), RawResponse: resp}
			}
		} else if strings.EqualFold(name, "ETag:") {
			versions = append(versions, value)
		}
	}
	return versions, nil // the store compares their number
}

var codeIn = regexp.MustCompile(`"code":\s*"(\w+)`)

// List implements caslock.Backend, in the order of row keys.
func (b *backend) List(ctx context.Context, after string, limit int) (docs []caslock.Document, more bool, err error) {
	filter := fmt.Sprintf("PartitionKey eq '%s'", b.partition)
	if after != "" {
		filter += fmt.Sprintf(" and RowKey gt '%s'", rowKey(after))
	}
	options := aztables.ListEntitiesOptions{Filter: &filter, Format: new(aztables.MetadataFormatFull)}
	for more = true; more && len(docs) < limit; { // an answer may have few, or none, where others follow
		options.Top = new(int32(min(limit-len(docs), 1000)))
		pager := b.client.NewListEntitiesPager(&options)
		var got aztables.ListEntitiesResponse
		if _, err := b.call(ctx, func(ctx context.Context) (err error) {
			got, err = pager.NextPage(ctx)
			return err
		}); err != nil {
			return nil, false, meaning(err)
		}
		for _, entity := range got.Entities {
			doc, err := document(entity)
			if err != nil {
				return nil, false, err
			}
			docs = append(docs, doc)
		}
		options.NextPartitionKey, options.NextRowKey = got.NextPartitionKey, got.NextRowKey
		more = pager.More()
	}
	return docs, more, nil
}

// Clock implements caslock.Backend.
func (b *backend) Clock(ctx context.Context) (caslock.Bounds, error) {
	bounds, ok := b.clock.Now()
	if !ok {
		_, err := b.Get(ctx, "clock") // that there is none is an answer, too
		if bounds, ok = b.clock.Now(); !ok {
			return bounds, cmp.Or(err, errors.New("its answers have no header Date"))
		}
	}
	return bounds, nil
}

// write returns what writes a document, in binary properties: those of text bear half as much.
func (b *backend) write(doc caslock.Document) (do aztables.TransactionAction, err error) {
	has := map[string]any{"Key": doc.Key}
	for i := 0; i*part < len(doc.Data); i++ {
		has[partName(i)] = aztables.EDMBinary(doc.Data[i*part : min((i+1)*part, len(doc.Data))])
	}
	do.ActionType = aztables.TransactionTypeAdd
	if doc.Version != "" {
		do.ActionType, do.IfMatch = aztables.TransactionTypeUpdateReplace, (*azcore.ETag)(&doc.Version)
	}
	do.Entity, err = json.Marshal(aztables.EDMEntity{Properties: has,
		Entity: aztables.Entity{PartitionKey: b.partition, RowKey: rowKey(doc.Key)}})
	return do, err
}

func partName(i int) string { return "Part" + strconv.Itoa(i) }

// document returns what an entity holds. One of another program is returned as it is, for the store
// to say so.
func document(text []byte) (doc caslock.Document, err error) {
	var entity aztables.EDMEntity
	if err := json.Unmarshal(text, &entity); err != nil {
		return doc, fmt.Errorf("%w: an entity that cannot be read: %w", driver.ErrFault, err)
	}
	for i := 0; entity.Properties[partName(i)] != nil; i++ {
		data, _ := entity.Properties[partName(i)].(aztables.EDMBinary)
		doc.Data = append(doc.Data, data...)
	}
	if len(doc.Data) == 0 {
		doc.Data = text
	}
	key, _ := entity.Properties["Key"].(string)
	doc.Key, doc.Version = cmp.Or(key, entity.RowKey), entity.ETag
	return doc, nil
}

// plain are keys that stand for themselves: some other characters may not be in one, or not in a
// URL, and what is left of a name in other scripts may be too long.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// rowKey returns what a key is called in the table.
func rowKey(key string) string {
	if plain.MatchString(key) {
		return key
	}
	return "=" + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// isCode tells whether an error is an answer with one of these codes.
func isCode(err error, codes ...aztables.TableErrorCode) bool {
	answer, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && slices.Contains(codes, aztables.TableErrorCode(answer.ErrorCode))
}

// meaning tells what passes by itself from what somebody has to fix.
func meaning(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", request.Op, request.Err) // its URL may have a signature in it
	}
	answer, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return err
	}
	asked := answer.RawResponse.Request.URL // that of the SDK has many lines
	err = fmt.Errorf("%s answers %d %s to %s", asked.Host, answer.StatusCode, answer.ErrorCode, path.Base(asked.Path))
	switch {
	case isCode(answer, aztables.TableNotFound, aztables.TableBeingDeleted):
		return fmt.Errorf("%w: there is no such table: create it (az storage table create --name TABLE --account-name "+
			"ACCOUNT): %w", driver.ErrSetup, err)
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w: the key, signature (SAS) or token is refused: renew it if it has expired, grant the "+
			"role Storage Table Data Contributor (or read, add and update), and check this host's clock: %w",
			driver.ErrSetup, err)
	case answer.StatusCode == http.StatusTooManyRequests, isCode(answer, "ServerBusy"):
		seconds, _ := strconv.Atoi(cmp.Or(answer.RawResponse.Header.Get("Retry-After"), "1"))
		return &caslock.ThrottledError{Wait: time.Duration(seconds) * time.Second, Err: err}
	}
	return err
}
