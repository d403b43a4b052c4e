// Package dynamolock keeps leases in DynamoDB: package caslock on its items, each of which is
// written only if its version is still the one that was read.
//
//	store := dynamolock.New(dynamodb.NewFromConfig(config), "tickslot", dynamolock.Options{})
//
// It is a module of its own, so that only its users link the SDK. It keeps all promises of package
// caslock but shared limits and rates: it writes one item in a step. The table has to be there,
// with the keys fleet and name, both strings; the error of one that is missing has the command. Its
// user needs dynamodb:GetItem, PutItem and Query.
//
// All reads are consistent. All items of a fleet have one partition key, so a fleet makes at most
// the 1,000 writes a second that DynamoDB allows for one. An item has up to 400 KB: a name bears
// about 1,200 slots.
//
// The time is that of the header Date, which every answer has. It has whole seconds, so a host that
// begins knows the time to a second and Options.MaxSkew, and its leases last so much longer.
//
// It was run on dynalite 4.0.0, an emulator. DynamoDB itself was not run.
//
// What it does not promise: anything on a global table that several regions write to, or with DAX
// before the table; and that a region whose servers' clocks differ by more than Options.MaxSkew
// keeps its limits.
package dynamolock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// The attributes of an item; the first two are the table's keys.
const (
	attrFleet, attrName, attrVersion, attrData = "fleet", "name", "version", "data"
)

// most is what an item has of a document: of the 400 KB its keys and names take some hundred bytes.
const most = 400<<10 - 2<<10

// Options are the settings of a store. The zero value is fine.
type Options struct {
	// Fleet is the partition key of all items, and keeps fleets apart. Default "tickslot".
	Fleet string
	// MaxSkew is by how much the clocks of DynamoDB's servers differ at most; leases may last by so
	// much longer. See caslock.Clock. Default 500 ms; negative: there is one server, an emulator.
	MaxSkew time.Duration
}

// New returns a store on a table. It does not call DynamoDB. Retries of the client are not used.
func New(client *dynamodb.Client, table string, options Options) *caslock.Store {
	return caslock.New(newBackend(client, table, options))
}

type backend struct {
	client *dynamodb.Client
	table  string
	fleet  string
	clock  *caslock.Clock
}

func newBackend(client *dynamodb.Client, table string, o Options) *backend {
	return &backend{client: client, table: table, fleet: cmp.Or(o.Fleet, "tickslot"),
		clock: &caslock.Clock{MaxSkew: o.MaxSkew}}
}

func (b *backend) String() string { return "the table " + b.table + " of DynamoDB" }

// Limits implements caslock.Backend.
func (b *backend) Limits() caslock.Limits { return caslock.Limits{Bytes: most, Together: 1} }

// once switches the retries of the client off.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// learn learns the time from an answer to what was sent at a time, also if it is an error.
func (b *backend) learn(sent time.Time, metadata middleware.Metadata, err error) {
	resp, _ := awsmiddleware.GetRawResponse(metadata).(*smithyhttp.Response)
	if failed, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		resp = failed.Response
	}
	if resp == nil || resp.Response == nil || resp.StatusCode >= 500 { // a proxy may say that, by its own clock
		return
	}
	if stamp, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		b.clock.Observe(sent, time.Now(), stamp, time.Second)
	}
}

func (b *backend) key(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrFleet: text(b.fleet), attrName: text(key)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// Get implements caslock.Backend.
func (b *backend) Get(ctx context.Context, key string) (caslock.Document, error) {
	sent := time.Now()
	got, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &b.table, Key: b.key(key),
		ConsistentRead: aws.Bool(true)}, once)
	if err != nil {
		b.learn(sent, middleware.Metadata{}, err)
		return caslock.Document{}, b.meaning(err)
	}
	b.learn(sent, got.ResultMetadata, nil)
	return document(key, got.Item), nil
}

// document returns what an item holds. One of another program gets a text that is no document, for
// the store to say so.
func document(key string, item map[string]types.AttributeValue) caslock.Document {
	if item == nil {
		return caslock.Document{Key: key}
	}
	version, _ := item[attrVersion].(*types.AttributeValueMemberS)
	data, _ := item[attrData].(*types.AttributeValueMemberB)
	if version == nil || data == nil {
		return caslock.Document{Key: key, Version: "foreign", Data: []byte("{}")}
	}
	return caslock.Document{Key: key, Version: version.Value, Data: data.Value}
}

// Put implements caslock.Backend. Versions are random, so none is used again.
func (b *backend) Put(ctx context.Context, docs ...caslock.Document) (versions []string, err error) {
	if len(docs) != 1 {
		return nil, fmt.Errorf("%w: %d items in one step: this store writes one", driver.ErrFault, len(docs))
	}
	doc, version := docs[0], rand.Text()
	item := b.key(doc.Key)
	item[attrVersion], item[attrData] = text(version), &types.AttributeValueMemberB{Value: doc.Data}
	put := &dynamodb.PutItemInput{TableName: &b.table, Item: item,
		ConditionExpression:                 aws.String("attribute_not_exists(#a)"),
		ExpressionAttributeNames:            map[string]string{"#a": attrName},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
	if doc.Version != "" {
		put.ConditionExpression = aws.String("#a = :v")
		put.ExpressionAttributeNames["#a"] = attrVersion
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":v": text(doc.Version)}
	}
	sent := time.Now()
	done, err := b.client.PutItem(ctx, put, once)
	if changed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		b.learn(sent, middleware.Metadata{}, err)
		conflict := &caslock.ConflictError{}
		if changed.Item != nil {
			conflict.Current = []caslock.Document{document(doc.Key, changed.Item)}
		}
		return nil, conflict
	}
	if err != nil {
		b.learn(sent, middleware.Metadata{}, err)
		return nil, b.meaning(err)
	}
	b.learn(sent, done.ResultMetadata, nil)
	return []string{version}, nil
}

// List implements caslock.Backend, in the order of names. An answer has a megabyte at most, so it
// may take several.
func (b *backend) List(ctx context.Context, after string, limit int) (docs []caslock.Document, more bool, err error) {
	query := &dynamodb.QueryInput{TableName: &b.table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("#f = :f"),
		ExpressionAttributeNames:  map[string]string{"#f": attrFleet},
		ExpressionAttributeValues: map[string]types.AttributeValue{":f": text(b.fleet)}}
	if after != "" {
		query.ExclusiveStartKey = b.key(after)
	}
	for more = true; more && len(docs) < limit; {
		query.Limit = aws.Int32(int32(limit - len(docs)))
		sent := time.Now()
		got, err := b.client.Query(ctx, query, once)
		if err != nil {
			b.learn(sent, middleware.Metadata{}, err)
			return nil, false, b.meaning(err)
		}
		b.learn(sent, got.ResultMetadata, nil)
		for _, item := range got.Items {
			name, _ := item[attrName].(*types.AttributeValueMemberS)
			if name != nil {
				docs = append(docs, document(name.Value, item))
			}
		}
		query.ExclusiveStartKey = got.LastEvaluatedKey
		more = len(got.LastEvaluatedKey) > 0
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

// meaning tells what passes by itself from what somebody has to fix.
func (b *backend) meaning(err error) error {
	answer, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return err
	}
	switch answer.ErrorCode() {
	case "ResourceNotFoundException":
		return fmt.Errorf("%w: there is no table %s in this region: create it (aws dynamodb create-table --table-name "+
			"%s --billing-mode PAY_PER_REQUEST --attribute-definitions AttributeName=fleet,AttributeType=S "+
			"AttributeName=name,AttributeType=S --key-schema AttributeName=fleet,KeyType=HASH "+
			"AttributeName=name,KeyType=RANGE): %w", driver.ErrSetup, b.table, b.table, err)
	case "AccessDeniedException", "ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException",
		"InvalidSignatureException", "IncompleteSignatureException", "MissingAuthenticationTokenException":
		return fmt.Errorf("%w: the credentials are refused: renew them if they have expired, grant dynamodb:GetItem, "+
			"PutItem and Query on the table %s, and check this host's clock: %w", driver.ErrSetup, b.table, err)
	case "ValidationException":
		return fmt.Errorf("%w: the table %s is not one of this package: its keys have to be fleet (HASH) and name "+
			"(RANGE), both strings: %w", driver.ErrSetup, b.table, err)
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded":
		return &caslock.ThrottledError{Wait: 50 * time.Millisecond, Err: err} // it does not say how long
	}
	return err
}
